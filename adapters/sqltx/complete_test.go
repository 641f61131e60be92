package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// ledgerNode is one of several processes that deliver from a table into a ledger.
func ledgerNode(t *testing.T, db *testdb.DB, store outbox.Store, mode outbox.Mode, seed uint64) (*outbox.Outbox, *sqltx.Adapter) {
	t.Helper()
	ob, err := outbox.New(outbox.Config{
		DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler), Mode: mode,
		RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, 20*time.Millisecond),
	})
	require.NoError(t, err)
	a, err := sqltx.New(db.DB, ob.Writer())
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(seed, seed))
	chances := make(chan int)
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case chances <- random.IntN(10):
			case <-ended:
				return
			}
		}
	}()
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", a.Handle(func(ctx context.Context, tx *sql.Tx, env outbox.Envelope) error {
		// The id is one of the outbox's, a ULID.
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger (event_id) VALUES ('%s')", env.EventID)); err != nil {
			return err
		}
		if <-chances == 0 {
			return errors.New("failed after its effect")
		}
		return nil
	}))))
	require.NoError(t, ob.Start(t.Context()))
	t.Cleanup(func() {
		_ = ob.Close(context.WithoutCancel(t.Context()))
		close(ended)
	})
	return ob, a
}

// Two nodes deliver into a ledger. Listeners fail after their effect, one node loses
// the answers to its COMMITs, and leases are taken away from the nodes all the time,
// so that both deliver the same event at once. Each event is in the ledger once.
func TestEachEventHasItsEffectOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		const events = 60
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		adaptertest.Exec(t, db.DB, "CREATE TABLE ledger (event_id VARCHAR(64) NOT NULL)")
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		mode := outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{MaxAttempts: 1_000_000},
			Poll:     outbox.PollOptions{Interval: 5 * time.Millisecond, BatchSize: 10},
		}
		other := db
		if db.Kind != testdb.SQLite {
			other, _ = db.CutCommits(t)
		}
		_, a := ledgerNode(t, db, store, mode, seed)
		_, _ = ledgerNode(t, other, store, mode, seed+1)
		for range events / 10 {
			envs := make([]outbox.Envelope, 10)
			for i := range envs {
				envs[i] = event()
			}
			require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.WriteAll(ctx, tx, envs)
				return err
			}))
		}
		deadline := time.Now().Add(3 * time.Minute)
		for left := events; left > 0; {
			require.True(t, time.Now().Before(deadline), "%d events are not delivered", left)
			_, err := db.ExecContext(t.Context(), "UPDATE outbox_event SET locked_by = NULL, locked_at = NULL WHERE status IN (0, 2)")
			if err != nil && db.Kind != testdb.MySQL { // there it may be the victim of a deadlock
				require.NoError(t, err)
			}
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE status <> 1").Scan(&left))
		}
		var effects, different int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*), COUNT(DISTINCT event_id) FROM ledger").Scan(&effects, &different))
		require.Equal(t, events, different)
		require.Equal(t, events, effects)
	})
}

// A listener that leaves its transaction open has not completed its event: the retry
// waits for the row, and takes effect unless the transaction commits.
func TestTransactionThatEndsAfterItsListener(t *testing.T) {
	t.Parallel()
	// On SQLite the open transaction holds up every other write.
	testdb.Each(t, testdb.Servers(), func(t *testing.T, plain *testdb.DB) {
		db := plain.Via(t, sqltx.Open)
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		a, err := sqltx.New(db.DB, ob.Writer())
		require.NoError(t, err)
		calls, open := make(chan *sql.Tx, 10), true
		require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(ctx context.Context, _ outbox.Envelope) error {
			tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
			require.NoError(t, err)
			require.NoError(t, a.Complete(ctx, tx))
			defer func() { calls <- tx }()
			if open {
				open = false
				return nil
			}
			return tx.Commit()
		}))))
		require.NoError(t, ob.Start(t.Context()))
		t.Cleanup(func() { _ = ob.Close(context.WithoutCancel(t.Context())) })
		var id string
		require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) (err error) {
			id, err = a.Write(ctx, tx, event())
			return err
		}))
		require.NoError(t, (<-calls).Rollback())
		<-calls // it comes again
		require.Eventually(t, func() bool {
			var status int
			query := fmt.Sprintf("SELECT status FROM outbox_event WHERE event_id = '%s'", id)
			require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&status))
			return status == 1
		}, 20*time.Second, time.Millisecond)
	})
}

// In the modes with an order, an event that Handle completes follows one with another
// listener. On SQLite the outcome of that one cannot be stored while Handle's transaction is
// open, so Handle waits before. Each event is delivered once.
func TestHandleWaitsForTheOutcomesBefore(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"by key": outbox.OrderedByKey{}, "ordered": outbox.Ordered{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
				const pairs = 20
				store, err := sqlstore.Detect(t.Context(), db.DB, sqlstore.WithKeyIndex())
				require.NoError(t, err)
				require.NoError(t, store.CreateSchema(t.Context(), db.DB))
				ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler), Mode: mode})
				require.NoError(t, err)
				a, err := sqltx.New(db.DB, ob.Writer())
				require.NoError(t, err)
				var calls, early atomic.Int64
				require.NoError(t, ob.Register(outbox.On("Order", "Packed", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
					calls.Add(1)
					return nil
				}))))
				require.NoError(t, ob.Register(outbox.On("Order", "Sent", a.Handle(func(ctx context.Context, tx *sql.Tx, env outbox.Envelope) error {
					calls.Add(1)
					var n int64
					// The id is one of the outbox's, a ULID.
					err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM outbox_event WHERE status <> 1 AND event_id < '%s'", env.EventID)).Scan(&n)
					early.Add(n)
					return err
				}))))
				var envs []outbox.Envelope
				for range pairs {
					for _, eventType := range []outbox.EventType{"Packed", "Sent"} {
						envs = append(envs, outbox.Envelope{AggregateType: "Order", AggregateID: "1", EventType: eventType, Payload: outbox.JSON(1)})
					}
				}
				require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
					_, err := a.WriteAll(ctx, tx, envs)
					return err
				}))
				require.NoError(t, ob.Start(t.Context()))
				require.Eventually(t, func() bool {
					var n int
					return db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE status = 1").Scan(&n) == nil && n == 2*pairs
				}, time.Minute, 5*time.Millisecond)
				require.NoError(t, ob.Close(context.Background()))
				require.EqualValues(t, 2*pairs, calls.Load(), "deliveries")
				require.Zero(t, early.Load(), "events that were not done when a later one was handled")
			})
		})
	}
}
