package outboxgorm_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// resolved is a main database with two others that dbresolver knows: a replica,
// and "orders", which the model order and its name lead to.
type resolved struct {
	*gorm.DB
	main, replica, orders *testdb.DB
}

func eachResolved(t *testing.T, fn func(t *testing.T, r resolved)) {
	t.Helper()
	for _, prepare := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "PrepareStmt"}[prepare], func(t *testing.T) {
			t.Parallel()
			for _, target := range adaptertest.Main() {
				t.Run(target.Name, func(t *testing.T) {
					t.Parallel()
					fn(t, newResolved(t, target, prepare))
				})
			}
		})
	}
}

func newResolved(t *testing.T, target testdb.Target, prepare bool) resolved {
	t.Helper()
	r := resolved{main: testdb.Open(t, target), replica: testdb.Open(t, target), orders: testdb.Open(t, target)}
	for _, pool := range []*testdb.DB{r.main, r.replica, r.orders} {
		require.NoError(t, open(t, pool, &gorm.Config{}).AutoMigrate(&order{}, &invoice{}))
	}
	adaptertest.Exec(t, r.replica.DB, "INSERT INTO invoices (id) VALUES (77)")
	r.DB = open(t, r.main, &gorm.Config{PrepareStmt: prepare})
	resolver := dbresolver.
		Register(dbresolver.Config{Replicas: []gorm.Dialector{dialector(target.Kind, r.replica.DB)}}).
		Register(dbresolver.Config{Sources: []gorm.Dialector{dialector(target.Kind, r.orders.DB)}}, &order{}, "orders")
	require.NoError(t, r.Use(resolver))
	return r
}

// invoice is a model of the main database.
type invoice struct {
	ID   uint
	hook func(tx *gorm.DB) error
}

func (i *invoice) AfterCreate(tx *gorm.DB) error {
	if i.hook == nil {
		return nil
	}
	return i.hook(tx)
}

func TestResolverMainDatabase(t *testing.T) {
	t.Parallel()
	eachResolved(t, func(t *testing.T, r resolved) {
		writer, record := adaptertest.Writer(t, r.main.DB, string(r.main.Kind))
		a, err := outboxgorm.New(r.DB, writer)
		require.NoError(t, err)
		write := func(tx *gorm.DB) error {
			_, err := a.Write(t.Context(), tx, adaptertest.Event())
			return err
		}
		for range 2 {
			require.NoError(t, r.Transaction(write))
			require.NoError(t, r.Create(&invoice{hook: write}).Error)
			require.NoError(t, r.Clauses(dbresolver.Write).Transaction(write))
		}
		require.NoError(t, outbox.InTx(t.Context(), a, func(ctx context.Context) error {
			tx, ok := a.TxFrom(ctx)
			require.True(t, ok)
			var n int64
			require.NoError(t, tx.Model(&invoice{}).Count(&n).Error)
			require.EqualValues(t, 2, n, "a transaction reads where it writes")
			return write(tx)
		}))
		require.Equal(t, 7, adaptertest.Written(t, r.main.DB))
		require.Eventually(t, func() bool { return len(record.Outcomes()) == 7 }, 20*time.Second, time.Millisecond)

		var ids []uint
		require.NoError(t, r.Model(&invoice{}).Pluck("id", &ids).Error)
		require.Equal(t, []uint{77}, ids, "reads outside of a transaction go to the replica")

		require.ErrorIs(t, r.Clauses(dbresolver.Use("orders")).Transaction(write), outbox.ErrForeignTransaction)
		require.ErrorIs(t, r.Create(&order{hook: write}).Error, outbox.ErrForeignTransaction)
	})
}

