package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Somebody keeps a lock on one row: the outcomes of all others are stored while it
// lasts, those in the same statement and those that come later, and that of the
// row when the lock is gone. SQLite locks no rows. MySQL would break a wait for
// the lock off by itself, after 50 seconds.
func TestALockedRowDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	const others = 60
	testdb.Each(t, []testdb.Target{adaptertest.Main()[0], adaptertest.Main()[1]}, func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		locked := make(chan struct{})
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet, Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 2 * others},
		}})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
			<-locked
			return nil
		}))))
		require.NoError(t, ob.Start(t.Context()))
		closeAfter(t, ob)
		a := adaptertest.Adapter(t, db.DB, ob.Writer())
		write := func(prefix string) {
			envs := make([]outbox.Envelope, others)
			for i := range envs {
				envs[i] = said(fmt.Sprint(prefix, i))
			}
			require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.WriteAll(ctx, tx, envs)
				return err
			}))
		}
		done := func(prefix string) (n int) {
			query := "SELECT COUNT(*) FROM outbox_event WHERE status = 1 AND event_id LIKE '" + prefix + "%'"
			require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
			return n
		}
		await := func(prefix string, n int) {
			t.Helper()
			require.Eventually(t, func() bool { return done(prefix) == n }, 20*time.Second, 20*time.Millisecond, prefix)
		}
		write("first")
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var id string
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT event_id FROM outbox_event WHERE event_id = 'first30' FOR UPDATE").Scan(&id))
		close(locked)
		await("first", others-1)
		for _, prefix := range strings.Fields("second third fourth") {
			write(prefix)
			await(prefix, others)
		}
		require.Equal(t, others-1, done("first"))
		require.NoError(t, tx.Rollback())
		await("first", others)
	})
}
