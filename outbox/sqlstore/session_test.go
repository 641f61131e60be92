package sqlstore_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// levels is a pool that keeps which statements ran outside of a transaction, and the levels
// of transactions.
type levels struct {
	*sql.DB
	plain  []string
	levels []sql.IsolationLevel
}

func (l *levels) ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error) {
	l.plain = append(l.plain, q)
	return l.DB.ExecContext(ctx, q, args...)
}

func (l *levels) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	l.plain = append(l.plain, q)
	return l.DB.QueryContext(ctx, q, args...)
}

func (l *levels) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	level := sql.LevelDefault
	if opts != nil {
		level = opts.Isolation
	}
	l.levels = append(l.levels, level)
	return l.DB.BeginTx(ctx, opts)
}

// A pool whose transactions are stricter by default gets the store's own statements as read
// committed; any other pool gets no transaction that it did not get before.
func TestOwnStatementsAreReadCommitted(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Servers(), func(t *testing.T, db *testdb.DB) {
		require.NoError(t, storeFor(db.Kind).CreateSchema(t.Context(), db.DB))
		setting := map[testdb.Kind]string{testdb.Postgres: "default_transaction_isolation", testdb.MySQL: "transaction_isolation"}[db.Kind]
		if db.IsMariaDB(t) {
			setting = "tx_isolation" // its name before 11.1
		}
		for level, strict := range map[string]bool{"serializable": true, "read committed": false} {
			value := strings.ReplaceAll(level, " ", "%20")
			if db.Kind == testdb.MySQL {
				value = "%27" + strings.ToUpper(strings.ReplaceAll(level, " ", "-")) + "%27"
			}
			pool := &levels{DB: db.Reopen(t, testdb.Param(setting, value)).DB}
			given := storeFor(db.Kind)
			store := given.BindPool(pool, given)
			require.NoError(t, store.Check(t.Context(), pool, true))
			pool.plain, pool.levels = nil, nil
			envs := events(level, 3)
			tx, err := pool.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, store.Insert(t.Context(), tx, envs, "", time.Time{}))
			require.NoError(t, tx.Commit())
			_, err = store.Poll(t.Context(), pool, outbox.PollQuery{Now: someTime, Limit: 10, LeaseDuration: time.Minute})
			require.NoError(t, err)
			_, err = store.NextDue(t.Context(), pool, someTime)
			require.NoError(t, err)
			_, err = store.Mark(t.Context(), pool, outbox.OutcomeDone, []outbox.Mark{{EventID: envs[0].EventID}})
			require.NoError(t, err)
			ranges, err := store.Ranges(t.Context(), pool)
			require.NoError(t, err)
			set, err := store.SetRanges(t.Context(), pool, ranges.Version, ranges.Now.Add(time.Minute), outbox.Ranges{Version: level})
			require.NoError(t, err)
			require.True(t, set)
			if strict {
				require.Empty(t, pool.plain)
				require.Equal(t, []sql.IsolationLevel{sql.LevelReadCommitted}, slices.Compact(pool.levels))
			} else {
				require.Empty(t, pool.levels)
			}
			_, err = db.ExecContext(t.Context(), "DELETE FROM outbox_event")
			require.NoError(t, err)
		}
	})
}

// On PostgreSQL an outbox leaves no predicate lock behind, which would make the server refuse
// transactions of the application.
func TestNoPredicateLocksOfTheOutbox(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, adaptertest.Main()[0])
	require.NoError(t, storeFor(db.Kind).CreateSchema(t.Context(), db.DB))
	open, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable}) // locks stay until it ends
	require.NoError(t, err)
	defer func() { _ = open.Rollback() }()
	_, err = open.ExecContext(t.Context(), "SELECT COUNT(*) FROM pg_class")
	require.NoError(t, err)

	pool := db.Reopen(t, testdb.Param("default_transaction_isolation", "serializable"))
	delivered := make(chan struct{}, 100)
	ob, err := outbox.New(outbox.Config{DB: pool.DB, Store: storeFor(db.Kind), Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: 20 * time.Millisecond}}})
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
		delivered <- struct{}{}
		return nil
	}))))
	require.NoError(t, ob.Start(t.Context()))
	a := adaptertest.Adapter(t, pool.DB, ob.Writer())
	for _, delay := range []time.Duration{0, 50 * time.Millisecond} { // by both paths
		require.NoError(t, a.RunInTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx *sql.Tx) error {
			event := adaptertest.Event()
			event.DeliverAfter = delay
			_, err := a.Write(ctx, tx, event)
			return err
		}))
		<-delivered
	}
	require.NoError(t, ob.Close(t.Context()))
	locks := -1
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM pg_locks WHERE mode = 'SIReadLock' AND relation IN ('outbox_event'::regclass, 'outbox_event_control'::regclass)").Scan(&locks))
	require.Zero(t, locks)
}
