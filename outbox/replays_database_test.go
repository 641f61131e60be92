package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var errFault = errors.New("the connection broke")

// faultyReplays is a store whose steps of replays fail, or succeed and lose the answer.
type faultyReplays struct {
	outbox.Store
	faults atomic.Int64
}

func (s *faultyReplays) SetReplay(ctx context.Context, db outbox.DB, was string, next outbox.ReplayRow, envs []outbox.Envelope) (bool, error) {
	switch fault := rand.N(4); {
	case fault == 0 && s.faults.Add(1) > 0:
		return false, errFault // before anything reached the database
	case fault == 1 && s.faults.Add(1) > 0:
		_, _ = s.Store.SetReplay(ctx, db, was, next, envs)
		return false, errFault // the answer was lost
	case fault == 2 && s.faults.Add(1) > 0:
		ctx, cancel := context.WithTimeout(ctx, rand.N(2*time.Millisecond))
		defer cancel()
		return s.Store.SetReplay(ctx, db, was, next, envs) // the statement or the COMMIT is cut off
	}
	return s.Store.SetReplay(ctx, db, was, next, envs)
}

// Two processes at a time make the steps of a replay. Processes end between steps and in them, steps fail,
// answers are lost. Each event comes to the named listener, no event to the other listener, and the table
// has a single row for each.
func TestAReplaySurvivesProcessesThatEnd(t *testing.T) {
	t.Parallel()
	events, rate := 600, 150
	if os.Getenv("OUTBOX_TEST_LONG") != "" {
		events, rate = 10_000, 400
	}
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		plain, err := sqlstore.Detect(ctx, db.DB)
		require.NoError(t, err)
		require.NoError(t, plain.CreateSchema(ctx, db.DB))
		writer, err := outbox.New(outbox.Config{DB: db.DB, Store: plain, Mode: outbox.WriterOnly{}, Logger: quiet})
		require.NoError(t, err)
		deliveredBefore(t, db, writer, events)

		store := &faultyReplays{Store: plain}
		var search, mail calls
		node := func() *outbox.Outbox {
			ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: 50 * time.Millisecond}}, Logger: quiet})
			require.NoError(t, err)
			listen := func(c *calls) outbox.Listener {
				return outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
					c.add(env.EventID)
					return nil
				})
			}
			require.NoError(t, ob.Register(outbox.On("", "Said", listen(&search), outbox.Named("search")), outbox.On("", "Said", listen(&mail), outbox.Named("mail"))))
			closeAfter(t, ob)
			require.NoError(t, ob.Start(ctx))
			_ = ob.ContinueReplay(ctx, "r") // changes nothing, and the process looks for the replay now
			return ob
		}
		r := toListener("r", "search")
		r.Rate, r.Until = rate, time.Now().Add(-10*time.Minute) // the deliveries are settled
		require.NoError(t, writerOf(plain, db).StartReplay(ctx, r))
		nodes := []*outbox.Outbox{node(), node()}
		status := func() outbox.ReplayStatus {
			list, err := writer.Replays(ctx)
			require.NoError(t, err)
			require.Len(t, list, 1)
			return list[0]
		}
		for n, last := 0, int64(0); ; {
			got := status()
			if got.State == outbox.ReplayDone {
				require.EqualValues(t, events, got.Added)
				require.EqualValues(t, events, got.Looked)
				break
			}
			if got.Added != last { // a process ends after each step
				last = got.Added
				ended := make(chan error, 1)
				go func(ob *outbox.Outbox) { ended <- ob.Close(ctx) }(nodes[n%2])
				nodes[n%2] = node()
				require.NoError(t, receive(t, ended))
				n++
			}
			if t.Context().Err() != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		for _, ob := range nodes {
			require.NoError(t, ob.Close(ctx))
		}
		require.Len(t, search.all(), events)
		require.Empty(t, mail.all())
		require.Equal(t, map[string]int{"DONE ": events, "DONE search": events}, rowCounts(t, db))
		t.Logf("%s: %d steps of replays met a fault", db.Kind, store.faults.Load())
	})
}

func writerOf(store outbox.Store, db *testdb.DB) *outbox.Outbox {
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.WriterOnly{}, Logger: quiet})
	if err != nil {
		panic(err) // no field of this config can be wrong
	}
	return ob
}

// deliveredBefore writes events that were delivered an hour ago.
func deliveredBefore(t *testing.T, db *testdb.DB, writer *outbox.Outbox, n int) {
	t.Helper()
	a := adaptertest.Adapter(t, db.DB, writer.Writer())
	require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		return writeMany(ctx, a, tx, n)
	}))
	ago := map[testdb.Kind]string{
		testdb.Postgres: "now() - INTERVAL '1 hour'", testdb.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR", testdb.SQLite: fmt.Sprint(time.Now().Add(-time.Hour).UnixMicro()),
	}[db.Kind]
	_, err := db.ExecContext(t.Context(), "UPDATE outbox_event SET status = 1, done_at = "+ago)
	require.NoError(t, err)
}

func writeMany(ctx context.Context, a *sqltx.Adapter, tx *sql.Tx, n int) error {
	envs := make([]outbox.Envelope, n)
	for i := range envs {
		envs[i] = said(fmt.Sprintf("e%06d", i))
	}
	_, err := a.WriteAll(ctx, tx, envs)
	return err
}
