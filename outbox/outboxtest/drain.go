package outboxtest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// drainBatch is how many rows Drain reads at once, as a poller does by default.
const drainBatch = outbox.DefaultPollBatch

// Drain delivers the due events on this goroutine and returns the result of each event, oldest
// first. Drain uses the engine, so the engine's rules apply: interceptors, routes, retries,
// attempts, panics, dead letters. Each event is delivered once; events that become due meanwhile,
// or that listeners write, wait for the next Drain.
//
// In the config only Store is required, and DB unless Store is a [Store] of this package. Bindings
// are added to the config's Registry, or to a new registry. Under [outbox.MultiNode] the rows are
// leased first. Drain does not know the order of [outbox.OrderedByKey]: test this order with a
// running engine. With a Clock that is ahead, retries and delayed events are due. Drain fails the
// test when the config is wrong or the store returns an error.
func Drain(t testing.TB, cfg outbox.Config, bindings ...outbox.Binding) []outbox.Delivery {
	t.Helper()
	if store, ok := cfg.Store.(*Store); ok && cfg.DB == nil {
		cfg.DB = store.DB()
	}
	if _, ok := cfg.Mode.(outbox.OrderedByKey); ok {
		t.Fatalf("Drain: Config.Mode is OrderedByKey, whose order Drain does not know; start the outbox, within testing/synctest, or leave Mode out")
	}
	cfg.Registry = registryOf(t, cfg.Registry, bindings)
	if cfg.Metrics != nil {
		cfg.Metrics = struct{ outbox.Metrics }{cfg.Metrics} // the caller closes the metrics
	}
	ob, err := outbox.New(cfg)
	if err != nil {
		t.Fatalf("Drain: %v", err)
	}
	ctx := t.Context()
	defer func() { _ = ob.Close(context.WithoutCancel(ctx)) }() // never started: Close only releases a context

	var deliveries []outbox.Delivery
	for _, b := range due(t, cfg) {
		for _, row := range b.Undecodable {
			deliveries = append(deliveries, bury(t, cfg, row))
		}
		for _, env := range b.Envelopes {
			d, err := ob.Deliver(ctx, env)
			if err != nil {
				t.Fatalf("Drain: %v", err)
			}
			deliveries = append(deliveries, d)
		}
	}
	return deliveries
}

func registryOf(t testing.TB, given outbox.ListenerRegistry, bindings []outbox.Binding) outbox.ListenerRegistry {
	t.Helper()
	if given == nil {
		given = outbox.NewRegistry()
	}
	if len(bindings) == 0 {
		return given
	}
	own := outbox.NewRegistry()
	if err := own.Register(bindings...); err != nil {
		t.Fatalf("Drain: %v", err)
	}
	return registries{own, given}
}

// registries searches several registries in order, so that bindings can be added to a registry
// without changing it.
type registries []outbox.ListenerRegistry

func (rs registries) ListenerFor(aggregate outbox.AggregateType, event outbox.EventType) (outbox.Listener, bool) {
	for _, r := range rs {
		if l, ok := r.ListenerFor(aggregate, event); ok {
			return l, true
		}
	}
	return nil, false
}

// due reads all due rows before any event is delivered.
func due(t testing.TB, cfg outbox.Config) []outbox.Batch {
	t.Helper()
	now := time.Now()
	if cfg.Clock != nil {
		now = cfg.Clock.Now()
	}
	now = now.UTC().Truncate(time.Microsecond)
	var batches []outbox.Batch
	var after outbox.Cursor
	for {
		b, err := read(t.Context(), cfg, now, after)
		if err != nil {
			t.Fatalf("Drain: reading what is due: %v", err)
		}
		batches = append(batches, b)
		if b.Len() < drainBatch {
			return batches
		}
		after = b.Next
	}
}

func read(ctx context.Context, cfg outbox.Config, now time.Time, after outbox.Cursor) (outbox.Batch, error) {
	mode, leased := cfg.Mode.(outbox.MultiNode)
	if !leased {
		return cfg.Store.Poll(ctx, cfg.DB, outbox.PollQuery{Now: now, After: after, Limit: drainBatch})
	}
	return cfg.Store.Claim(ctx, cfg.DB, outbox.ClaimQuery{
		Now: now, Limit: drainBatch, Lease: "outboxtest.Drain/" + after.EventID,
		LeaseDuration: cmp.Or(mode.Claim.LeaseDuration, outbox.DefaultLeaseDuration),
	})
}

// bury marks an undecodable row DEAD, as the poller does.
func bury(t testing.TB, cfg outbox.Config, row outbox.Undecodable) outbox.Delivery {
	t.Helper()
	mark := outbox.Mark{EventID: row.EventID, Error: row.Err.Error()}
	if _, err := cfg.Store.Mark(t.Context(), cfg.DB, outbox.OutcomeDead, []outbox.Mark{mark}); err != nil {
		t.Fatalf("Drain: %v", err)
	}
	return outbox.Delivery{Envelope: outbox.Envelope{EventID: row.EventID}, Status: outbox.StatusDead, Err: row.Err}
}
