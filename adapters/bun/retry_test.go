package outboxbun_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/txretry"
)

// bun begins and ends the transaction itself.
func TestAConflictRunsRunInTxAgain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, target *testdb.DB) {
		target, opts := adaptertest.Conflicting(t, target)
		db := bun.NewDB(target.DB, map[testdb.Kind]schema.Dialect{
			testdb.Postgres: pgdialect.New(), testdb.MySQL: mysqldialect.New(), testdb.SQLite: sqlitedialect.New(),
		}[target.Kind])
		calls := 0
		require.NoError(t, txretry.Do(t.Context(), 1, func(ctx context.Context) error {
			return db.RunInTx(ctx, opts, func(ctx context.Context, tx bun.Tx) error {
				if calls++; calls == 2 {
					return nil
				}
				return adaptertest.Conflict(t, target, func(query string) error {
					_, err := tx.ExecContext(ctx, query)
					return err
				})
			})
		}))
		require.Equal(t, 2, calls)
	})
}
