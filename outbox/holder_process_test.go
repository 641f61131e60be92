package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// holderProcess delivers from the table until it is killed, one event at a time, and
// prints the ids with the time, in microseconds, at which the listener began.
func holderProcess() {
	ctx := context.Background()
	db, err := sql.Open(os.Getenv(processDriver), os.Getenv(processDSN))
	check(err)
	store, err := sqlstore.Detect(ctx, db)
	check(err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Logger: quiet, Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{Workers: 1}, Poll: outbox.PollOptions{Interval: 20 * time.Millisecond},
	}})
	check(err)
	check(ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		fmt.Println(env.EventID, time.Now().UnixMicro())
		<-time.After(20 * time.Millisecond)
		return nil
	}))))
	check(ob.Start(ctx))
	fmt.Println("started")
	select {}
}

// A process is stopped for longer than its hold, with events in its queue. The
// standby delivers them; the process, when it goes on, delivers none of them.
func TestAStoppedProcessDeliversNothingWhenItGoesOn(t *testing.T) {
	t.Parallel()
	var targets []testdb.Target
	for _, target := range testdb.Main() {
		if target.Kind != testdb.SQLite { // a stopped process would keep its file locked
			targets = append(targets, target)
		}
	}
	testdb.Each(t, targets, func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		process, next := startProcess(t, "holder", db)
		require.Equal(t, "started", next())

		got := make(chan string, 1000)
		standby, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet})
		require.NoError(t, err)
		require.NoError(t, standby.Register(outbox.On("", "Said", outbox.ListenerFunc(by("standby", got)))))
		require.NoError(t, standby.Start(t.Context()))
		write := func(ids ...string) {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			envs := make([]outbox.Envelope, len(ids))
			for i, id := range ids {
				envs[i] = said(id)
			}
			_, err = standby.Writer().WriteUnmanaged(t.Context(), tx, envs)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
		}
		write(named("e", 200)...)
		next() // it delivers
		require.NoError(t, process.Signal(syscall.SIGSTOP))
		require.Eventually(t, func() bool {
			st, err := standby.Stats(t.Context())
			return err == nil && st.Pending == 0
		}, time.Minute, 5*time.Millisecond)
		require.NoError(t, standby.Close(context.Background()))
		require.NotEmpty(t, got)
		continued := time.Now()
		require.NoError(t, process.Signal(syscall.SIGCONT))
		write("last") // for the process, which has the table again
		var late []string
		for id := ""; id != "last"; {
			var began int64
			_, err := fmt.Sscan(next(), &id, &began)
			require.NoError(t, err)
			if time.UnixMicro(began).After(continued) && id != "last" {
				late = append(late, id)
			}
		}
		require.LessOrEqual(t, len(late), 1, "more than what was about to run when the process was stopped: %v", late)
	})
}
