// Package uniqueevents_test has the code of docs/how-to/unique-events.md.
package uniqueevents_test

import (
	"context"
	"database/sql"
	"errors"
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
	ob *outbox.Outbox
}

func open() *shop { return openAt("unique-events") }

func openAt(name string) *shop {
	db, err := sqltx.Open("sqlite", "file:/"+name+"?vfs=memdb&_txlock=immediate")
	check(err)
	store := sqlstore.SQLite(sqlstore.WithUniqueIndex())
	check(store.CreateSchema(context.Background(), db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	return &shop{db, a, ob}
}

// paid is called for each call of a payment service, which calls again until it gets an answer.
func (s *shop) paid(ctx context.Context, payment string) error {
	return s.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.a.Write(ctx, tx, outbox.Envelope{
			EventID: "paid-" + payment, EventType: "OrderPaid", AggregateType: "Order", Payload: outbox.JSON(payment),
		})
		if errors.Is(err, outbox.ErrDuplicateEvent) {
			return nil // an earlier call has written the event
		}
		return err
	})
}

func (s *shop) importAll(ctx context.Context, tx *sql.Tx, events []outbox.Envelope) error {
	_, err := s.a.WriteAll(ctx, tx, events)
	if there := new(outbox.DuplicateEventError); errors.As(err, &there) {
		return fmt.Errorf("event %s was imported before", there.EventID)
	}
	return err
}

// changed asks for a new price list, unless one is asked for already.
func (s *shop) changed(ctx context.Context, tx *sql.Tx, customer string) (string, error) {
	return s.a.Write(ctx, tx, outbox.Envelope{
		EventType: "PricesNeeded", AggregateType: "Customer", AggregateID: customer, Payload: outbox.JSON(customer),
		UniqueKey: customer,
	})
}

// stateChanged is called with each change of an account. Listeners get the state after the last one.
func (s *shop) stateChanged(ctx context.Context, tx *sql.Tx, account string, state int) (string, error) {
	return s.a.Write(ctx, tx, outbox.Envelope{
		EventType: "AccountChanged", AggregateType: "Account", AggregateID: account, Payload: outbox.JSON(state),
		UniqueKey: account, KeepLatest: true, DeliverAfter: 5 * time.Second,
	})
}

// stateChangedInWindow lets the state wait until the window ends, however often it changes.
func (s *shop) stateChangedInWindow(ctx context.Context, tx *sql.Tx, account string, state int) (string, error) {
	const window = 10 * time.Second
	return s.a.Write(ctx, tx, outbox.Envelope{
		EventType: "AccountChanged", AggregateType: "Account", AggregateID: account, Payload: outbox.JSON(state),
		UniqueKey: account, KeepLatest: true, AvailableAt: time.Now().Truncate(window).Add(window),
	})
}

func Example_latest() {
	s, ctx := openAt("latest"), context.Background()
	var written []string
	for state, write := range []func(context.Context, *sql.Tx, string, int) (string, error){s.stateChanged, s.stateChanged, s.stateChangedInWindow} {
		check(s.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			id, err := write(ctx, tx, "a-1", state)
			written = append(written, id)
			return err
		}))
	}
	fmt.Println("the same event:", written[0] == written[1] && written[0] == written[2])
	event, err := s.ob.FindEvent(ctx, written[0])
	check(err)
	fmt.Println("state:", event.Payload)
	// Output:
	// the same event: true
	// state: 2
}

func Example() {
	s, ctx := open(), context.Background()
	check(s.paid(ctx, "p-1"))
	check(s.paid(ctx, "p-1"))
	check(s.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		fmt.Println(s.importAll(ctx, tx, []outbox.Envelope{
			{EventID: "new", EventType: "Imported", Payload: outbox.JSON(1)},
			{EventID: "paid-p-1", EventType: "Imported", Payload: outbox.JSON(2)},
		}))
		first, err := s.changed(ctx, tx, "c-1")
		check(err)
		second, err := s.changed(ctx, tx, "c-1")
		check(err)
		fmt.Println("the same event:", first == second)
		return nil
	}))
	stats, err := s.ob.Stats(ctx)
	check(err)
	fmt.Println("events:", stats.Due)
	// Output:
	// event paid-p-1 was imported before
	// the same event: true
	// events: 2
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
