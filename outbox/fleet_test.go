package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// fleetMode is a mode in which the kind has these rules, for all processes together.
func fleetMode(rules outbox.Rules) outbox.Mode {
	rules.Fleetwide = true
	return outbox.MultiNode{
		Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{kindSaid: rules}, Workers: 3},
		Poll:     outbox.PollOptions{BatchSize: 20},
	}
}

// together counts what several processes do together.
type together struct {
	calls
	mu      sync.Mutex
	running int
	most    int
	at      []time.Time
	by      map[int]int // the deliveries of each process
}

// listener is the listener of a process, which takes a time.
func (g *together) listener(process int, takes time.Duration) func(context.Context, outbox.Envelope) error {
	return func(_ context.Context, env outbox.Envelope) error {
		g.mu.Lock()
		if g.by == nil {
			g.by = map[int]int{}
		}
		g.running++
		g.by[process]++
		g.most, g.at = max(g.most, g.running), append(g.at, time.Now())
		g.mu.Unlock()
		time.Sleep(takes)
		g.add(env.EventID)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running--
		return nil
	}
}

// ofProcess is how many deliveries of a process began.
func (g *together) ofProcess(process int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.by[process]
}

// beyond is by how many deliveries more than rate and burst allow began in a window.
func (g *together) beyond(rate float64, burst int) float64 {
	worst, least := -1e9, 1e9
	for i, at := range g.at {
		due := at.Sub(g.at[0]).Seconds() * rate
		least = min(least, float64(i)-due)
		worst = max(worst, float64(i+1)-due-least)
	}
	return worst - float64(burst)
}

func TestConcurrencyOfAllProcessesTogether(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var g together
				store := outboxtest.NewStore()
				var all []*engine
				for i := range 3 {
					all = append(all, start(t, outbox.Config{Store: store, Mode: fleetMode(outbox.Rules{Concurrency: limit})}, g.listener(i, 50*time.Millisecond)))
				}
				for i := range 60 {
					several(all[i%3], 20, fmt.Sprintf("e%02d-", i), "Said")
					pass(10 * time.Millisecond)
				}
				pass(3 * time.Minute)
				for _, e := range all {
					require.NoError(t, e.Close(context.Background()))
				}
				events, deliveries := g.total()
				require.Equal(t, []int{1200, 1200}, []int{events, deliveries})
				require.Equal(t, limit, g.most)
				require.Len(t, g.by, 3, "each process delivers some")
			})
		})
	}
}

func TestARateOfAllProcessesTogether(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]outbox.Rules{
		"burst of one": {Rate: 20, Burst: 1}, "default burst": {Rate: 100}, "with a concurrency": {Rate: 100, Burst: 7, Concurrency: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var g together
				store := outboxtest.NewStore()
				first := start(t, outbox.Config{Store: store, Mode: fleetMode(rules)}, g.listener(0, time.Millisecond))
				several(first, 2000, "e", "Said")
				pass(3 * time.Second)
				second := start(t, outbox.Config{Store: store, Mode: fleetMode(rules)}, g.listener(1, time.Millisecond))
				pass(time.Duration(2000/rules.Rate*1.1+10) * time.Second)
				for _, e := range []*engine{first, second} {
					require.NoError(t, e.Close(context.Background()))
				}
				events, deliveries := g.total()
				require.Equal(t, []int{2000, 2000}, []int{events, deliveries})
				burst := rules.Burst
				if burst == 0 {
					burst = 10
				}
				require.LessOrEqual(t, g.beyond(rules.Rate, burst), 1e-3)
				require.Len(t, g.by, 2, "both processes deliver")
			})
		})
	}
}

// severed is the store of a process that dies: no statement of it comes through any more.
type severed struct {
	*outboxtest.Store
	dead   atomic.Bool
	shares atomic.Int64 // statements
}

var errSevered = errors.New("the process is dead")

func (s *severed) memory() *outboxtest.Store { return s.Store }

func (s *severed) Shares(ctx context.Context, db outbox.DB, kind outbox.EventKind) (outbox.Shares, error) {
	s.shares.Add(1)
	if s.dead.Load() {
		return outbox.Shares{}, errSevered
	}
	return s.Store.Shares(ctx, db, kind)
}

