package outboxbun_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
)

// newBun makes a bun.DB on a pool.
func newBun(db *sql.DB, kind testdb.Kind) *bun.DB {
	dialects := map[testdb.Kind]func() schema.Dialect{
		testdb.Postgres: func() schema.Dialect { return pgdialect.New() },
		testdb.MySQL:    func() schema.Dialect { return mysqldialect.New() },
		testdb.SQLite:   func() schema.Dialect { return sqlitedialect.New() },
	}
	return bun.NewDB(db, dialects[kind]())
}

// The caller's own RunInTx, BeginTx and nested RunInTx, unchanged.
func TestConformance(t *testing.T) {
	t.Parallel()
	runAdapter(t, true, func(s subject) conformance.AdapterUnderTest { return s })
}

// The adapter as the transactor of code that knows no bun.
func TestTransactorConformance(t *testing.T) {
	t.Parallel()
	runAdapter(t, false, func(s subject) conformance.AdapterUnderTest { return transactorSubject{s} })
}

func runAdapter(t *testing.T, frameworkSavepoints bool, of func(s subject) conformance.AdapterUnderTest) {
	t.Helper()
	for _, target := range adaptertest.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			conformance.RunAdapter(t, func(t *testing.T) conformance.AdapterHarness {
				db := testdb.Open(t, target)
				return conformance.AdapterHarness{
					DB: db.DB, Dialect: conformance.Dialect(target.Kind), FrameworkSavepoints: frameworkSavepoints,
					New: func(writer *outbox.Writer, allowUnmanaged bool) conformance.AdapterUnderTest {
						var opts []outboxbun.Option
						if allowUnmanaged {
							opts = append(opts, outboxbun.AllowUnmanaged())
						}
						followed := newBun(db.DB, target.Kind)
						a, err := outboxbun.New(followed, writer, opts...)
						require.NoError(t, err)
						return of(subject{Adapter: a, db: followed, plain: newBun(db.Via(t, nil).DB, target.Kind)})
					},
				}
			})
		})
	}
}

// subject hands bun and the adapter out as the suite wants it.
type subject struct {
	*outboxbun.Adapter
	db    *bun.DB
	plain *bun.DB
}

func (s subject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error {
	run := s.db.RunInTx
	if outer, ok := s.TxFrom(ctx); ok {
		run = outer.RunInTx
	}
	return run(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		inner, err := s.WithTx(ctx, tx)
		if err != nil {
			return err
		}
		return fn(inner, tx)
	})
}

func (s subject) BeginTx(ctx context.Context) (any, error)   { return s.db.BeginTx(ctx, nil) }
func (s subject) Commit(tx any) error                        { return tx.(bun.Tx).Commit() }
func (s subject) Rollback(tx any) error                      { return tx.(bun.Tx).Rollback() }
func (s subject) Unmanaged(ctx context.Context) (any, error) { return s.plain.BeginTx(ctx, nil) }

func (s subject) Exec(_ context.Context, tx any, query string) error {
	// bun gives the statements of a transaction the context of the transaction,
	// unless the caller has a better one.
	_, err := tx.(bun.Tx).Exec(query)
	return err
}

func (s subject) Write(ctx context.Context, tx any, env outbox.Envelope) (string, error) {
	return s.Adapter.Write(ctx, tx.(bun.IDB), env)
}

func (s subject) WriteAll(ctx context.Context, tx any, envs []outbox.Envelope) ([]string, error) {
	return s.Adapter.WriteAll(ctx, tx.(bun.IDB), envs)
}

func (s subject) AfterCommit(ctx context.Context, tx any, fn func(ctx context.Context)) error {
	return s.Adapter.AfterCommit(ctx, tx.(bun.IDB), fn)
}

func (s subject) Cancel(ctx context.Context, tx any, which outbox.Waiting) (outbox.TakenBack, error) {
	return s.Adapter.Cancel(ctx, tx.(bun.IDB), which)
}

func (s subject) Reschedule(ctx context.Context, tx any, which outbox.Waiting, at time.Time) (outbox.TakenBack, error) {
	return s.Adapter.Reschedule(ctx, tx.(bun.IDB), which, at)
}

func (s subject) Replace(ctx context.Context, tx any, eventID string, with outbox.Replacement) (outbox.TakenBack, error) {
	return s.Adapter.Replace(ctx, tx.(bun.IDB), eventID, with)
}

var _ conformance.AdapterThatTakesBack = subject{}

func (s subject) AfterRollback(ctx context.Context, tx any, fn func(ctx context.Context, cause error)) error {
	return s.Adapter.AfterRollback(ctx, tx.(bun.IDB), fn)
}

// transactorSubject begins what the suite runs with the transactor.
type transactorSubject struct{ subject }

func (s transactorSubject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error {
	return outbox.InTx(ctx, s.Adapter, func(ctx context.Context) error {
		tx, _ := s.TxFrom(ctx)
		return fn(ctx, tx)
	})
}
