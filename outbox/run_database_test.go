package outbox_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// A service may start before its database.
func TestRunWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		faulty, set := db.Faulty(t)
		set(testdb.Away)
		book := &logbook{}
		delivered := make(chan string, 1)
		ob, err := outbox.New(outbox.Config{DB: faulty.DB, Store: store, Logger: slog.New(book), Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: 50 * time.Millisecond}}})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			delivered <- env.AggregateID
			return nil
		}))))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- ob.Run(ctx) }()
		require.Eventually(t, func() bool { return len(book.about("the database cannot be reached")) > 0 }, time.Minute, time.Millisecond)
		require.Empty(t, book.about("outbox: started"))

		set(testdb.Working)
		_, err = ob.Writer().WriteUnmanaged(t.Context(), db.DB, []outbox.Envelope{{EventType: "Said", AggregateID: "a", Payload: outbox.RawJSON(`1`)}})
		require.NoError(t, err)
		require.Equal(t, "a", receive(t, delivered))
		cancel()
		require.NoError(t, receive(t, ended))
	})
}

// What no later attempt mends ends Run at once, and so does the end of its context.
func TestRunDoesNotWaitForWhatIsWrong(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet})
		require.NoError(t, err)
		require.ErrorContains(t, ob.Run(t.Context()), "outbox_event", "there are no tables")

		faulty, set := db.Faulty(t)
		set(testdb.Away)
		book := &logbook{}
		ob, err = outbox.New(outbox.Config{DB: faulty.DB, Store: store, Logger: slog.New(book)})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ob.Run(ctx) }()
		require.Eventually(t, func() bool { return len(book.all()) > 0 }, time.Minute, time.Millisecond)
		cancel()
		require.Error(t, receive(t, ended))
		require.NoError(t, ob.Close(context.Background()))
	})
}
