package outboxgorm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

// Where a callback is registered decides whether GORM's transaction is still open.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		var place struct{ err, failure error }
		write := func(tx *gorm.DB) {
			_, place.err = f.a.Write(t.Context(), tx, adaptertest.Event())
			_ = tx.AddError(place.err)
			_ = tx.AddError(place.failure)
		}
		const commit = "gorm:commit_or_rollback_transaction"
		require.NoError(t, f.Callback().Create().After("gorm:create").Before(commit).Register("outbox", write))
		require.NoError(t, f.Create(&order{Name: "a"}).Error)
		f.want(1, "commit")

		place.failure = errTest
		require.ErrorIs(t, f.Create(&order{Name: "b"}).Error, errTest)
		f.want(1, "commit", "rollback")
		require.EqualValues(t, 1, f.orders(), "the row is rolled back with its event")

		// Behind the commit the error says why there is no transaction.
		place.failure = nil
		require.NoError(t, f.Callback().Create().Remove("outbox"))
		require.NoError(t, f.Callback().Create().After("gorm:create").Register("late", write))
		err := f.Create(&order{Name: "c"}).Error
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorContains(t, err, `.Before("gorm:commit_or_rollback_transaction")`)
		f.want(1, "commit", "rollback")

		// In a transaction of the caller's the place does not matter.
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error { return tx.Create(&order{Name: "d"}).Error }))
		f.want(2, "commit", "rollback", "commit")
	})
}
