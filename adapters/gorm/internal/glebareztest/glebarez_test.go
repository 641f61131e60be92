package glebareztest_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestTransactions(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		db, err := gorm.Open(sqlite.Open("file:"+filepath.Join(t.TempDir(), "test.db")+"?_pragma=foreign_keys(1)"),
			&gorm.Config{Logger: logger.Discard, PrepareStmt: prepare})
		require.NoError(t, err)
		require.NoError(t, db.Use(outboxgorm.Plugin{}))
		pool, err := db.DB()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		store, err := outboxgorm.Store(db)
		require.NoError(t, err)
		require.Equal(t, "sqlite", store.Dialect())
		require.NoError(t, store.CreateSchema(t.Context(), pool))

		rec := new(record)
		ob, err := outbox.New(outbox.Config{DB: pool, Store: store, Mode: outbox.WriterOnly{}, Hooks: []outbox.WriterHook{{
			AfterCommit:   func(context.Context, []outbox.Envelope) { rec.add("commit") },
			AfterRollback: func(context.Context, []outbox.Envelope, error) { rec.add("rollback") },
		}}})
		require.NoError(t, err)
		writer := ob.Writer()
		a, err := outboxgorm.New(db, writer)
		require.NoError(t, err)
		write := func(tx *gorm.DB) error {
			_, err := a.Write(t.Context(), tx, outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.JSON(1)})
			return err
		}

		require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
			require.NoError(t, write(tx))
			require.Error(t, tx.Transaction(func(tx *gorm.DB) error {
				require.NoError(t, write(tx))
				return errors.New("no")
			}))
			return nil
		}))
		rec.want(t, []string{"rollback", "commit"})
		var rows int64
		require.NoError(t, db.Table(store.Table()).Count(&rows).Error)
		require.EqualValues(t, 1, rows)

		// COMMIT that SQLite refuses is rolled back, by its driver's error.
		require.NoError(t, db.Exec("CREATE TABLE parent (id INTEGER PRIMARY KEY)").Error)
		require.NoError(t, db.Exec("CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)").Error)
		tx := db.Begin()
		require.NoError(t, write(tx))
		require.NoError(t, tx.Exec("INSERT INTO child (id) VALUES (7)").Error)
		err = tx.Commit().Error
		require.Error(t, err)
		require.NotErrorIs(t, err, outbox.ErrOutcomeUnknown)
		rec.want(t, []string{"rollback", "commit", "rollback"})

		// The driver leaves the transaction open; the tap has rolled it back.
		require.NoError(t, db.Transaction(write))
		rec.want(t, []string{"rollback", "commit", "rollback", "commit"})
		require.NoError(t, db.Table(store.Table()).Count(&rows).Error)
		require.EqualValues(t, 2, rows)
	}
}

// record notes what the writer's hooks get.
type record struct {
	mu   sync.Mutex
	ends []string
}

func (r *record) add(end string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = append(r.ends, end)
}

func (r *record) want(t *testing.T, ends []string) {
	t.Helper()
	got := func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(r.ends)
	}
	require.Eventually(t, func() bool { return len(got()) >= len(ends) }, 20*time.Second, time.Millisecond)
	require.Equal(t, ends, got())
}