func (s *severed) SetShares(ctx context.Context, db outbox.DB, kind outbox.EventKind, was string, next outbox.Shares) (bool, error) {
	s.shares.Add(1)
	if s.dead.Load() {
		return false, errSevered
	}
	return s.Store.SetShares(ctx, db, kind, was, next)
}

// A process that cannot renew its share begins no deliveries, and the other process gets the share.
func TestAProcessWithoutItsShareDeliversNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g together
		store := outboxtest.NewStore()
		dying := &severed{Store: store}
		first := start(t, outbox.Config{Store: dying, Mode: fleetMode(outbox.Rules{Concurrency: 2})}, g.listener(0, 40*time.Millisecond))
		several(first, 1500, "e", "Said")
		pass(3 * time.Second)
		second := start(t, outbox.Config{Store: store, Mode: fleetMode(outbox.Rules{Concurrency: 2})}, g.listener(1, 40*time.Millisecond))
		pass(3 * time.Second)
		dying.dead.Store(true)
		pass(9 * time.Second)
		before := g.ofProcess(0)
		pass(5 * time.Second)
		require.Equal(t, before, g.ofProcess(0))
		pass(time.Minute)
		require.ErrorContains(t, first.Close(context.Background()), "giving up shares in fleet-wide limits, which other nodes get when the shares expire, in 10s at the latest: the process is dead")
		pass(time.Minute)
		require.NoError(t, second.Close(context.Background()))
		events, deliveries := g.total()
		require.Equal(t, []int{1500, 1500}, []int{events, deliveries})
		require.Equal(t, 2, g.most)
	})
}

// A process whose listener holds the only share for long, and a process that waits, do not hold up
// other kinds, ask the database little, and leave the events in the table.
func TestAProcessThatWaitsForAShareIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g together
		store := outboxtest.NewStore()
		mode := fleetMode(outbox.Rules{Concurrency: 1})
		first := start(t, outbox.Config{Store: store, Mode: mode}, g.listener(0, 4*time.Minute))
		several(first, 1, "a", "Said")
		pass(time.Second)
		waiting := &severed{Store: store}
		second := start(t, outbox.Config{Store: waiting, Mode: mode}, g.listener(1, time.Millisecond))
		several(second, 100, "b", "Said")
		pass(10 * time.Second)
		st, err := second.Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, st.HotDepth+st.ColdDepth, "the events are in the table")
		before := waiting.shares.Load()
		several(second, 1000, "c", "Said")
		pass(time.Minute)
		require.LessOrEqual(t, waiting.shares.Load()-before, int64(7*60), "looks and renewals, whatever is written")
		pass(5 * time.Minute)
		require.NoError(t, first.Close(context.Background()))
		require.NoError(t, second.Close(context.Background()))
		events, deliveries := g.total()
		require.Equal(t, []int{1101, 1101}, []int{events, deliveries})
		require.Equal(t, 1, g.most)
	})
}

func TestADrainWaitsForItsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g together
		store := outboxtest.NewStore()
		e := build(t, outbox.Config{Store: store, Mode: fleetMode(outbox.Rules{Concurrency: 2, Rate: 100})}, g.listener(0, time.Millisecond))
		several(e, 60, "e", "Said")
		for range 2 {
			got, err := e.Drain(t.Context(), 30)
			require.NoError(t, err)
			require.Equal(t, 30, got.Done)
		}
		require.LessOrEqual(t, g.beyond(100, 10), 1e-3)
		require.LessOrEqual(t, g.most, 2)
	})
}

func TestFleetwideLimitsInASingleNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g together
		mode := limitedModes(outbox.Rules{Concurrency: 2, Rate: 50, Fleetwide: true})["single"]
		e := start(t, outbox.Config{Mode: mode}, g.listener(0, 10*time.Millisecond))
		several(e, 100, "e", "Said")
		pass(3 * time.Second)
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, 2, g.most)
		require.LessOrEqual(t, g.beyond(50, 5), 1e-3)
		shares, err := e.store.Shares(t.Context(), nil, kindSaid)
		require.NoError(t, err)
		require.Empty(t, shares.Version, "a single process needs no shares")
	})
}

