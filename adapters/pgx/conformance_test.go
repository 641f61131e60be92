package outboxpgx_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
)

// Code that knows only pgx, in each exec mode.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"cache_statement": pgx.QueryExecModeCacheStatement,
		"exec":            pgx.QueryExecModeExec,
		"simple_protocol": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.RunTap(t, func(t *testing.T) conformance.AdapterHarness {
				h := harness(t, mode, func(s subject) conformance.AdapterUnderTest { return s })
				h.FrameworkSavepoints = true // pgx leaves them open when their context has ended
				return h
			})
		})
	}
}

// The adapter's own Begin.
func TestBeginConformance(t *testing.T) {
	t.Parallel()
	conformance.RunTap(t, func(t *testing.T) conformance.AdapterHarness {
		return harness(t, pgx.QueryExecModeCacheStatement, func(s subject) conformance.AdapterUnderTest { return transactorSubject{s} })
	})
}

func harness(t *testing.T, mode pgx.QueryExecMode, of func(s subject) conformance.AdapterUnderTest) conformance.AdapterHarness {
	t.Helper()
	plain := testdb.Open(t, testdb.Main()[0])
	pool := newPool(t, plain.DSN, follow, func(config *pgxpool.Config) { config.ConnConfig.DefaultQueryExecMode = mode })
	unfollowed := newPool(t, plain.DSN)
	return conformance.AdapterHarness{
		DB: closing(t, outboxpgx.DB(pool)), Pool: &limited{t: t, pool: pool}, Dialect: conformance.Postgres,
		OwnContext: true, SeesEnd: true,
		New: func(writer *outbox.Writer, allowUnmanaged bool) conformance.AdapterUnderTest {
			var opts []outboxpgx.Option
			if allowUnmanaged {
				opts = append(opts, outboxpgx.AllowUnmanaged())
			}
			a, err := outboxpgx.New(pool, writer, opts...)
			require.NoError(t, err)
			return of(subject{Adapter: a, pool: pool, plain: unfollowed})
		},
	}
}

// limited takes connections from the pool to limit it.
type limited struct {
	t    *testing.T
	pool *pgxpool.Pool
	held int32
}

func (l *limited) SetMaxOpenConns(n int) {
	for ; l.held < l.pool.Config().MaxConns-int32(n); l.held++ {
		conn, err := l.pool.Acquire(l.t.Context())
		require.NoError(l.t, err)
		l.t.Cleanup(conn.Release)
	}
}

// Stats says that a call waits when the pool is exhausted, for pgx does not count
// them: the suite's next step has the same result a moment earlier.
func (l *limited) Stats() sql.DBStats {
	stat := l.pool.Stat()
	stats := sql.DBStats{InUse: int(stat.AcquiredConns() - l.held)}
	if stat.AcquiredConns() == stat.MaxConns() {
		stats.WaitCount = 1
	}
	return stats
}

// subject hands the adapter out as the suite wants it.
type subject struct {
	*outboxpgx.Adapter
	pool, plain *pgxpool.Pool
}

// RunInTx is BeginFunc of pgx, also for nested transactions.
func (s subject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error {
	var on interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	} = s.pool
	if outer, ok := s.TxFrom(ctx); ok {
		on = outer
	}
	return pgx.BeginFunc(ctx, on, func(tx pgx.Tx) error {
		ctx, err := s.WithTx(ctx, tx)
		if err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

func (s subject) BeginTx(ctx context.Context) (any, error) { return s.pool.Begin(ctx) }
func (s subject) Commit(tx any) error                      { return tx.(pgx.Tx).Commit(context.Background()) }

func (s subject) Rollback(tx any) error                      { return tx.(pgx.Tx).Rollback(context.Background()) }
func (s subject) Unmanaged(ctx context.Context) (any, error) { return s.plain.Begin(ctx) }

func (s subject) Exec(ctx context.Context, tx any, query string) error {
	_, err := tx.(pgx.Tx).Exec(ctx, query)
	return err
}

func (s subject) Write(ctx context.Context, tx any, env outbox.Envelope) (string, error) {
	return s.Adapter.Write(ctx, tx.(pgx.Tx), env)
}

func (s subject) WriteAll(ctx context.Context, tx any, envs []outbox.Envelope) ([]string, error) {
	return s.Adapter.WriteAll(ctx, tx.(pgx.Tx), envs)
}

func (s subject) AfterCommit(ctx context.Context, tx any, fn func(ctx context.Context)) error {
	return s.Adapter.AfterCommit(ctx, tx.(pgx.Tx), fn)
}

func (s subject) Cancel(ctx context.Context, tx any, which outbox.Waiting) (outbox.TakenBack, error) {
	return s.Adapter.Cancel(ctx, tx.(pgx.Tx), which)
}

func (s subject) Reschedule(ctx context.Context, tx any, which outbox.Waiting, at time.Time) (outbox.TakenBack, error) {
	return s.Adapter.Reschedule(ctx, tx.(pgx.Tx), which, at)
}

func (s subject) Replace(ctx context.Context, tx any, eventID string, with outbox.Replacement) (outbox.TakenBack, error) {
	return s.Adapter.Replace(ctx, tx.(pgx.Tx), eventID, with)
}

var _ conformance.AdapterThatTakesBack = subject{}

func (s subject) AfterRollback(ctx context.Context, tx any, fn func(ctx context.Context, cause error)) error {
	return s.Adapter.AfterRollback(ctx, tx.(pgx.Tx), fn)
}

// transactorSubject is code on the outbox's own transactions.
type transactorSubject struct{ subject }

func (s transactorSubject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error {
	return outbox.InTx(ctx, s, func(ctx context.Context) error {
		tx, _ := s.TxFrom(ctx)
		return fn(ctx, tx)
	})
}
