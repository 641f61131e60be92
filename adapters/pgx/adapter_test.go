package outboxpgx_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t), newFixture(t)
	_, err := outboxpgx.New(nil, nil)
	require.ErrorContains(t, err, "outboxpgx.New pool is nil")
	require.ErrorContains(t, err, "writer is nil")
	_, err = outboxpgx.New(f.pool, other.writer)
	require.ErrorContains(t, err, "another pool")
	require.ErrorContains(t, err, "outboxpgx.DB(pool)")

	plain := newPool(t, f.plain.DSN)
	writer, _ := adaptertest.WriterWithoutTable(t, closing(t, outboxpgx.DB(plain)), "postgres")
	_, err = outboxpgx.New(plain, writer)
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.ErrorContains(t, err, "outboxpgx.Open")
	require.ErrorContains(t, err, "outboxpgx.Follow(config.ConnConfig)")
	require.NotContains(t, err.Error(), "AllowUnmanaged")
	_, err = outboxpgx.New(plain, writer, outboxpgx.AllowUnmanaged())
	require.ErrorContains(t, err, "AllowUnmanaged is for transactions of other pools")
	require.Nil(t, outboxpgx.DB(nil))
}

func TestOpen(t *testing.T) {
	t.Parallel()
	plain := testdb.Open(t, testdb.Main()[0])
	pool, err := outboxpgx.Open(t.Context(), plain.DSN)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := closing(t, outboxpgx.DB(pool))
	require.Same(t, db, outboxpgx.DB(pool))
	writer, _ := adaptertest.Writer(t, db, "postgres")
	_, err = outboxpgx.New(pool, writer)
	require.NoError(t, err)
	require.Zero(t, pool.Stat().AcquiredConns(), "an idle DB keeps no connection")
	_, err = outboxpgx.Open(t.Context(), "postgres://:bad:port")
	require.Error(t, err)
}

// tracer is one of the user's.
type tracer struct{ started, ended []string }

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.started = append(r.started, data.SQL)
	return context.WithValue(ctx, r, "span")
}

func (r *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	r.ended = append(r.ended, data.CommandTag.String()+" "+ctx.Value(r).(string))
}

func TestFollowKeepsTheUsersTracer(t *testing.T) {
	t.Parallel()
	own := &tracer{}
	f := newFixture(t, func(config *pgxpool.Config) {
		config.ConnConfig.Tracer = own
		outboxpgx.Follow(config.ConnConfig)
		once := config.ConnConfig.Tracer
		outboxpgx.Follow(config.ConnConfig)
		require.Same(t, once, config.ConnConfig.Tracer)
	})
	own.started, own.ended = nil, nil
	require.NoError(t, f.begin(t).Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit")
	require.Equal(t, []string{"begin", "INSERT INTO written (id) VALUES ($1)", "commit"}, own.started)
	require.Equal(t, []string{"BEGIN span", "INSERT 0 1 span", "COMMIT span"}, own.ended)
}

func TestFollowWithinAMultitracerOfTheUsers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(config *pgxpool.Config) {
		outboxpgx.Follow(config.ConnConfig)
		config.ConnConfig.Tracer = multitracer.New(&tracer{}, config.ConnConfig.Tracer)
	})
	require.NoError(t, f.begin(t).Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit")
}

// database/sql and pgx write to one outbox.
func TestDBIsAFollowedPool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, err := sqltx.New(f.db, f.writer)
	require.NoError(t, err)
	require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	f.rec.EventuallyInAnyOrder(t, "commit")
	require.NoError(t, f.begin(t).Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit", "commit")
}

// hidden is a transaction of a mock, which has no connection.
type hidden struct{ pgx.Tx }

func (hidden) Conn() *pgx.Conn { return nil }

func TestWriteRefusesWhatIsNoTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, tc := range map[string]struct {
		tx   pgx.Tx
		want error
	}{
		"nil":            {nil, outbox.ErrNoTransaction},
		"nil pointer":    {(*pgxpool.Tx)(nil), outbox.ErrNoTransaction},
		"no connection":  {hidden{}, outbox.ErrUnmanagedTransaction},
		"another's pool": {newFixture(t).begin(t), outbox.ErrForeignTransaction},
	} {
		_, err := f.a.Write(t.Context(), tc.tx, adaptertest.Event())
		require.ErrorIs(t, err, tc.want, name)
		_, err = f.a.WithTx(t.Context(), tc.tx)
		require.ErrorIs(t, err, tc.want, name)
	}
}

func TestBeginOptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for level, want := range map[sql.IsolationLevel]string{
		sql.LevelDefault: "read committed", sql.LevelReadUncommitted: "read uncommitted", sql.LevelReadCommitted: "read committed",
		sql.LevelRepeatableRead: "repeatable read", sql.LevelSnapshot: "repeatable read", sql.LevelSerializable: "serializable",
	} {
		ctx, tx, err := f.a.Begin(t.Context(), &sql.TxOptions{Isolation: level, ReadOnly: true})
		require.NoError(t, err)
		inner, ok := f.a.TxFrom(ctx)
		require.True(t, ok)
		var isolation, readOnly string
		require.NoError(t, inner.QueryRow(ctx, "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')").Scan(&isolation, &readOnly))
		require.Equal(t, []string{want, "on"}, []string{isolation, readOnly})
		require.NoError(t, tx.Rollback())
		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
		require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
		_, ok = f.a.TxFrom(ctx)
		require.False(t, ok)
	}
	_, _, err := f.a.Begin(t.Context(), &sql.TxOptions{Isolation: sql.LevelLinearizable})
	require.ErrorContains(t, err, "no isolation level Linearizable")
}

func TestTransactorWhoseContextEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	txCtx, tx, err := f.a.Begin(ctx, nil)
	require.NoError(t, err)
	_, err = f.writer.Write(txCtx, adaptertest.Event())
	require.NoError(t, err)
	cancel()
	_, _, err = f.a.Begin(txCtx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, tx.Commit(), context.Canceled)
	require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
	require.Zero(t, f.pool.Stat().AcquiredConns())
}

// The caller ends the pgx.Tx of a transaction that Begin began.
func TestTransactorWhoseTransactionTheCallerEnded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	err := outbox.InTx(t.Context(), f.a, func(ctx context.Context) error {
		_, err := f.writer.Write(ctx, adaptertest.Event())
		require.NoError(t, err)
		tx, _ := f.a.TxFrom(ctx)
		return tx.Commit(ctx)
	})
	require.ErrorIs(t, err, sql.ErrTxDone)
	f.rec.EventuallyInAnyOrder(t, "commit")
}
