package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// writtenEvents is how many events the process writes before it is killed.
const writtenEvents = 20

// writerProcess writes events whose listener never returns, until it is killed.
func writerProcess() {
	ctx := context.Background()
	db, err := sqltx.Open(os.Getenv(processDriver), os.Getenv(processDSN))
	check(err)
	store, err := sqlstore.Detect(ctx, db)
	check(err)
	check(store.CreateSchema(ctx, db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	check(ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { select {} }))))
	check(ob.Start(ctx))
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	for i := range writtenEvents {
		check(a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := a.Write(ctx, tx, said(fmt.Sprint("e", i)))
			return err
		}))
	}
	tx, err := db.BeginTx(ctx, nil)
	check(err)
	_, err = a.Write(ctx, tx, said("never committed"))
	check(err)
	fmt.Println("written")
	select {}
}

func TestAKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		process, nextLine := startProcess(t, "writer", db)
		require.Equal(t, "written", nextLine())
		require.NoError(t, process.Kill())
		_, err := process.Wait()
		require.NoError(t, err)

		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		var c calls
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		}))))
		require.NoError(t, ob.Start(t.Context()))
		require.Eventually(t, func() bool { events, _ := c.total(); return events >= writtenEvents }, 30*time.Second, 5*time.Millisecond)
		require.NoError(t, ob.Close(context.Background()))
		events, deliveries := c.total()
		require.Equal(t, writtenEvents, events)
		require.Equal(t, writtenEvents, deliveries)
		require.Zero(t, c.n["never committed"])
	})
}
