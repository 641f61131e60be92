// Package ent has the shape of what ent generates with --feature sql/execquery, as
// far as the recipe needs it: a transaction runs statements in the *sql.Tx below it.
package ent

import (
	"context"
	"database/sql"
)

// Client is the client of a pool.
type Client struct{ db *sql.DB }

// NewClient makes a client.
func NewClient(db *sql.DB) *Client { return &Client{db} }

// Tx begins a transaction.
func (c *Client) Tx(ctx context.Context) (*Tx, error) {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	own := &Tx{tx: tx}
	own.Order = &OrderClient{own}
	return own, nil
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

// ExecContext is what sql/execquery adds.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return tx.tx.ExecContext(ctx, query, args...)
}

// OrderClient is the client of the orders.
type OrderClient struct{ tx *Tx }

// Create begins an order.
func (c *OrderClient) Create() *OrderCreate { return &OrderCreate{tx: c.tx} }

// Order is an order.
type Order struct{ ID, Item string }

// OrderCreate is an order that is being made.
type OrderCreate struct {
	tx    *Tx
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
	_, err := c.tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", c.order.ID, c.order.Item)
	return &c.order, err
}
