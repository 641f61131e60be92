package sqlstore_test

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestTheStoreIsANotifier(t *testing.T) {
	t.Parallel()
	for _, target := range adaptertest.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			adaptertest.RunNotifier(t, target, func(_ testing.TB, db *testdb.DB) outbox.Notifier { return storeFor(db.Kind) })
		})
	}
}

// readings is a pool that waits for the test before each query.
type readings struct {
	*sql.DB
	read chan struct{}
}

func (r readings) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	r.read <- struct{}{}
	return r.DB.QueryContext(context.WithoutCancel(ctx), q, args...) // however long the test took
}

func TestListenWakesOnceForEachNotificationOfItsTable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		for _, table := range []string{"outbox_event", "Other"} {
			require.NoError(t, storeFor(db.Kind, sqlstore.WithTable(table)).CreateSchema(t.Context(), db.DB))
		}
		store, pool := storeFor(db.Kind), readings{db.Reopen(t).DB, make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		woken, ended := make(chan struct{}, 100), make(chan error, 1)
		go func() { ended <- store.Listen(ctx, pool, "Other", func() { woken <- struct{}{} }) }()
		// readTwice returns when a read has come that began after now, and what follows from it.
		readTwice := func() {
			<-pool.read
			<-pool.read
		}
		for n := range 4 {
			readTwice()
			require.Len(t, woken, n+1, "once when it has begun, and once for each notification")
			require.NoError(t, store.Notify(t.Context(), db, "outbox_event"))
			readTwice()
			require.Len(t, woken, n+1, "a notification of another table")
			require.NoError(t, store.Notify(t.Context(), db, "Other"))
		}
		cancel()
		for {
			select {
			case <-pool.read:
			case err := <-ended:
				require.ErrorIs(t, err, context.Canceled)
				return
			}
		}
	})
}

// hung is a server that no longer answers.
type hung struct{ outbox.DB }

func (hung) QueryContext(ctx context.Context, _ string, _ ...any) (*sql.Rows, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestListenEndsWhenTheServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := sqlstore.MySQL().Listen(t.Context(), hung{}, "outbox_event", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "outbox: listening for notifications on table outbox_event")
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

func TestAWrongNotifyTable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store := storeFor(db.Kind)
		for table, problem := range map[string]string{
			"missing": "create the tables with the command",
			`a"b`:     "sqlstore.WithTable",
		} {
			require.ErrorContains(t, store.Notify(t.Context(), db, table), problem)
			require.ErrorContains(t, store.Listen(t.Context(), db, table, func() { t.Error("it listens") }), problem)
		}
		other := map[testdb.Kind]*sqlstore.Store{testdb.Postgres: sqlstore.MySQL(), testdb.MySQL: sqlstore.SQLite(), testdb.SQLite: sqlstore.Postgres()}[db.Kind]
		_, err := outbox.New(outbox.Config{DB: db, Store: store, Notifier: other})
		require.ErrorContains(t, err, "Config.Notifier is a *sqlstore.Store, which is for "+other.Dialect()+"; the store is for "+store.Dialect())
	})
}
