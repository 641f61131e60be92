package sqltx_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Drivers() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			conformance.RunAdapter(t, func(t *testing.T) conformance.AdapterHarness {
				db := testdb.Open(t, target).DB
				return conformance.AdapterHarness{
					DB: db, Dialect: conformance.Dialect(target.Kind),
					New: func(writer *outbox.Writer, allowUnmanaged bool) conformance.AdapterUnderTest {
						var opts []sqltx.Option
						if allowUnmanaged {
							opts = append(opts, sqltx.AllowUnmanaged())
						}
						return subject{Adapter: sqltx.New(db, writer, opts...), db: db}
					},
				}
			})
		})
	}
}

// subject hands the adapter out as the suite wants it.
type subject struct {
	*sqltx.Adapter
	db *sql.DB
}

func (s subject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error {
	return s.Adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sqltx.Tx) error { return fn(ctx, tx) })
}

func (s subject) BeginTx(ctx context.Context) (any, error)   { return s.Adapter.BeginTx(ctx, nil) }
func (s subject) Commit(tx any) error                        { return tx.(sqltx.AnyTx).Commit() }
func (s subject) Rollback(tx any) error                      { return tx.(sqltx.AnyTx).Rollback() }
func (s subject) Unmanaged(ctx context.Context) (any, error) { return s.db.BeginTx(ctx, nil) }

func (s subject) Exec(ctx context.Context, tx any, query string) error {
	_, err := tx.(sqltx.AnyTx).ExecContext(ctx, query)
	return err
}

func (s subject) Write(ctx context.Context, tx any, env outbox.Envelope) (string, error) {
	return s.Adapter.Write(ctx, tx.(sqltx.AnyTx), env)
}

func (s subject) WriteAll(ctx context.Context, tx any, envs []outbox.Envelope) ([]string, error) {
	return s.Adapter.WriteAll(ctx, tx.(sqltx.AnyTx), envs)
}
