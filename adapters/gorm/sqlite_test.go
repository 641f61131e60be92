package outboxgorm_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

const (
	onceInsert = "INSERT INTO orders (id) VALUES (1)"
	endsSQLite = "INSERT OR ROLLBACK INTO orders (id) VALUES (2), (1)"
)

// Once SQLite has ended the transaction, a savepoint begins another one.
func TestNoSavepointAfterSQLiteEndedTheTransaction(t *testing.T) {
	t.Parallel()
	for name, savepoint := range map[string]func(f *fixture, ctx context.Context, tx *gorm.DB) error{
		// GORM's dialector for SQLite does not look at what SAVEPOINT returns.
		"SavePoint": func(_ *fixture, _ context.Context, tx *gorm.DB) error {
			require.NoError(t, tx.SavePoint("a").Error)
			return outbox.ErrNoTransaction
		},
		"nested": func(f *fixture, _ context.Context, tx *gorm.DB) error {
			return tx.Transaction(func(tx *gorm.DB) error { return f.refused(tx) })
		},
		"Exec": func(_ *fixture, _ context.Context, tx *gorm.DB) error { return tx.Exec("savepoint a").Error },
		"Raw": func(_ *fixture, _ context.Context, tx *gorm.DB) error {
			return tx.Raw("SAVEPOINT a").Scan(new(int)).Error
		},
		"Row": func(_ *fixture, _ context.Context, tx *gorm.DB) error {
			return tx.Raw("SAVEPOINT a").Row().Scan(new(int))
		},
		"transactor": func(f *fixture, ctx context.Context, _ *gorm.DB) error {
			return outbox.InTx(ctx, f.a, func(context.Context) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, targetsOf(testdb.SQLite), func(t *testing.T, f *fixture) {
				require.ErrorContains(t, outbox.InTx(t.Context(), f.a, func(ctx context.Context) error {
					tx, ok := f.a.TxFrom(ctx)
					require.True(t, ok)
					f.write(tx)
					require.NoError(t, tx.Exec(onceInsert).Error)
					require.Error(t, tx.Exec(endsSQLite).Error)
					require.ErrorIs(t, savepoint(f, ctx, tx), outbox.ErrNoTransaction)
					sqlTx, err := outboxgorm.SQLTx(tx)
					require.NoError(t, err)
					_, err = sqlTx.ExecContext(ctx, "BEGIN")
					require.NoError(t, err, "no savepoint has begun another transaction")
					require.ErrorIs(t, f.refused(tx), outbox.ErrNoTransaction)
					return nil
				}), "UNIQUE")
				f.want(0, "rollback")
			})
		})
	}
}

// GORM reads the rows of Raw after its callbacks, and those of Rows and Row are
// the caller's.
func TestSQLiteIsAskedAfterErrorsOfRows(t *testing.T) {
	t.Parallel()
	const returning = endsSQLite + " RETURNING id"
	for name, fail := range map[string]func(tx *gorm.DB) error{
		"Scan": func(tx *gorm.DB) error { return tx.Raw(returning).Scan(&[]uint{}).Error },
		"Find": func(tx *gorm.DB) error { return tx.Raw(returning).Find(&[]order{}).Error },
		"Row":  func(tx *gorm.DB) error { return tx.Raw(returning).Row().Scan(new(uint)) },
		"Rows": func(tx *gorm.DB) error {
			rows, err := tx.Raw(returning).Rows()
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
			}
			return rows.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, targetsOf(testdb.SQLite), func(t *testing.T, f *fixture) {
				tx := f.Begin()
				f.write(tx)
				require.NoError(t, tx.Exec(onceInsert).Error)
				require.Error(t, fail(tx.Session(&gorm.Session{NewDB: true})))
				require.ErrorIs(t, f.refused(tx), outbox.ErrNoTransaction)
				require.Error(t, tx.Commit().Error)
				f.want(0, "rollback")

				// A statement that went well changes nothing.
				require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
					require.NoError(t, tx.Raw(onceInsert+" RETURNING id").Scan(&[]uint{}).Error)
					f.write(tx)
					return nil
				}))
				require.Equal(t, 1, adaptertest.Written(t, f.pool.DB))
				require.EqualValues(t, 1, f.orders())
			})
		})
	}
}
