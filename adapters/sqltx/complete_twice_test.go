package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Two processes that claim row after row deliver one event at once, because the first one lost its
// lease while its listener ran. Both have their effect in an open transaction when they complete
// the event: one of them commits.
func TestOfTwoDeliveriesAtOnceOneTakesEffect(t *testing.T) {
	t.Parallel()
	// On SQLite the second transaction waits for the first.
	testdb.Each(t, testdb.Servers(), func(t *testing.T, plain *testdb.DB) {
		db, ctx := plain.Via(t, sqltx.Open), t.Context()
		exec := func(query string) {
			t.Helper()
			_, err := db.ExecContext(ctx, query)
			require.NoError(t, err)
		}
		exec("CREATE TABLE ledger (process INT NOT NULL)")
		store, err := sqlstore.Detect(ctx, db.DB, sqlstore.WithTenantIndex())
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		var effects sync.WaitGroup // of both
		effects.Add(2)
		completed := make(chan error, 2)
		process := func(owner, insert string) *sqltx.Adapter {
			ob, err := outbox.New(outbox.Config{
				DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler),
				Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: 5 * time.Millisecond}, Claim: outbox.ClaimOptions{Owner: owner, TenantsInTurn: true}},
			})
			require.NoError(t, err)
			a, err := sqltx.New(db.DB, ob.Writer())
			require.NoError(t, err)
			first := true
			require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(ctx context.Context, _ outbox.Envelope) error {
				if !first {
					return errors.New("this test needs one delivery of each process")
				}
				first = false
				err := a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
					if _, err := tx.ExecContext(ctx, insert); err != nil {
						return err
					}
					effects.Done()
					effects.Wait()
					return a.Complete(ctx, tx)
				})
				completed <- err
				return err
			}))))
			require.NoError(t, ob.Start(ctx))
			t.Cleanup(func() { _ = ob.Close(context.WithoutCancel(ctx)) })
			return a
		}
		a := process("first", "INSERT INTO ledger (process) VALUES (1)")
		require.NoError(t, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := a.Write(ctx, tx, event())
			return err
		}))
		process("second", "INSERT INTO ledger (process) VALUES (2)")
		both := make(chan struct{})
		go func() { effects.Wait(); close(both) }()
		for open := true; open; {
			select {
			case <-both:
				open = false
			case <-time.After(time.Millisecond): // the first one may claim the row again
				_, err := db.ExecContext(ctx, "UPDATE outbox_event SET locked_by = NULL, locked_at = NULL WHERE status IN (0, 2) AND locked_by LIKE 'first/%'")
				if db.Kind != testdb.MySQL { // there it may be the victim of a deadlock
					require.NoError(t, err)
				}
			}
		}
		one, other := <-completed, <-completed
		if one != nil {
			one, other = other, one
		}
		require.NoError(t, one)
		require.ErrorIs(t, other, outbox.ErrLeaseLost)
		var n int
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM ledger").Scan(&n))
		require.Equal(t, 1, n)
	})
}
