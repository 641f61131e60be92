package outboxgorm_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestHandleCompletesTheEvent(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		adaptertest.HandleCompletes(t, db, func(w *outbox.Writer, fn func(func(string) error) error) (outbox.Transactor, outbox.Listener) {
			a := mustNew(t, open(t, db, &gorm.Config{}), w)
			return a, a.Handle(func(_ context.Context, tx *gorm.DB, _ outbox.Envelope) error {
				return fn(func(query string) error { return tx.Exec(query).Error })
			})
		})
	})
}

func TestHandleOfNothingIsNoListener(t *testing.T) {
	t.Parallel()
	require.Nil(t, onSQLite(t, &gorm.Config{}).a.Handle(nil))
}
