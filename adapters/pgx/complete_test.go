package outboxpgx_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestHandleCompletesTheEvent(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	pool := newPool(t, db.DSN, follow)
	db.DB = closing(t, outboxpgx.DB(pool))
	adaptertest.HandleCompletes(t, db, func(w *outbox.Writer, fn func(func(string) error) error) (outbox.Transactor, outbox.Listener) {
		a, err := outboxpgx.New(pool, w)
		require.NoError(t, err)
		require.Nil(t, a.Handle(nil))
		return a, a.Handle(func(ctx context.Context, tx pgx.Tx, _ outbox.Envelope) error {
			return fn(func(query string) error {
				_, err := tx.Exec(ctx, query)
				return err
			})
		})
	})
}
