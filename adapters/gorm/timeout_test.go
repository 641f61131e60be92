package outboxgorm_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
)

// GORM 1.30 and newer gives each transaction a deadline, if Config.DefaultTransactionTimeout is set.
func TestDefaultTransactionTimeout(t *testing.T) {
	t.Parallel()
	each(t, adaptertest.Main(), func(t *testing.T, f *fixture) {
		var tx *gorm.DB
		for limit := 100 * time.Millisecond; ; limit *= 4 { // until it suffices for the write
			f.DefaultTransactionTimeout = limit
			tx = f.Begin()
			if _, err := f.a.Write(t.Context(), tx, adaptertest.Event()); err == nil {
				break
			}
			require.Less(t, limit, time.Minute)
			tx.Rollback()
		}
		require.Eventually(t, func() bool { return len(f.record.Outcomes()) == 1 }, 20*time.Second, time.Millisecond)
		require.Error(t, tx.Commit().Error)
		f.want(0, "rollback")
	})
}
