package outboxgorm_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
)

// A pool may have sqltx's connector below the plugin, for code that knows
// nothing of GORM. The plugin's transactions are the plugin's.
func TestPoolWithAWrappedConnector(t *testing.T) {
	t.Parallel()
	each(t, append(targetsOf(testdb.Postgres)[:1], targetsOf(testdb.MySQL)...), func(t *testing.T, direct *fixture) {
		wrapped := *direct.pool
		if wrapped.Kind == testdb.Postgres {
			config, err := pgx.ParseConfig(wrapped.DSN)
			require.NoError(t, err)
			wrapped.DB = sql.OpenDB(sqltx.WrapConnector(stdlib.GetConnector(*config)))
		} else {
			config, err := mysql.ParseDSN(wrapped.DSN)
			require.NoError(t, err)
			connector, err := mysql.NewConnector(config)
			require.NoError(t, err)
			wrapped.DB = sql.OpenDB(sqltx.WrapConnector(connector))
		}
		t.Cleanup(func() { _ = wrapped.Close() })
		f := &fixture{t: t, pool: &wrapped, DB: open(t, &wrapped, &gorm.Config{PrepareStmt: direct.PrepareStmt})}
		f.writer, f.record = adaptertest.WriterWithoutTable(t, wrapped.DB, string(wrapped.Kind))
		f.a = mustNew(t, f.DB, f.writer)
		s := sqltx.New(wrapped.DB, f.writer)

		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			f.write(tx)
			require.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error {
				f.write(tx)
				return errTest
			}), errTest)
			return nil
		}))
		f.want(1, "rollback", "commit")

		plain, err := wrapped.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = s.Write(t.Context(), plain, adaptertest.Event())
		require.NoError(t, err)
		require.NoError(t, plain.Commit())
		require.Eventually(t, func() bool { return len(f.record.Outcomes()) == 3 }, 20*time.Second, time.Millisecond)
		f.want(2, "rollback", "commit", "commit")
	})
}
