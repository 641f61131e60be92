package outboxbun_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestHandleCompletesTheEvent(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		adaptertest.HandleCompletes(t, db, func(w *outbox.Writer, fn func(func(string) error) error) (outbox.Transactor, outbox.Listener) {
			a, err := outboxbun.New(newBun(db.DB, db.Kind), w)
			require.NoError(t, err)
			return a, a.Handle(func(ctx context.Context, tx bun.Tx, _ outbox.Envelope) error {
				return fn(func(query string) error {
					_, err := tx.ExecContext(ctx, query)
					return err
				})
			})
		})
	})
}

func TestHandleOfNothingIsNoListener(t *testing.T) {
	t.Parallel()
	require.Nil(t, onSQLite(t).a.Handle(nil))
}
