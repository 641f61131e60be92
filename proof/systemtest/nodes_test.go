package systemtest

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// logWriter writes a test's log.
type logWriter struct{ t testing.TB }

func (w logWriter) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte("event is dead")) { // some are to die
		w.t.Log(string(bytes.TrimSpace(line)))
	}
	return len(line), nil
}

// testLog writes warnings and errors into the test's log, which go test shows when the
// test fails.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// start starts a node. It is closed before its pool.
func (s *shop) start(t testing.TB, name string, cfg outbox.Config) *outbox.Outbox {
	t.Helper()
	ob, err := outbox.New(cfg)
	require.NoError(t, err)
	require.NoError(t, ob.Register(s.listener(name)))
	t.Cleanup(func() { _ = ob.Close(context.Background()) })
	require.NoError(t, ob.Start(t.Context()))
	return ob
}

// sqlNode starts a node on database/sql.
func (s *shop) sqlNode(t testing.TB, name, driver, dsn string, store *sqlstore.Store, change ...func(cfg *outbox.Config)) *node {
	t.Helper()
	db, err := sqltx.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(10)
	cfg := s.config(t, name)
	cfg.DB, cfg.Store = db, store
	for _, c := range change {
		c(&cfg)
	}
	n := &node{name: name, Outbox: s.start(t, name, cfg)}
	a, err := sqltx.New(db, n.Writer())
	require.NoError(t, err)
	insert := "INSERT INTO orders (id) VALUES (?)"
	if store.Dialect() == "postgres" {
		insert = "INSERT INTO orders (id) VALUES ($1)"
	}
	n.place = func(ctx context.Context, env outbox.Envelope, then func() error) error {
		return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insert, env.EventID); err != nil {
				return err
			}
			if _, err := a.Write(ctx, tx, env); err != nil || then == nil {
				return err
			}
			return then()
		})
	}
	return n
}

// pgxNode starts a node on pgx without database/sql.
func (s *shop) pgxNode(t testing.TB, name, dsn string, change ...func(cfg *outbox.Config)) *node {
	t.Helper()
	pool, err := outboxpgx.Open(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := outboxpgx.DB(pool)
	t.Cleanup(func() { _ = db.Close() })
	cfg := s.config(t, name)
	cfg.DB, cfg.Store = db, sqlstore.Postgres()
	for _, c := range change {
		c(&cfg)
	}
	n := &node{name: name, Outbox: s.start(t, name, cfg)}
	a, err := outboxpgx.New(pool, n.Writer())
	require.NoError(t, err)
	n.place = func(ctx context.Context, env outbox.Envelope, then func() error) error {
		return outbox.InTx(ctx, a, func(ctx context.Context) error {
			tx, _ := a.TxFrom(ctx)
			if err := placeWithPgx(ctx, a, tx, env); err != nil || then == nil {
				return err
			}
			return then()
		})
	}
	return n
}

func placeWithPgx(ctx context.Context, a *outboxpgx.Adapter, tx pgx.Tx, env outbox.Envelope) error {
	if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", env.EventID); err != nil {
		return err
	}
	_, err := a.Write(ctx, tx, env)
	return err
}
