package outboxpgx_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// queriesOnly is a tracer of a library that passes on the calls for queries, with another
// context, and no others.
type queriesOnly struct{ inner pgx.QueryTracer }

type spanKey struct{}

func (t queriesOnly) TraceQueryStart(ctx context.Context, c *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(t.inner.TraceQueryStart(ctx, c, data), spanKey{}, "span")
}

func (t queriesOnly) TraceQueryEnd(ctx context.Context, c *pgx.Conn, data pgx.TraceQueryEndData) {
	t.inner.TraceQueryEnd(ctx, c, data)
}

// around passes on batches, too, as dd-trace-go does.
type around struct{ queriesOnly }

func (t around) TraceBatchStart(ctx context.Context, c *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	return context.WithValue(t.inner.(pgx.BatchTracer).TraceBatchStart(ctx, c, data), spanKey{}, "span")
}

func (t around) TraceBatchQuery(ctx context.Context, c *pgx.Conn, data pgx.TraceBatchQueryData) {
	t.inner.(pgx.BatchTracer).TraceBatchQuery(ctx, c, data)
}

func (t around) TraceBatchEnd(ctx context.Context, c *pgx.Conn, data pgx.TraceBatchEndData) {
	t.inner.(pgx.BatchTracer).TraceBatchEnd(ctx, c, data)
}

// silent traces nothing.
type silent struct{}

func (silent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (silent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestTracerAroundTheOutboxs(t *testing.T) {
	t.Parallel()
	put := func(wrap func(pgx.QueryTracer) pgx.QueryTracer) func(*pgxpool.Config) {
		return func(config *pgxpool.Config) { config.ConnConfig.Tracer = wrap(config.ConnConfig.Tracer) }
	}
	wrap := put(func(inner pgx.QueryTracer) pgx.QueryTracer { return around{queriesOnly{inner}} })
	for name, setUp := range map[string][]func(*pgxpool.Config){
		"around":             {follow, wrap},
		"around two":         {put(func(pgx.QueryTracer) pgx.QueryTracer { return silent{} }), follow, wrap},
		"in a multitracer":   {follow, put(func(inner pgx.QueryTracer) pgx.QueryTracer { return multitracer.New(silent{}, inner) }), wrap},
		"followed again":     {follow, wrap, follow},
		"replaced, followed": {follow, put(func(pgx.QueryTracer) pgx.QueryTracer { return silent{} }), follow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := testdb.Open(t, testdb.Main()[0])
			f := fixture{plain: plain, pool: newPool(t, plain.DSN, setUp...)}
			f.db = closing(t, outboxpgx.DB(f.pool))
			f.writer, f.rec = adaptertest.Writer(t, f.db, "postgres")
			var err error
			f.a, err = outboxpgx.New(f.pool, f.writer)
			require.NoError(t, err)

			tx := f.begin(t)
			run(t, tx, "SAVEPOINT s")
			f.write(t, tx)
			run(t, tx, "ROLLBACK TO s")
			f.rec.EventuallyInAnyOrder(t, "rollback")
			require.NoError(t, tx.Commit(t.Context()))
			require.NoError(t, f.pool.SendBatch(t.Context(), queue(t, f)).Close())
			f.rec.EventuallyInAnyOrder(t, "rollback", "commit", "commit")
		})
	}
}

func TestTracerThatHidesTheOutboxs(t *testing.T) {
	t.Parallel()
	plain := testdb.Open(t, testdb.Main()[0])
	for name, tracer := range map[string]func(pgx.QueryTracer) pgx.QueryTracer{
		"replaced":     func(pgx.QueryTracer) pgx.QueryTracer { return silent{} },
		"queries only": func(inner pgx.QueryTracer) pgx.QueryTracer { return queriesOnly{inner} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, plain.DSN, follow, func(config *pgxpool.Config) { config.ConnConfig.Tracer = tracer(config.ConnConfig.Tracer) })
			writer, _ := adaptertest.WriterWithoutTable(t, closing(t, outboxpgx.DB(pool)), "postgres")
			_, err := outboxpgx.New(pool, writer)
			require.ErrorContains(t, err, "does not pass on the calls")
		})
	}
}

// Without a database New refuses nothing that may be right.
func TestTracerAroundTheOutboxsWithoutADatabase(t *testing.T) {
	t.Parallel()
	pool := newPool(t, "postgres://postgres@127.0.0.1:1/none?connect_timeout=1", follow, func(config *pgxpool.Config) {
		config.ConnConfig.Tracer = around{queriesOnly{config.ConnConfig.Tracer}}
	})
	writer, _ := adaptertest.WriterWithoutTable(t, closing(t, outboxpgx.DB(pool)), "postgres")
	_, err := outboxpgx.New(pool, writer)
	require.NoError(t, err)
}
