package recipes

import (
	"context"
	"database/sql"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/samples/recipes/ent"
)

// EntTransactor begins ent's transactions for outbox.InTx, the web middlewares, and listeners
// whose effect happens exactly once.
type EntTransactor struct {
	Client *ent.Client
	Events *sqltx.Adapter
}

// Begin implements outbox.Transactor.
func (t EntTransactor) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	return t.Events.BeginWith(ctx, func(ctx context.Context) (context.Context, sqltx.AnyTx, error) {
		tx, err := t.Client.BeginTx(ctx, opts)
		if err != nil {
			return nil, nil, err
		}
		return ent.NewTxContext(ctx, tx), tx, nil
	})
}

// Handle makes a listener of a function that runs in a separate transaction. The same transaction
// stores that the event is done.
func (t EntTransactor) Handle(fn func(ctx context.Context, tx *ent.Tx, env outbox.Envelope) error) outbox.Listener {
	from := func(ctx context.Context) (*ent.Tx, bool) { return ent.TxFromContext(ctx), true }
	complete := func(ctx context.Context, tx *ent.Tx) error { return t.Events.Complete(ctx, tx) }
	return sqltx.HandleWith(t, from, complete, fn)
}

// Transactor returns the shop's transactor.
func (s *EntShop) Transactor() EntTransactor { return EntTransactor{s.Client, s.events} }

// PlaceInTx stores an order and the event in a transaction of the Transactor.
func (s *EntShop) PlaceInTx(ctx context.Context, order Order) error {
	return outbox.InTx(ctx, s.Transactor(), func(ctx context.Context) error {
		tx := ent.TxFromContext(ctx)
		if _, err := tx.Order.Create().SetID(order.ID).SetItem(order.Item).Save(ctx); err != nil {
			return err
		}
		_, err := s.Outbox.Writer().Write(ctx, orderPlaced.Envelope(order.ID, order))
		return err
	})
}

// WriteByHook adds a hook that writes the event of each order.
func (s *EntShop) WriteByHook() {
	s.Client.Order.Use(func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			order, ok := m.(*ent.OrderMutation)
			if !ok {
				return next.Mutate(ctx, m)
			}
			tx, err := order.Tx() // before Mutate, which commits when there is no client.Tx
			if err != nil {
				return nil, err
			}
			value, err := next.Mutate(ctx, m)
			if err != nil {
				return nil, err
			}
			id, _ := order.ID()
			item, _ := order.Item()
			_, err = s.events.Write(ctx, tx, orderPlaced.Envelope(id, Order{ID: id, Item: item}))
			return value, err // the error makes the caller roll back
		})
	})
}

// PlaceHooked stores an order; the hook stores the event.
func (s *EntShop) PlaceHooked(ctx context.Context, order Order) error {
	tx, err := s.Client.Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.Order.Create().SetID(order.ID).SetItem(order.Item).Save(ctx); err != nil {
		return err
	}
	return tx.Commit()
}