func TestFleetwideNeedsALimitAndAMode(t *testing.T) {
	t.Parallel()
	e := build(t, outbox.Config{Mode: fleetMode(outbox.Rules{})}, func(context.Context, outbox.Envelope) error { return nil })
	require.ErrorContains(t, e.Start(t.Context()), "Config.Mode.Dispatch.Rules[__GLOBAL__/Said].Fleetwide is set, but nothing is bounded; set the Concurrency, the Rate, the KeyConcurrency or the KeyRate too")
	rules := map[outbox.EventKind]outbox.Rules{kindSaid: {Fleetwide: true}}
	store := outboxtest.NewStore()
	for _, mode := range []outbox.Mode{outbox.Ordered{Rules: rules}, outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Rules: rules}}} {
		_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: mode})
		require.ErrorContains(t, err, "Fleetwide is true, but")
	}
}

// Operators see the limits, the share of each process, and which process waits.
func TestSharesAreShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g together
		global := outbox.EventKind{AggregateType: outbox.Global, EventType: kindSaid.EventType}
		store := outboxtest.NewStore()
		process := func(i, limit int, takes time.Duration) *engine {
			mode := fleetMode(outbox.Rules{Concurrency: limit}).(outbox.MultiNode)
			mode.Claim.Owner = fmt.Sprintf("host/%d", i)
			return start(t, outbox.Config{Store: store, Mode: mode}, g.listener(i, takes))
		}
		first := process(0, 1, time.Minute)
		shares, err := first.Shares(t.Context())
		require.NoError(t, err)
		require.Empty(t, shares, "no process has asked for a share")
		several(first, 2, "a", "Said")
		pass(time.Second)
		second := process(1, 1, time.Minute)
		several(second, 1, "b", "Said")
		pass(time.Second)
		shares, err = second.Shares(t.Context())
		require.NoError(t, err)
		require.Len(t, shares, 1)
		for i := range shares[0].Shares {
			until := &shares[0].Shares[i].Until
			require.WithinDuration(t, time.Now().Add(10*time.Second), *until, 2*time.Second)
			*until = time.Time{}
		}
		require.Equal(t, outbox.KindShares{Kind: global, Concurrency: 1, Parts: 1, Shares: []outbox.ProcessShare{
			{Owner: "host/0", Parts: 1, Of: 1}, {Owner: "host/1", Of: 1, Waits: true},
		}}, shares[0])
		for e, parts := range map[*engine]int{first: 1, second: 0} {
			st, err := e.Stats(t.Context())
			require.NoError(t, err)
			require.Equal(t, []outbox.OwnShare{{Kind: global, Parts: parts, Of: 1}}, st.Shares)
		}
		pass(5 * time.Minute)
		require.NoError(t, first.Close(context.Background()))
		require.NoError(t, second.Close(context.Background()))
		shares, err = second.Shares(t.Context())
		require.NoError(t, err)
		require.Equal(t, []outbox.KindShares{{Kind: global, Concurrency: 1, Parts: 1}}, shares, "no process has a share")
	})
}

// A row of an older version has neither the kind nor the limits, and a row that cannot be read does not
// hide the others.
func TestSharesOfOtherVersionsAreShown(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	e := build(t, outbox.Config{Store: store}, nil)
	for kind, value := range map[outbox.EventKind]string{
		{EventType: "Old"}: fmt.Sprintf(`{"of":"Order/Old","m":[{"n":"host/x","p":1,"o":2,"w":true,"t":%d}]}`, time.Now().Add(time.Hour).UnixMicro()),
		{EventType: "Bad"}: "{",
	} {
		set, err := store.SetShares(t.Context(), nil, kind, "", outbox.Shares{Version: "v", Value: value})
		require.True(t, set)
		require.NoError(t, err)
	}
	shares, err := e.Shares(t.Context())
	require.NoError(t, err)
	require.Len(t, shares, 2)
	require.Contains(t, shares[0].Problem, "delete the row")
	require.Equal(t, outbox.EventKind{AggregateType: "Order", EventType: "Old"}, shares[1].Kind)
	require.Zero(t, shares[1].Parts)
	require.Equal(t, "host", shares[1].Shares[0].Owner)
	require.Equal(t, []int{1, 2}, []int{shares[1].Shares[0].Parts, shares[1].Shares[0].Of})
}
