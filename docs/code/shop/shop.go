// Package shop is a database with an outbox and a table of orders, for the code of the
// pages on web frameworks.
package shop

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Order is a row of the table orders, and the payload of the order's event.
type Order struct {
	ID   string `json:"id"`
	Item string `json:"item"`
}

// OrderPlaced is the event of an order.
var OrderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

// Shop is a database with an outbox.
type Shop struct {
	DB      *sql.DB
	Store   *sqlstore.Store
	Outbox  *outbox.Outbox
	Adapter *sqltx.Adapter
}

// Open opens a new database until the test ends.
func Open(t *testing.T) *Shop {
	t.Helper()
	db, err := sqltx.Open("sqlite", "file:"+t.TempDir()+"/shop.db?_pragma=busy_timeout(5000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), db))
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id TEXT PRIMARY KEY, item TEXT NOT NULL)")
	require.NoError(t, err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	require.NoError(t, err)
	a, err := sqltx.New(db, ob.Writer())
	require.NoError(t, err)
	return &Shop{db, store, ob, a}
}

// Has fails the test unless the shop has exactly these orders, and an event for each.
func (s *Shop) Has(t *testing.T, orders ...Order) {
	t.Helper()
	var want []outboxtest.Event
	for _, o := range orders {
		want = append(want, outboxtest.Event{Type: "OrderPlaced", Aggregate: "Order", AggregateID: o.ID, Payload: o})
	}
	outboxtest.AssertPending(t, s.Store, s.DB, want...)
	var n int
	require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&n))
	require.Len(t, orders, n)
}
