package outboxpgx_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
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

func TestInboxTakesAPgxTransaction(t *testing.T) {
	t.Parallel()
	db, ctx := testdb.Open(t, testdb.Main()[0]), t.Context()
	pool := newPool(t, db.DSN, follow)
	box, err := inbox.New(inbox.Config{Dialect: inbox.Postgres})
	require.NoError(t, err)
	require.NoError(t, box.CreateSchema(ctx, db.DB))
	calls := 0
	once := func() (first bool) {
		require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			first, err = box.Once(ctx, outboxpgx.Execer(tx), "billing", "m-1", func(context.Context) error {
				calls++
				return nil
			})
			return err
		}))
		return first
	}
	require.True(t, once())
	require.False(t, once())
	require.Equal(t, 1, calls)
}
