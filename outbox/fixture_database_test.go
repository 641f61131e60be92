package outbox_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// databaseEngine is an outbox on a database. It counts the deliveries of "Said", by event,
// and stops with the test.
type databaseEngine struct {
	*outbox.Outbox
	db      *testdb.DB
	adapter *sqltx.Adapter
	got     calls
	t       *testing.T
}

// onDatabase makes the tables and the outbox, which is not started. A nil listener is done
// with each event.
func onDatabase(t *testing.T, db *testdb.DB, cfg outbox.Config, listener func(env outbox.Envelope) error) *databaseEngine {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	if cfg.DB, cfg.Store = db.DB, store; cfg.Logger == nil {
		cfg.Logger = quiet
	}
	e := &databaseEngine{db: db, t: t}
	e.Outbox, err = outbox.New(cfg)
	require.NoError(t, err)
	require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		e.got.add(env.EventID)
		if listener == nil {
			return nil
		}
		return listener(env)
	}))))
	e.adapter = adaptertest.Adapter(t, db.DB, e.Writer())
	closeAfter(t, e)
	return e
}

func (e *databaseEngine) write(envs ...outbox.Envelope) {
	e.t.Helper()
	require.NoError(e.t, e.adapter.RunInTx(e.t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := e.adapter.WriteAll(ctx, tx, envs)
		return err
	}))
}

func (e *databaseEngine) exec(statement string, args ...any) {
	e.t.Helper()
	_, err := e.db.ExecContext(e.t.Context(), statement, args...)
	require.NoError(e.t, err)
}

// eventually waits until a condition holds.
func (e *databaseEngine) eventually(condition func() bool, message string) {
	e.t.Helper()
	require.Eventually(e.t, condition, 30*time.Second, 10*time.Millisecond, message)
}

// event is the row of an event; it has no id if there is none.
func (e *databaseEngine) event(id string) outbox.EventRow {
	row, _ := e.FindEvent(context.Background(), id)
	return row
}
