// Package ent has the shape of the code that ent generates with --feature sql/execquery, as far as
// the recipe needs it: a transaction runs statements in the *sql.Tx below it.
package ent

import (
	"context"
	"database/sql"
	"errors"
	"slices"
)

// Client is the client of a pool.
type Client struct {
	db    *sql.DB
	Order *OrderClient
}

// NewClient makes a client.
func NewClient(db *sql.DB) *Client { return &Client{db, &OrderClient{hooks: new([]Hook)}} }

// Tx begins a transaction.
func (c *Client) Tx(ctx context.Context) (*Tx, error) { return c.BeginTx(ctx, nil) }

// BeginTx begins a transaction with options.
func (c *Client) BeginTx(ctx context.Context, opts *sql.TxOptions) (*Tx, error) {
	tx, err := c.db.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	own := &Tx{tx: tx}
	own.Order = &OrderClient{own, c.Order.hooks}
	return own, nil
}

type txKey struct{}

// NewTxContext puts a transaction into a context.
func NewTxContext(ctx context.Context, tx *Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// TxFromContext returns the transaction in the context, or nil.
func TxFromContext(ctx context.Context) *Tx {
	tx, _ := ctx.Value(txKey{}).(*Tx)
	return tx
}

// Tx is a transaction.
type Tx struct {
	tx    *sql.Tx
	Order *OrderClient
}

// Commit commits the transaction.
func (tx *Tx) Commit() error { return tx.tx.Commit() }

// Rollback rolls the transaction back.
func (tx *Tx) Rollback() error { return tx.tx.Rollback() }

// ExecContext is the method that sql/execquery adds.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return tx.tx.ExecContext(ctx, query, args...)
}

// Value is the result of a mutation.
type Value any

// Mutation is a change.
type Mutation interface{ Type() string }

// Mutator carries out a mutation.
type Mutator interface {
	Mutate(ctx context.Context, m Mutation) (Value, error)
}

// MutateFunc is a function that is a Mutator.
type MutateFunc func(ctx context.Context, m Mutation) (Value, error)

// Mutate calls the function.
func (f MutateFunc) Mutate(ctx context.Context, m Mutation) (Value, error) { return f(ctx, m) }

// Hook wraps a mutator.
type Hook func(Mutator) Mutator

// OrderMutation is a change of an order.
type OrderMutation struct{ create *OrderCreate }

// Type returns the name of the schema.
func (m *OrderMutation) Type() string { return "Order" }

// ID returns the id that is set.
func (m *OrderMutation) ID() (string, bool) { return m.create.order.ID, true }

// Item returns the item that is set.
func (m *OrderMutation) Item() (string, bool) { return m.create.order.Item, true }

// Tx returns the transaction of the client that began the mutation.
func (m *OrderMutation) Tx() (*Tx, error) {
	if m.create.tx == nil {
		return nil, errors.New("ent: mutation is not running in a transaction")
	}
	return m.create.tx, nil
}

// OrderClient is the client of the orders.
type OrderClient struct {
	tx    *Tx
	hooks *[]Hook
}

// Use adds hooks.
func (c *OrderClient) Use(hooks ...Hook) { *c.hooks = append(*c.hooks, hooks...) }

// Create begins an order.
func (c *OrderClient) Create() *OrderCreate { return &OrderCreate{tx: c.tx, hooks: *c.hooks} }

// Order is an order.
type Order struct{ ID, Item string }

// OrderCreate is an order that is being made.
type OrderCreate struct {
	tx    *Tx
	hooks []Hook
	order Order
}

// SetID sets the id.
func (c *OrderCreate) SetID(id string) *OrderCreate {
	c.order.ID = id
	return c
}

// SetItem sets the item.
func (c *OrderCreate) SetItem(item string) *OrderCreate {
	c.order.Item = item
	return c
}

// Save inserts the order.
func (c *OrderCreate) Save(ctx context.Context) (*Order, error) {
	var mutate Mutator = MutateFunc(func(ctx context.Context, _ Mutation) (Value, error) {
		_, err := c.tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", c.order.ID, c.order.Item)
		return &c.order, err
	})
	for _, hook := range slices.Backward(c.hooks) {
		mutate = hook(mutate)
	}
	_, err := mutate.Mutate(ctx, &OrderMutation{c})
	return &c.order, err
}
