// Package anotherlibrary_test has the code of docs/how-to/adapters/another-library.md.
package anotherlibrary_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/anotherlibrary/framework"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Adapter writes events in transactions of the framework.
type Adapter struct {
	db  *framework.DB
	sql *sqltx.Adapter
}

// New makes an adapter.
func New(db *framework.DB, w *outbox.Writer) (*Adapter, error) {
	a, err := sqltx.New(db.Pool(), w)
	return &Adapter{db, a}, err
}

// Write writes an event in a transaction of the framework.
func (a *Adapter) Write(ctx context.Context, tx *framework.Tx, env outbox.Envelope) (string, error) {
	return a.sql.Write(ctx, tx.SQLTx(), env)
}

// Begin makes the adapter an outbox.Transactor: nested, it is a savepoint.
func (a *Adapter) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	return a.sql.BeginWith(ctx, func(ctx context.Context) (context.Context, sqltx.AnyTx, error) {
		tx, err := a.db.Begin(ctx, opts)
		if err != nil {
			return ctx, nil, err
		}
		return context.WithValue(ctx, txKey{}, tx), tx.SQLTx(), nil
	})
}

// TxFrom returns the transaction that ctx carries.
func (a *Adapter) TxFrom(ctx context.Context) (*framework.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*framework.Tx)
	return tx, ok
}

type txKey struct{}

// Handle makes a listener whose effect happens exactly once.
func (a *Adapter) Handle(fn func(ctx context.Context, tx *framework.Tx, env outbox.Envelope) error) outbox.Listener {
	return sqltx.HandleWith(a, a.TxFrom, func(ctx context.Context, tx *framework.Tx) error {
		return a.sql.Complete(ctx, tx.SQLTx())
	}, fn)
}

var (
	errNoStock  = errors.New("out of stock")
	orderPlaced = outbox.NewTopic[string]("Order", "OrderPlaced")
)

func TestAdapterOfAnotherLibrary(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, err := sqltx.Open("sqlite", fmt.Sprintf("file:%s/shop.db?_pragma=busy_timeout(5000)&_txlock=immediate", t.TempDir()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(ctx, pool))
	ob, err := outbox.New(outbox.Config{DB: pool, Store: store})
	require.NoError(t, err)
	a, err := New(framework.New(pool), ob.Writer())
	require.NoError(t, err)

	require.NoError(t, outbox.InTx(ctx, a, func(ctx context.Context) error {
		tx, ok := a.TxFrom(ctx)
		require.True(t, ok)
		_, err := a.Write(ctx, tx, orderPlaced.Envelope("o-1", "tea"))
		require.NoError(t, err)
		require.ErrorIs(t, outbox.InTx(ctx, a, func(ctx context.Context) error {
			_, err := ob.Writer().Write(ctx, orderPlaced.Envelope("o-2", "mate"))
			require.NoError(t, err)
			return errNoStock
		}), errNoStock)
		return nil
	}))
	outboxtest.AssertPending(t, store, pool, outboxtest.Event{Type: "OrderPlaced", Aggregate: "Order", AggregateID: "o-1", Payload: "tea"})

	var handled []string
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", a.Handle(func(_ context.Context, _ *framework.Tx, env outbox.Envelope) error {
		handled = append(handled, env.AggregateID)
		return nil
	}))))
	require.NoError(t, ob.Start(ctx))
	require.Eventually(t, func() bool {
		st, err := ob.Stats(ctx)
		return err == nil && st.Due == 0
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, ob.Close(ctx))
	require.Equal(t, []string{"o-1"}, handled)
}
