package outboxgorm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// connectionID asks the server which connection a statement runs on.
var connectionID = map[testdb.Kind]string{
	testdb.Postgres: "SELECT pg_backend_pid()",
	testdb.MySQL:    "SELECT connection_id()",
}

func TestConnection(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		require.NoError(t, outboxgorm.Connection(f.DB, func(conn *gorm.DB) error {
			var ids []int
			id := func(db *gorm.DB) {
				query := connectionID[f.pool.Kind]
				if query == "" {
					query = "SELECT 1"
				}
				var id int
				require.NoError(t, db.Raw(query).Scan(&id).Error)
				ids = append(ids, id)
			}
			// Another of the pool's is free, and would be the next to be used.
			other, err := f.pool.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, other.Close())

			id(conn)
			require.NoError(t, conn.Transaction(func(tx *gorm.DB) error {
				id(tx)
				f.write(tx)
				return tx.Transaction(func(tx *gorm.DB) error {
					f.write(tx)
					return nil
				})
			}))
			require.NoError(t, conn.Create(&order{hook: func(tx *gorm.DB) error {
				f.write(tx)
				return nil
			}}).Error)
			id(conn)
			tx := conn.Begin()
			id(tx)
			f.write(tx)
			require.NoError(t, tx.Rollback().Error)
			db, err := tx.DB()
			require.NoError(t, err)
			require.Same(t, f.pool.DB, db)
			for _, id := range ids {
				require.Equal(t, ids[0], id)
			}
			require.ErrorIs(t, f.refused(conn), outbox.ErrNoTransaction)
			return nil
		}))
		f.want(3, "commit", "commit", "commit", "rollback")
		require.Zero(t, f.pool.Stats().InUse)
	})
}

func TestConnectionReturnsTheFunctionsError(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	require.ErrorIs(t, outboxgorm.Connection(f.DB, func(*gorm.DB) error { return errTest }), errTest)
	require.Panics(t, func() { _ = outboxgorm.Connection(f.DB, func(*gorm.DB) error { panic("no") }) })
	require.Zero(t, f.pool.Stats().InUse)
}

func TestConnectionRefuses(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	never := func(*gorm.DB) error { panic("called") }
	require.ErrorContains(t, outboxgorm.Connection(nil, never), "is nil")
	require.ErrorContains(t, outboxgorm.Connection(openPlain(t, f.pool, &gorm.Config{}), never), "db.Use(outboxgorm.Plugin())")
}

// GORM's own goes around the plugin, and Write says so.
func TestGORMsConnectionIsUnmanaged(t *testing.T) {
	t.Parallel()
	each(t, testdb.Main(), func(t *testing.T, f *fixture) {
		require.NoError(t, f.Connection(func(conn *gorm.DB) error {
			return conn.Transaction(func(tx *gorm.DB) error {
				err := f.refused(tx)
				require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
				require.ErrorContains(t, err, "outboxgorm.Connection")
				return nil
			})
		}))
		f.want(0)
	})
}
