// Package takeback_test has the code of docs/how-to/take-back.md.
package takeback_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type shop struct {
	db *sql.DB
	a  *sqltx.Adapter
}

func open() *shop {
	db, err := sqltx.Open("sqlite", "file:/take-back?vfs=memdb&_txlock=immediate")
	check(err)
	store := sqlstore.SQLite(sqlstore.WithSearchIndex())
	check(store.CreateSchema(context.Background(), db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	check(err)
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	return &shop{db, a}
}

// order writes a reminder that is due in two days.
func (s *shop) order(ctx context.Context, order string) (reminder string) {
	check(s.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) (err error) {
		reminder, err = s.a.Write(ctx, tx, outbox.Envelope{
			EventType: "PaymentReminder", AggregateType: "Order", AggregateID: order, Payload: outbox.JSON(order),
			DeliverAfter: 48 * time.Hour,
		})
		return err
	}))
	return reminder
}

// cancelOrder cancels an order and its reminders.
func (s *shop) cancelOrder(ctx context.Context, order string) error {
	return s.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		// cancel the order in tx
		n, err := s.a.Cancel(ctx, tx, outbox.Waiting{
			Kind: outbox.EventKind{AggregateType: "Order", EventType: "PaymentReminder"}, AggregateID: order,
		})
		if err != nil {
			return err
		}
		fmt.Println(n.Changed, "cancelled,", n.InHand, "in hand")
		return nil
	})
}

// extend gives a customer another day.
func (s *shop) extend(ctx context.Context, tx *sql.Tx, reminder string, due time.Time) error {
	n, err := s.a.Reschedule(ctx, tx, outbox.Waiting{EventIDs: []string{reminder}}, due.Add(24*time.Hour))
	if err == nil && n.Changed == 0 {
		err = fmt.Errorf("the reminder %s is sent, or is being sent", reminder)
	}
	return err
}

// correct replaces what a reminder says.
func (s *shop) correct(ctx context.Context, tx *sql.Tx, reminder, text string) error {
	_, err := s.a.Replace(ctx, tx, reminder, outbox.Replacement{Payload: outbox.JSON(text)})
	return err
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	s, ctx := open(), context.Background()
	defer func() { _ = s.db.Close() }()
	reminder := s.order(ctx, "order-7")
	check(s.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		check(s.extend(ctx, tx, reminder, time.Now()))
		return s.correct(ctx, tx, reminder, "Please pay.")
	}))
	check(s.cancelOrder(ctx, "order-7"))
	// Output: 1 cancelled, 0 in hand
}
