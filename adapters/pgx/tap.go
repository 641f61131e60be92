package outboxpgx

import (
	"context"
	"database/sql"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// tap is the tracer of a followed configuration. The tap passes the calls for a connection to the
// connection's [conn].
type tap struct {
	mu  sync.Mutex
	dbs map[*pgxpool.Pool]*sql.DB // see DB
}

var (
	_ pgx.QueryTracer       = (*tap)(nil)
	_ pgx.BatchTracer       = (*tap)(nil)
	_ pgx.PrepareTracer     = (*tap)(nil)
	_ pgx.CopyFromTracer    = (*tap)(nil)
	_ pgxpool.AcquireTracer = (*tap)(nil)
	_ pgxpool.ReleaseTracer = (*tap)(nil)
)

// customData is the key of a connection's conn in its custom data.
const customData = "github.com/outboxkit/outbox-go/adapters/pgx"

// connOf returns the tap's conn for a connection: nil for a connection that is not followed.
func connOf(pg *pgx.Conn) *conn {
	c, _ := pg.PgConn().CustomData()[customData].(*conn)
	return c
}

func (t *tap) conn(pg *pgx.Conn) *conn {
	c := connOf(pg)
	if c == nil {
		c = &conn{tap: t, pg: pg}
		pg.PgConn().CustomData()[customData] = c
	}
	return c
}

// TraceQueryStart implements [pgx.QueryTracer].
func (t *tap) TraceQueryStart(ctx context.Context, pg *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return t.conn(pg).start(ctx, data.SQL)
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (t *tap) TraceQueryEnd(ctx context.Context, pg *pgx.Conn, data pgx.TraceQueryEndData) {
	t.conn(pg).end(ctx, data.CommandTag.String(), data.Err)
}

// TraceBatchStart implements [pgx.BatchTracer].
func (t *tap) TraceBatchStart(ctx context.Context, pg *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	return t.conn(pg).startBatch(ctx, data.Batch)
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (t *tap) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if b := batchOf(ctx); b != nil {
		b.answered(data.SQL, data.Args, data.CommandTag.String(), data.Err)
	}
}

// TraceBatchEnd implements [pgx.BatchTracer].
func (t *tap) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	if b := batchOf(ctx); b != nil {
		b.end(data.Err)
	}
}

// TracePrepareStart implements [pgx.PrepareTracer]. A statement that is prepared under a name is
// executed by this name: names of statements that control transactions are remembered.
func (t *tap) TracePrepareStart(ctx context.Context, pg *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	if data.Name != "" && data.Name != data.SQL {
		t.conn(pg).prepared(data.Name, data.SQL)
	}
	return ctx
}

// TracePrepareEnd implements [pgx.PrepareTracer].
func (t *tap) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// TraceCopyFromStart implements [pgx.CopyFromTracer].
func (t *tap) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return ctx
}

// TraceCopyFromEnd implements [pgx.CopyFromTracer].
func (t *tap) TraceCopyFromEnd(_ context.Context, pg *pgx.Conn, data pgx.TraceCopyFromEndData) {
	if tx := t.conn(pg).tx.Load(); tx != nil {
		tx.ObserveError(data.Err)
	}
}

// TraceAcquireStart implements [pgxpool.AcquireTracer].
func (t *tap) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return ctx
}

// TraceAcquireEnd implements [pgxpool.AcquireTracer].
func (t *tap) TraceAcquireEnd(_ context.Context, pool *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	if data.Conn == nil {
		return
	}
	if c := t.conn(data.Conn); c.pool != pool {
		c.pool = pool
	}
}

// TraceRelease implements [pgxpool.ReleaseTracer].
func (t *tap) TraceRelease(_ *pgxpool.Pool, data pgxpool.TraceReleaseData) {
	t.conn(data.Conn).release()
}

// transaction is a transaction of a followed connection.
type transaction struct {
	*txscope.Scope
	// implicit: PostgreSQL made the transaction for a batch, and the transaction ends with the
	// batch.
	implicit bool
	// outcome may be read when the transaction has ended.
	outcome txscope.End
}
