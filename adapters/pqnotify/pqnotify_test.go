package pqnotify_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/pqnotify"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// target is one of PostgreSQL's.
func target(t testing.TB, name string) testdb.Target {
	t.Helper()
	targets := adaptertest.Drivers()
	i := slices.IndexFunc(targets, func(target testdb.Target) bool { return target.Name == name })
	require.GreaterOrEqual(t, i, 0)
	return targets[i]
}

func TestNotifier(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"postgres/pq", "postgres/pgdriver", "postgres/pgx-simple"} { // the outbox's own pool
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.RunPostgresNotifier(t, target(t, name), func(t testing.TB, _ *testdb.DB) outbox.Notifier {
				notifier, err := pqnotify.New(testdb.PostgresDSN())
				require.NoError(t, err)
				return notifier
			})
		})
	}
}

func TestWrongInput(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, target(t, "postgres/pq"))
	_, err := pqnotify.New("")
	require.ErrorContains(t, err, "pqnotify.New dsn is empty")
	_, err = pqnotify.New("postgres://%")
	require.ErrorContains(t, err, "pqnotify.New: the database's address is not valid")
	notifier, err := pqnotify.New(testdb.PostgresDSN())
	require.NoError(t, err)
	_, err = outbox.New(outbox.Config{DB: db.DB, Store: sqlstore.MySQL(), Notifier: notifier})
	require.ErrorContains(t, err, "Config.Notifier is a *pqnotify.Notifier, which is for postgres; the store is for mysql")
	require.NoError(t, db.Close())
	err = notifier.Notify(t.Context(), db, "outbox_event")
	require.ErrorContains(t, err, "pqnotify: notifying the channel of table outbox_event")
	require.ErrorContains(t, new(pqnotify.Notifier).Listen(t.Context(), db, "outbox_event", func() {}), "make one with New")
}

// A server that accepts the connection and never answers.
func TestListenEndsWithItsContextWhileItConnects(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, target(t, "postgres/pq"))
	require.NoError(t, sqlstore.Postgres().CreateSchema(t.Context(), db.DB))
	var config net.ListenConfig
	silent, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := silent.Accept(); err == nil {
			accepted <- conn
		}
	}()
	notifier, err := pqnotify.New("postgres://postgres@" + silent.Addr().String() + "/postgres?sslmode=disable")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- notifier.Listen(ctx, db, "outbox_event", func() {}) }()
	conn := <-accepted
	defer func() { _ = conn.Close() }()
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(20 * time.Second):
		t.Fatal("Listen does not end")
	}
}
