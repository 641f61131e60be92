package outboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// The example's own code: what a user would test.

type order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

func placeOrder(ctx context.Context, w *outbox.Writer, o order) error {
	_, err := w.Write(ctx, outbox.Envelope{
		EventType: "OrderPlaced", AggregateType: "Order", AggregateID: o.ID, Payload: outbox.JSON(o),
	})
	return err
}

// printT stands for the *testing.T that a test has and an example lacks.
type printT struct{ testing.TB }

func (printT) Helper()                           {}
func (printT) Context() context.Context          { return context.Background() }
func (printT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (printT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

var t printT

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func ExampleStore() {
	store := outboxtest.NewStore()
	tx := outboxtest.NewScope(store.DB())
	if err := placeOrder(tx.Context(context.Background()), store.Writer(), order{ID: "o-1", Total: 42}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("before the commit:", len(store.Rows()))
	check(tx.Commit())
	for _, row := range store.Rows() {
		fmt.Println("after it:", row.Status, row.Envelope.EventType, row.Envelope.Payload)
	}
	// Output:
	// before the commit: 0
	// after it: NEW OrderPlaced {"id":"o-1","total":42}
}

func ExampleScope() {
	store := outboxtest.NewStore()
	writer := store.Writer()
	tx := outboxtest.NewScope(store.DB())
	ctx := tx.Context(context.Background())

	check(placeOrder(ctx, writer, order{ID: "o-1"}))
	check(tx.Savepoint("before the second"))
	check(placeOrder(ctx, writer, order{ID: "o-2"}))
	check(tx.RollbackTo("before the second"))
	check(tx.Commit())

	for _, env := range tx.Emitted() {
		fmt.Println(env.AggregateID)
	}
	fmt.Println(placeOrder(ctx, writer, order{ID: "o-3"}))
	// Output:
	// o-1
	// outbox: no active transaction: it has ended
}

func ExampleTransactor() {
	store := outboxtest.NewStore()
	writer := store.Writer()
	begin := outboxtest.NewTransactor(store.DB())

	err := outbox.InTx(context.Background(), begin, func(ctx context.Context) error {
		if err := placeOrder(ctx, writer, order{ID: "o-1"}); err != nil {
			return err
		}
		return errors.New("out of stock")
	})
	fmt.Println(err, "-", len(store.Rows()), "rows")
	// Output:
	// out of stock - 0 rows
}

func ExampleRecorder() {
	store, recorder := outboxtest.NewStore(), outboxtest.NewRecorder()
	ob, err := outbox.New(outbox.Config{
		Store: store, DB: store.DB(),
		Hooks: []outbox.WriterHook{recorder.Hook()},
	})
	if err != nil {
		fmt.Println(err)
	}
	// The first delivery of each event asks for it again, the second succeeds.
	check(ob.Register(outbox.On("Order", "OrderPlaced", recorder.Listener(
		outboxtest.Answer{Err: outbox.Defer(time.Millisecond)},
	))))
	check(ob.Start(context.Background()))

	tx := outboxtest.NewScope(store.DB())
	check(placeOrder(tx.Context(context.Background()), ob.Writer(), order{ID: "o-1"}))
	check(tx.Commit())

	for _, d := range recorder.WaitDeliveries(t, 2) {
		fmt.Println(d.Envelope.AggregateID, d.Answer.Err)
	}
	fmt.Println("committed:", len(recorder.Committed()))
	check(ob.Close(context.Background()))
	// Output:
	// o-1 deferred for 1ms
	// o-1 <nil>
	// committed: 1
}

func ExampleDrain() {
	store := outboxtest.NewStore()
	tx := outboxtest.NewScope(store.DB())
	ctx := tx.Context(context.Background())
	check(placeOrder(ctx, store.Writer(), order{ID: "o-1", Total: 42}))
	check(placeOrder(ctx, store.Writer(), order{ID: "o-2", Total: -1}))
	check(tx.Commit())

	listener := outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		o, err := outbox.Decode[order](env)
		if err == nil && o.Total < 0 {
			err = outbox.Dead(errors.New("negative total"))
		}
		return err
	})
	for _, d := range outboxtest.Drain(t, outbox.Config{Store: store, Logger: quiet},
		outbox.On("Order", "OrderPlaced", listener)) {
		fmt.Println(d.Envelope.AggregateID, d.Status, d.Err)
	}
	// Output:
	// o-1 DONE <nil>
	// o-2 DEAD negative total
}

func ExampleAssertEmitted() {
	store := outboxtest.NewStore()
	writer := store.Writer()
	tx := outboxtest.NewScope(store.DB())
	check(placeOrder(tx.Context(context.Background()), writer, order{ID: "o-1", Total: 42}))
	check(placeOrder(tx.Context(context.Background()), writer, order{ID: "o-2", Total: 7}))
	check(tx.Commit())

	outboxtest.AssertEmitted(t, store, // t is the test's; this one prints
		outboxtest.Event{Type: "OrderPlaced", AggregateID: "o-1", Payload: order{ID: "o-1", Total: 42}},
		outboxtest.Event{Type: "OrderPlaced", AggregateID: "o-2", Payload: map[string]any{"total": 8, "id": "o-2"}},
	)
	// Output:
	// the emitted events are not those expected (- expected, + emitted):
	//   Order/OrderPlaced o-1 {"id":"o-1","total":42}
	// - */OrderPlaced o-2 {"id":"o-2","total":8}
	// + Order/OrderPlaced o-2 {"id":"o-2","total":7}
}

// AssertPending reads any store, such as one on the database of an integration test.
func ExampleAssertPending() {
	store := outboxtest.NewStore()
	tx := outboxtest.NewScope(store.DB())
	check(placeOrder(tx.Context(context.Background()), store.Writer(), order{ID: "o-1", Total: 42}))
	check(tx.Commit())
	fmt.Println(outboxtest.AssertPending(t, store, store.DB(), outboxtest.Event{Type: "OrderPlaced", AggregateID: "o-1"}))
	// Output:
	// true
}

// What is rolled back is not emitted.
func ExampleAssertNothingEmitted() {
	store := outboxtest.NewStore()
	tx := outboxtest.NewScope(store.DB())
	check(placeOrder(tx.Context(context.Background()), store.Writer(), order{ID: "o-1"}))
	check(tx.Rollback(nil))
	fmt.Println(outboxtest.AssertNothingEmitted(t, store))
	// Output:
	// true
}
