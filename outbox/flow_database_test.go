package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
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

// flowModes are the modes of two processes on one table. In a single node's mode the
// second is a standby.
var flowModes = map[string]func(owner string, o outbox.DispatchOptions, p outbox.PollOptions) outbox.Mode{
	"single node": func(_ string, o outbox.DispatchOptions, p outbox.PollOptions) outbox.Mode {
		return outbox.SingleNode{Dispatch: o, Poll: p}
	},
	"two nodes": func(owner string, o outbox.DispatchOptions, p outbox.PollOptions) outbox.Mode {
		return outbox.MultiNode{Dispatch: o, Poll: p, Claim: outbox.ClaimOptions{Owner: owner}}
	},
}

// Two processes write events of three kinds: one whose listener hangs at first and has a
// limit, one that is paused on one process after the other has seen it, and one of
// neither. What nothing holds back is delivered meanwhile; in the end each event was
// delivered once, and none has an attempt.
func TestLimitsAndPausesOnEveryDatabase(t *testing.T) {
	t.Parallel()
	for name, mode := range flowModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) { runFlow(t, db, mode) })
		})
	}
}

func runFlow(t *testing.T, db *testdb.DB, mode func(string, outbox.DispatchOptions, outbox.PollOptions) outbox.Mode) {
	ctx := t.Context()
	store, err := sqlstore.Detect(ctx, db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	limited, paused, free := outbox.EventKind{AggregateType: "Order", EventType: "Limited"}, outbox.EventKind{EventType: "Paused"}, outbox.EventKind{AggregateType: "Order", EventType: "Free"}
	goOn := make(chan struct{})
	var counts [3]atomic.Int32
	var delivered calls
	var nodes []*outbox.Outbox
	var adapters []*sqltx.Adapter
	for i := range 2 {
		pool := db.Reopen(t)
		ob, err := outbox.New(outbox.Config{
			DB: pool.DB, Store: store, Logger: quiet,
			Mode: mode(fmt.Sprint("node-", i), outbox.DispatchOptions{
				Workers: 2, HotCapacity: 20, ColdCapacity: 40,
				Rules: map[outbox.EventKind]outbox.Rules{limited: {Concurrency: 2}},
			}, outbox.PollOptions{Interval: 50 * time.Millisecond, BatchSize: 15}),
		})
		require.NoError(t, err)
		for k, kind := range []outbox.EventKind{limited, paused, free} {
			require.NoError(t, ob.Register(outbox.On(kind.AggregateType, kind.EventType, outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
				if kind == limited {
					<-goOn
				}
				delivered.add(env.EventID)
				counts[k].Add(1)
				return nil
			}))))
		}
		require.NoError(t, ob.Start(ctx))
		closeAfter(t, ob)
		nodes, adapters = append(nodes, ob), append(adapters, adaptertest.Adapter(t, pool.DB, ob.Writer()))
	}
	write := func(kinds ...outbox.EventKind) {
		for i := range 120 {
			a := adapters[i%2]
			require.NoError(t, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				for _, kind := range kinds {
					if _, err := a.Write(ctx, tx, outbox.Envelope{AggregateType: kind.AggregateType, EventType: kind.EventType, Payload: outbox.JSON(i)}); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	eventually := func(what string, condition func() bool) {
		t.Helper()
		require.Eventually(t, condition, 60*time.Second, 5*time.Millisecond, what)
	}
	require.NoError(t, nodes[0].Pause(ctx, outbox.Pause{Kind: paused}))
	eventually("the other process sees the pause", func() bool {
		st, err := nodes[1].Stats(ctx)
		return err == nil && len(st.Paused) == 1 && st.LastPoll.After(st.Paused[0].Since.Add(2*time.Second))
	})
	write(limited, paused, free)
	write(free)
	write(limited)
	eventually("the free kind is delivered", func() bool { return counts[2].Load() == 240 })
	require.Zero(t, counts[0].Load(), "the limited kind hangs")
	require.Zero(t, counts[1].Load(), "the paused kind is not delivered")
	st, err := nodes[0].Stats(ctx)
	require.NoError(t, err)
	require.LessOrEqual(t, st.HotDepth+st.ColdDepth, 16, "what waits is in the table")
	close(goOn)
	eventually("the limited kind is delivered", func() bool { return counts[0].Load() == 240 })
	require.Zero(t, counts[1].Load())
	require.NoError(t, nodes[1].Resume(ctx, paused))
	write(paused)
	var done, others, attempts int
	eventually("all is done", func() bool {
		row := db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM outbox_event WHERE status = 1), (SELECT COUNT(*) FROM outbox_event WHERE status <> 1), (SELECT COALESCE(SUM(attempts), 0) FROM outbox_event)")
		return row.Scan(&done, &others, &attempts) == nil && others == 0
	})
	for _, ob := range nodes {
		require.NoError(t, ob.Close(context.Background()))
	}
	require.Equal(t, 720, done)
	require.Zero(t, attempts)
	events, deliveries := delivered.total()
	require.Equal(t, 720, events)
	require.Equal(t, 720, deliveries, "an event was delivered twice")
}
