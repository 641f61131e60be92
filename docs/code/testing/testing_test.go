package testing_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var quiet = slog.New(slog.DiscardHandler)

type fakeOrders struct{ err error }

func (f fakeOrders) Save(context.Context, Order) error { return f.err }

// newShop makes a shop that writes its events into a store in memory.
func newShop(t *testing.T, orders fakeOrders) (*Shop, *outboxtest.Store) {
	t.Helper()
	store := outboxtest.NewStore()
	return &Shop{tx: outboxtest.NewTransactor(store.DB()), events: store.Writer(), orders: orders}, store
}

func TestPlaceWritesTheEvent(t *testing.T) {
	shop, store := newShop(t, fakeOrders{})
	require.NoError(t, shop.Place(t.Context(), Order{ID: "o-1", Item: "tea"}))
	outboxtest.AssertEmitted(t, store, outboxtest.Event{
		Type: "OrderPlaced", Aggregate: "Order", AggregateID: "o-1", Payload: Order{ID: "o-1", Item: "tea"},
	})
}

func TestAnOrderThatIsNotSavedHasNoEvent(t *testing.T) {
	shop, store := newShop(t, fakeOrders{err: errors.New("out of stock")})
	require.Error(t, shop.Place(t.Context(), Order{ID: "o-1", Item: "tea"}))
	outboxtest.AssertNothingEmitted(t, store)
}

func TestARequestWritesTheEvent(t *testing.T) {
	shop, store := newShop(t, fakeOrders{})
	handler := httptx.Transaction(shop.tx)(shop) // as in main
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders?id=o-1&item=tea", nil))
	require.Equal(t, http.StatusCreated, answer.Code)
	outboxtest.AssertEmitted(t, store, outboxtest.Event{Type: "OrderPlaced", Aggregate: "Order", AggregateID: "o-1"})
}

func TestPlaceReportsAnUnknownOutcome(t *testing.T) {
	shop, store := newShop(t, fakeOrders{})
	tx := outboxtest.NewTransactor(store.DB())
	tx.CommitError = outbox.ErrOutcomeUnknown // as if the connection broke during COMMIT
	shop.tx = tx
	require.ErrorIs(t, shop.Place(t.Context(), Order{ID: "o-1"}), outbox.ErrOutcomeUnknown)
}

func TestTheMailIsRetriedUnlessItCannotBeSent(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		status outbox.Status
	}{
		"sent":       {nil, outbox.StatusDone},
		"no answer":  {errors.New("no answer"), outbox.StatusRetry},
		"no address": {errNoAddress, outbox.StatusDead},
	} {
		t.Run(name, func(t *testing.T) {
			shop, store := newShop(t, fakeOrders{})
			require.NoError(t, shop.Place(t.Context(), Order{ID: "o-1", Item: "tea"}))
			deliveries := outboxtest.Drain(t, outbox.Config{Store: store},
				mailListener(func(context.Context, Order, string) error { return test.answer }))
			require.Len(t, deliveries, 1)
			require.Equal(t, test.status, deliveries[0].Status)
		})
	}
}

func TestTheMailIsSentWithTheSameKeyAfterAFailure(t *testing.T) {
	shop, store := newShop(t, fakeOrders{})
	require.NoError(t, shop.Place(t.Context(), Order{ID: "o-1", Item: "tea"}))
	var keys []string
	mail := mailListener(func(_ context.Context, _ Order, key string) error {
		keys = append(keys, key)
		return errors.New("no answer")
	})
	outboxtest.Drain(t, outbox.Config{Store: store}, mail)
	later := outbox.ClockFunc(func() time.Time { return time.Now().Add(time.Hour) }) // the retry is due
	outboxtest.Drain(t, outbox.Config{Store: store, Clock: later}, mail)
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
}

func TestASecondDeliveryHasTheSameKey(t *testing.T) {
	sent := map[string]int{}
	mail := mailListener(func(_ context.Context, _ Order, key string) error {
		sent[key]++ // a mail server that knows the key sends nothing
		return nil
	})
	env := orderPlaced.Envelope("o-1", Order{ID: "o-1", Item: "tea"})
	env.EventID = "e-1"
	for range 2 {
		require.NoError(t, mail.Listener.OnEvent(t.Context(), env))
	}
	require.Equal(t, map[string]int{"e-1": 2}, sent)
}

func TestAReminderWaitsForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // hours pass at once
		store, recorder := outboxtest.NewStore(), outboxtest.NewRecorder()
		ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", recorder.Listener(
			outboxtest.Answer{Err: errors.New("no answer")}, // the first delivery fails, the second succeeds
		))))
		require.NoError(t, ob.Start(t.Context()))
		defer func() { require.NoError(t, ob.Close(context.WithoutCancel(t.Context()))) }()

		reminder := orderPlaced.Envelope("o-1", Order{ID: "o-1"})
		reminder.DeliverAfter = 24 * time.Hour
		require.NoError(t, outbox.InTx(t.Context(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
			_, err := ob.Writer().Write(ctx, reminder)
			return err
		}))
		time.Sleep(23 * time.Hour)
		require.Empty(t, recorder.Deliveries())
		time.Sleep(2 * time.Hour)
		require.Len(t, recorder.Deliveries(), 2)
	})
}

func TestOnADatabase(t *testing.T) {
	db, err := sqltx.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id TEXT, item TEXT)")
	require.NoError(t, err)
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), db))

	recorder := outboxtest.NewRecorder()
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Logger: quiet, Hooks: []outbox.WriterHook{recorder.Hook()}})
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", recorder.Listener())))
	a, err := sqltx.New(db, ob.Writer())
	require.NoError(t, err)
	shop := &Shop{tx: a, events: ob.Writer(), orders: sqlOrders{a}}

	require.NoError(t, shop.Place(t.Context(), Order{ID: "o-1", Item: "tea"}))
	want := outboxtest.Event{Type: "OrderPlaced", AggregateID: "o-1"}
	outboxtest.AssertEmitted(t, recorder, want)  // the commits that the hook saw
	outboxtest.AssertPending(t, store, db, want) // the rows that wait
	require.NoError(t, ob.Start(t.Context()))    // delivers them
	received := recorder.WaitDeliveries(t, 1)    // fails the test after ten seconds
	require.NoError(t, ob.Close(t.Context()))    // stores the outcomes
	outboxtest.AssertPending(t, store, db)       // no row waits any more
	require.Equal(t, "o-1", received[0].Envelope.AggregateID)
}

// sqlOrders are the orders in a table.
type sqlOrders struct{ a *sqltx.Adapter }

func (s sqlOrders) Save(ctx context.Context, o Order) error {
	tx, ok := s.a.TxFrom(ctx)
	if !ok {
		return outbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", o.ID, o.Item)
	return err
}
