package outbox_test

import (
	"context"
	"database/sql"
	"errors"
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

// dropped is the store of a process that is killed: the database gets no statement for shares any
// more, and some answers are lost before.
type dropped struct {
	outbox.Store
	dead atomic.Bool
	n    atomic.Int64
}

var errDropped = errors.New("the answer is lost")

func (s *dropped) SetShares(ctx context.Context, db outbox.DB, kind outbox.EventKind, was string, next outbox.Shares) (bool, error) {
	if s.dead.Load() {
		return false, errDropped
	}
	set, err := s.Store.SetShares(ctx, db, kind, was, next)
	if s.n.Add(1)%5 == 0 {
		return false, errDropped
	}
	return set, err
}

// Three processes with a backlog lose answers; one of them gives its share up by closing, and one cannot
// renew it any more. No more listeners run at once than all processes together may, each event is
// delivered once, and the process that is left gets all shares.
func TestFleetwideLimitsOnEveryDatabase(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		const limit, events = 3, 3000
		ctx := t.Context()
		store, err := sqlstore.Detect(ctx, db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		kind := outbox.EventKind{AggregateType: "Order", EventType: "Limited"}
		var g together
		var nodes []*outbox.Outbox
		var stores []*dropped
		var writer *sqltx.Adapter
		for i := range 3 {
			pool, own := db.Reopen(t), &dropped{Store: store}
			ob, err := outbox.New(outbox.Config{
				DB: pool.DB, Store: own, Logger: quiet,
				Mode: outbox.MultiNode{
					Dispatch: outbox.DispatchOptions{Workers: 2, Rules: map[outbox.EventKind]outbox.Rules{kind: {Concurrency: limit, Fleetwide: true}}},
					Poll:     outbox.PollOptions{Interval: 50 * time.Millisecond}, Claim: outbox.ClaimOptions{Owner: fmt.Sprint("node-", i)},
				},
			})
			require.NoError(t, err)
			require.NoError(t, ob.Register(outbox.On(kind.AggregateType, kind.EventType, outbox.ListenerFunc(g.listener(i, 15*time.Millisecond)))))
			require.NoError(t, ob.Start(ctx))
			closeAfter(t, ob)
			nodes, stores = append(nodes, ob), append(stores, own)
			if i == 0 {
				writer = adaptertest.Adapter(t, pool.DB, ob.Writer())
			}
		}
		envs := make([]outbox.Envelope, events)
		for i := range envs {
			envs[i] = outbox.Envelope{AggregateType: kind.AggregateType, EventType: kind.EventType, Payload: outbox.JSON(i)}
		}
		require.NoError(t, writer.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := writer.WriteAll(ctx, tx, envs)
			return err
		}))
		eventually := func(what string, condition func() bool) {
			t.Helper()
			require.Eventually(t, condition, 3*time.Minute, 10*time.Millisecond, what)
		}
		delivered := func() int {
			n, _ := g.total()
			return n
		}
		eventually("each process has a share", func() bool { return g.ofProcess(0) > 0 && g.ofProcess(1) > 0 && g.ofProcess(2) > 0 })
		require.NoError(t, nodes[0].Close(context.Background()))
		stores[1].dead.Store(true)
		eventually("the other processes deliver all", func() bool { return delivered() == events })
		for _, ob := range nodes[1:] {
			_ = ob.Close(context.Background()) // the error of the process whose statements are lost
		}
		n, deliveries := g.total()
		require.Equal(t, []int{events, events}, []int{n, deliveries})
		require.LessOrEqual(t, g.most, limit)
		var done int
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE status = 1 AND attempts = 0").Scan(&done))
		require.Equal(t, events, done)
	})
}
