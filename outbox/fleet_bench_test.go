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

// BenchmarkFleetwideRate measures at how many events a second two processes deliver a backlog with a
// rate of 1,000 events a second together: as half of it for each, and as a bound of all processes.
func BenchmarkFleetwideRate(b *testing.B) {
	for _, target := range adaptertest.Main() {
		for name, rules := range map[string]outbox.Rules{
			"each": {Rate: 500, Burst: 50, Concurrency: 16}, "together": {Rate: 1000, Burst: 100, Concurrency: 32, Fleetwide: true},
		} {
			b.Run(target.Name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					b.ReportMetric(rateOfTwo(b, testdb.Open(b, target), rules), "events/s")
				}
			})
		}
	}
}

// rateOfTwo is at how many events a second two processes deliver a backlog, without the first second.
func rateOfTwo(b *testing.B, db *testdb.DB, rules outbox.Rules) float64 {
	const events = 15_000
	ctx, kind := b.Context(), outbox.EventKind{AggregateType: "Order", EventType: "Limited"}
	store, err := sqlstore.Detect(ctx, db.DB)
	require.NoError(b, err)
	require.NoError(b, store.CreateSchema(ctx, db.DB))
	var begun atomic.Int64
	all := make(chan struct{})
	var nodes []*outbox.Outbox
	var writer *sqltx.Adapter
	for i := range 2 {
		pool := db.Reopen(b)
		ob, err := outbox.New(outbox.Config{DB: pool.DB, Store: store, Logger: quiet, Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{kind: rules}},
			Claim:    outbox.ClaimOptions{Owner: fmt.Sprint("node-", i)},
		}})
		require.NoError(b, err)
		require.NoError(b, ob.Register(outbox.On(kind.AggregateType, kind.EventType, outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
			if begun.Add(1) == events {
				close(all)
			}
			return nil
		}))))
		if nodes = append(nodes, ob); i == 0 {
			writer = adaptertest.Adapter(b, pool.DB, ob.Writer())
		}
	}
	envs := make([]outbox.Envelope, events)
	for i := range envs {
		envs[i] = outbox.Envelope{AggregateType: kind.AggregateType, EventType: kind.EventType, Payload: outbox.JSON(i)}
	}
	require.NoError(b, writer.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := writer.WriteAll(ctx, tx, envs)
		return err
	}))
	for _, ob := range nodes {
		require.NoError(b, ob.Start(ctx))
	}
	time.Sleep(time.Second)
	before, began := begun.Load(), time.Now()
	<-all
	rate := float64(events-before) / time.Since(began).Seconds()
	for _, ob := range nodes {
		require.NoError(b, ob.Close(context.Background()))
	}
	return rate
}
