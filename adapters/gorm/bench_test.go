package outboxgorm_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
)

// nothing is a driver whose transactions do nothing, so that the benchmarks
// show the adapter and not a database.
type nothing struct{ adaptertest.NoDriver }

func (nothing) Connect(context.Context) (driver.Conn, error) { return nothing{}, nil }

func (nothing) PrepareContext(context.Context, string) (driver.Stmt, error) { return stmt{}, nil }

type stmt struct{}

func (stmt) Close() error                               { return nil }
func (stmt) NumInput() int                              { return -1 }
func (stmt) Exec([]driver.Value) (driver.Result, error) { return driver.RowsAffected(1), nil }
func (stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

func openNothing(b *testing.B, followed, prepare bool) (*gorm.DB, *sql.DB) {
	b.Helper()
	open := sql.OpenDB
	if followed {
		open = sqltx.OpenDB
	}
	pool := open(nothing{})
	b.Cleanup(func() { _ = pool.Close() })
	db, err := gorm.Open(mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true}),
		&gorm.Config{Logger: logger.Discard, PrepareStmt: prepare})
	require.NoError(b, err)
	return db, pool
}

// eachSetup runs fn on a plain and on a followed pool, on statements that are not
// prepared and that are.
func eachSetup(b *testing.B, fn func(b *testing.B, db *gorm.DB)) {
	for _, setup := range []struct {
		name              string
		followed, prepare bool
	}{
		{"plain", false, false},
		{"followed", true, false},
		{"plain/PrepareStmt", false, true},
		{"followed/PrepareStmt", true, true},
	} {
		b.Run(setup.name, func(b *testing.B) {
			db, _ := openNothing(b, setup.followed, setup.prepare)
			b.ReportAllocs()
			fn(b, db)
		})
	}
}

func BenchmarkStatement(b *testing.B) {
	eachSetup(b, func(b *testing.B, db *gorm.DB) {
		for b.Loop() {
			require.NoError(b, db.Exec("UPDATE orders SET name = ? WHERE id = ?", "a", 1).Error)
		}
	})
}

func BenchmarkStatementInTransaction(b *testing.B) {
	eachSetup(b, func(b *testing.B, db *gorm.DB) {
		tx := db.Begin()
		defer tx.Rollback()
		for b.Loop() {
			require.NoError(b, tx.Exec("UPDATE orders SET name = ? WHERE id = ?", "a", 1).Error)
		}
	})
}

func BenchmarkTransaction(b *testing.B) {
	eachSetup(b, func(b *testing.B, db *gorm.DB) {
		ctx, cancel := context.WithCancel(b.Context()) // as a request's is
		defer cancel()
		db = db.WithContext(ctx)
		for b.Loop() {
			require.NoError(b, db.Transaction(func(*gorm.DB) error { return nil }))
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	event := adaptertest.Event()
	// Each transaction takes a thousand events: what it costs itself is not
	// what this is about.
	const each = 1000
	b.Run("sqltx", func(b *testing.B) {
		_, pool := openNothing(b, true, false)
		writer, _ := adaptertest.WriterWithoutTable(b, pool, "mysql")
		a := adaptertest.Adapter(b, pool, writer)
		b.ReportAllocs()
		var tx *sql.Tx
		for i := 0; b.Loop(); i++ {
			var err error
			if i%each == 0 {
				if tx != nil {
					_ = tx.Rollback()
				}
				tx, err = pool.BeginTx(ctx, nil)
				require.NoError(b, err)
			}
			_, err = a.Write(ctx, tx, event)
			require.NoError(b, err)
		}
		_ = tx.Rollback()
	})
	for _, prepare := range []bool{false, true} {
		b.Run(map[bool]string{false: "gorm", true: "gorm/PrepareStmt"}[prepare], func(b *testing.B) {
			db, pool := openNothing(b, true, prepare)
			writer, _ := adaptertest.WriterWithoutTable(b, pool, "mysql")
			a, err := outboxgorm.New(db, writer)
			require.NoError(b, err)
			b.ReportAllocs()
			var tx *gorm.DB
			for i := 0; b.Loop(); i++ {
				if i%each == 0 {
					if tx != nil {
						tx.Rollback()
					}
					tx = db.WithContext(ctx).Begin()
					require.NoError(b, tx.Error)
				}
				_, err := a.Write(ctx, tx, event)
				require.NoError(b, err)
			}
			tx.Rollback()
		})
	}
}

// BenchmarkTransactionOfOneWrite is all of it: BEGIN, an event, COMMIT.
func BenchmarkTransactionOfOneWrite(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	event := adaptertest.Event()
	b.Run("sqltx", func(b *testing.B) {
		_, pool := openNothing(b, true, false)
		writer, _ := adaptertest.WriterWithoutTable(b, pool, "mysql")
		a := adaptertest.Adapter(b, pool, writer)
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.Write(ctx, tx, event)
				return err
			}))
		}
	})
	b.Run("gorm", func(b *testing.B) {
		db, pool := openNothing(b, true, false)
		writer, _ := adaptertest.WriterWithoutTable(b, pool, "mysql")
		a, err := outboxgorm.New(db, writer)
		require.NoError(b, err)
		db = db.WithContext(ctx)
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, db.Transaction(func(tx *gorm.DB) error {
				_, err := a.Write(ctx, tx, event)
				return err
			}))
		}
	})
}