// Handles with prepared statements share what dbresolver chooses from.
func TestResolverFromManyGoroutines(t *testing.T) {
	t.Parallel()
	pool, replica := testdb.Open(t, sqliteTarget()), testdb.Open(t, sqliteTarget())
	writer, record := adaptertest.Writer(t, pool.DB, string(pool.Kind))
	db := open(t, pool, &gorm.Config{})
	early := db.Session(&gorm.Session{PrepareStmt: true})
	require.NoError(t, db.AutoMigrate(&invoice{}))
	require.NoError(t, open(t, replica, &gorm.Config{}).AutoMigrate(&invoice{}))
	require.NoError(t, db.Use(dbresolver.Register(dbresolver.Config{Replicas: []gorm.Dialector{dialector(pool.Kind, replica.DB)}})))
	a := mustNew(t, db, writer)
	var wg sync.WaitGroup
	for _, handle := range []*gorm.DB{db, early, db.Session(&gorm.Session{PrepareStmt: true}), early.WithContext(t.Context())} {
		for range 3 {
			wg.Go(func() {
				var n int64
				if err := handle.Model(&invoice{}).Count(&n).Error; err != nil {
					t.Errorf("Count: %v", err)
				}
				if err := handle.Create(&invoice{hook: func(tx *gorm.DB) error {
					_, err := a.Write(t.Context(), tx, adaptertest.Event())
					return err
				}}).Error; err != nil {
					t.Errorf("Create: %v", err)
				}
			})
		}
	}
	wg.Wait()
	require.Eventually(t, func() bool { return len(record.Outcomes()) == 12 }, 20*time.Second, time.Millisecond)
	require.Equal(t, 12, adaptertest.Written(t, pool.DB))
}

// A dbresolver that has sources for some models only leaves the others where they
// are.
func TestResolverOfSomeModels(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		f := onSQLite(t, &gorm.Config{})
		db := open(t, f.pool, &gorm.Config{PrepareStmt: prepare})
		other := testdb.Open(t, sqliteTarget())
		require.NoError(t, db.Use(dbresolver.Register(dbresolver.Config{
			Sources: []gorm.Dialector{dialector(other.Kind, other.DB)},
		}, &invoice{})))
		f.a = mustNew(t, db, f.writer)
		require.NoError(t, db.Create(&order{hook: func(tx *gorm.DB) error {
			f.write(tx)
			return nil
		}}).Error)
		f.want(1, "commit")
	}
}

func TestResolverOtherSource(t *testing.T) {
	t.Parallel()
	eachResolved(t, func(t *testing.T, r resolved) {
		writer, record := adaptertest.Writer(t, r.orders.DB, string(r.orders.Kind))
		_, err := outboxgorm.New(r.DB, writer)
		require.ErrorContains(t, err, "another pool")
		bound := r.Clauses(dbresolver.Use("orders"))
		a, err := outboxgorm.New(bound, writer)
		require.NoError(t, err)
		require.NoError(t, bound.Create(&order{}).Error)
		require.NotEqual(t, r.orders.DB, mustDB(t, bound), "GORM has unbound the handle, which the adapter does not mind")
		write := func(tx *gorm.DB) error {
			_, err := a.Write(t.Context(), tx, adaptertest.Event())
			return err
		}
		for range 2 {
			require.NoError(t, r.Create(&order{hook: write}).Error)
			require.NoError(t, r.Clauses(dbresolver.Use("orders")).Transaction(write))
			require.NoError(t, outbox.InTx(t.Context(), a, func(ctx context.Context) error {
				tx, ok := a.TxFrom(ctx)
				require.True(t, ok)
				return tx.Create(&order{hook: write}).Error
			}))
		}
		require.Equal(t, 6, adaptertest.Written(t, r.orders.DB))
		require.Eventually(t, func() bool { return len(record.Outcomes()) == 6 }, 20*time.Second, time.Millisecond)
		require.ErrorIs(t, r.Transaction(write), outbox.ErrForeignTransaction)
	})
}

func mustDB(t *testing.T, db *gorm.DB) *sql.DB {
	t.Helper()
	pool, err := db.DB()
	require.NoError(t, err)
	return pool
}
