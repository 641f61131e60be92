package outboxpgx_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestConnectionOfNoPool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	connect := func() *pgx.Conn {
		conn, err := pgx.ConnectConfig(t.Context(), f.pool.Config().ConnConfig)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	conn := connect()
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		f.write(t, tx)
		return nil
	}))
	f.rec.EventuallyInAnyOrder(t, "commit")

	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	f.write(t, tx)
	require.NoError(t, conn.Close(t.Context())) // with the transaction open
	f.rec.EventuallyInAnyOrder(t, "commit", "rollback")
	f.written(t, 1)

	// Another configuration.
	own := f.pool.Config().ConnConfig
	own.Tracer = nil
	conn, err = pgx.ConnectConfig(t.Context(), own)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
	require.ErrorContains(t, err, "outboxpgx.Follow")
}

func TestHijackedConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acquired, err := f.pool.Acquire(t.Context())
	require.NoError(t, err)
	conn := acquired.Hijack()
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	f.write(t, tx)
	require.NoError(t, tx.Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit")
}

// Two pools with one configuration may be two databases.
func TestPoolsOfOneConfiguration(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other, err := pgxpool.NewWithConfig(t.Context(), f.pool.Config())
	require.NoError(t, err)
	t.Cleanup(other.Close)
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
	db := closing(t, outboxpgx.DB(other))
	require.NotSame(t, f.db, db)
	_, err = outboxpgx.New(other, f.writer)
	require.ErrorContains(t, err, "outboxpgx.DB(pool)")
}
