package outboxgorm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/utils/tests"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestStore(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Drivers(), func(t *testing.T, pool *testdb.DB) {
		db := open(t, pool, &gorm.Config{})
		store, err := outboxgorm.Store(db, sqlstore.WithTable("events"))
		require.NoError(t, err)
		require.Equal(t, string(pool.Kind), store.Dialect())
		require.Equal(t, "events", store.Table())
		require.NoError(t, store.CreateSchema(t.Context(), pool.DB))
		ob, err := outbox.New(outbox.Config{DB: pool.DB, Store: store, Mode: outbox.WriterOnly{}})
		require.NoError(t, err)
		writer := ob.Writer()
		a, err := outboxgorm.New(db, writer)
		require.NoError(t, err)
		require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
			_, err := a.WriteAll(t.Context(), tx, []outbox.Envelope{adaptertest.Event(), adaptertest.Event()})
			return err
		}))
		var n int64
		require.NoError(t, db.Table("events").Count(&n).Error)
		require.EqualValues(t, 2, n)
	})
}

func TestStoreOfWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	db, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{})
	require.NoError(t, err)
	_, err = outboxgorm.Store(db)
	require.ErrorContains(t, err, `has the dialect "dummy"; known are postgres, mysql and sqlite`)
	_, err = outboxgorm.Store(nil)
	require.ErrorContains(t, err, "is nil")
	_, err = outboxgorm.Store(onSQLite(t, &gorm.Config{}).DB, sqlstore.WithTable("no; table"))
	require.Error(t, err)
}
