package outbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// dueAsks counts the statements that group the due events, and the lists of nodes.
type dueAsks struct {
	*outboxtest.Store
	kinds, nodes int
}

func (s *dueAsks) memory() *outboxtest.Store { return s.Store }

func (s *dueAsks) DueKinds(ctx context.Context, db outbox.DB, q outbox.DueKindsQuery) ([]outbox.DueKind, error) {
	s.kinds++
	return s.Store.DueKinds(ctx, db, q)
}

func (s *dueAsks) Nodes(ctx context.Context, db outbox.DB) ([]outbox.Node, error) {
	s.nodes++
	return s.Store.Nodes(ctx, db)
}

// A kind that may wait for a day is not late after an hour, and does not hide the kind that may wait
// for five seconds. The rules of the operator count before the rules of the listener.
func TestEachKindIsLateByItsOwnLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &dueAsks{Store: outboxtest.NewStore()}
		day, quick, plain := kindOf("Day"), kindOf("Quick"), kindOf("Plain")
		e := build(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{
			Rules: map[outbox.EventKind]outbox.Rules{day: {MaxDueAge: 24 * time.Hour}},
		}}}, nil)
		require.NoError(t, e.Register(
			outbox.On("", "Day", outbox.ListenerFunc(handled), outbox.Rules{MaxDueAge: time.Minute}),
			outbox.On("", "Quick", outbox.ListenerFunc(handled), outbox.Rules{MaxDueAge: 5 * time.Second}),
			outbox.On("", "Plain", outbox.ListenerFunc(handled)),
		))
		stats := func() outbox.Stats {
			st, err := e.Stats(t.Context())
			require.NoError(t, err)
			return st
		}
		now := time.Now().UTC()
		dueOf(t, store.Store, day, now)
		require.Zero(t, stats().Late)
		require.Zero(t, store.kinds+store.nodes, "nothing can be late yet")

		time.Sleep(time.Hour)
		require.Zero(t, stats().OldestDueAge, "the kind has a limit of its own")
		require.Zero(t, stats().Late)
		dueOf(t, store.Store, quick, time.Now().UTC())
		dueOf(t, store.Store, plain, time.Now().UTC())
		time.Sleep(5 * time.Second)
		st := stats()
		require.Zero(t, st.Late, "five seconds are not longer than five seconds")
		require.Equal(t, 5*time.Second, st.OldestDueAge)
		time.Sleep(time.Microsecond)
		require.Equal(t, []outbox.LateKind{{Kind: quick, MaxDueAge: 5 * time.Second, Events: 1, OldestDueAge: 5*time.Second + time.Microsecond}}, stats().Late)

		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: quick}))
		st = stats()
		require.Zero(t, st.Late, "the paused are not late")
		require.EqualValues(t, 1, st.DuePaused)
		require.EqualValues(t, 3, st.Due)
		time.Sleep(24 * time.Hour)
		require.Equal(t, []outbox.LateKind{{Kind: day, MaxDueAge: 24 * time.Hour, Events: 1, OldestDueAge: 25*time.Hour + 5*time.Second + time.Microsecond}}, stats().Late, "a pause hides no other kind")
	})
}

// A process without the rules, such as the command line, knows them from the reports of the others.
func TestTheLimitsOfLatenessAreThoseOfAllProcesses(t *testing.T) {
	t.Parallel()
	kind := kindOf("Quick")
	limit := func(d time.Duration) []outbox.KindAge { return []outbox.KindAge{{Kind: kind, MaxDueAge: d}} }
	for name, c := range map[string]struct {
		live, dead []outbox.Node
		own        time.Duration
		want       time.Duration
	}{
		"no process knows one":     {live: []outbox.Node{{Owner: "a", Mode: "multi-node"}}},
		"a process reports":        {live: []outbox.Node{{Owner: "a", Mode: "multi-node", MaxDueAges: limit(5 * time.Second)}}, want: 5 * time.Second},
		"the shortest counts":      {live: []outbox.Node{{Owner: "a", Mode: "multi-node", MaxDueAges: limit(7 * time.Second)}, {Owner: "b", Mode: "multi-node", MaxDueAges: limit(6 * time.Second)}}, want: 6 * time.Second},
		"the live before the dead": {live: []outbox.Node{{Owner: "a", Mode: "multi-node", MaxDueAges: limit(7 * time.Second)}}, dead: []outbox.Node{{Owner: "b", Mode: "multi-node", MaxDueAges: limit(time.Second)}}, want: 7 * time.Second},
		"the dead, if none lives":  {live: []outbox.Node{{Owner: "w", Mode: "writer-only"}}, dead: []outbox.Node{{Owner: "b", Mode: "multi-node", MaxDueAges: limit(6 * time.Second)}}, want: 6 * time.Second},
		"the own before others":    {live: []outbox.Node{{Owner: "a", Mode: "multi-node", MaxDueAges: limit(time.Second)}}, own: 8 * time.Second, want: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := outboxtest.NewStore()
			e := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
			if c.own > 0 {
				require.NoError(t, e.Register(outbox.On("", "Quick", outbox.ListenerFunc(handled), outbox.Rules{MaxDueAge: c.own})))
			}
			for _, n := range c.live {
				require.NoError(t, store.Announce(t.Context(), store.DB(), n, time.Hour))
			}
			for _, n := range c.dead {
				require.NoError(t, store.Announce(t.Context(), store.DB(), n, -time.Second))
			}
			dueOf(t, store, kind, time.Now().UTC().Add(-time.Minute))
			st, err := e.Stats(t.Context())
			require.NoError(t, err)
			if c.want == 0 {
				require.Empty(t, st.Late)
				require.InDelta(t, time.Minute, st.OldestDueAge, float64(30*time.Second))
				return
			}
			require.Len(t, st.Late, 1)
			require.Equal(t, c.want, st.Late[0].MaxDueAge)
			require.Zero(t, st.OldestDueAge)
		})
	}
}

// A reader of the log changes no row, so that the rows of the table are not late while the reader lives.
func TestNoEventIsLateThatIsPublishedFromTheLog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seen   time.Duration // how long the report counts from now
		behind time.Duration // since the whole log was published
		empty  bool          // the table
		poller bool          // another process delivers
		late   bool
		age    time.Duration
	}{
		"a reader that lives":                            {seen: time.Hour},
		"a reader of a table that stays empty":           {seen: time.Hour, empty: true},
		"a reader that is behind":                        {seen: time.Hour, behind: time.Hour, age: time.Hour},
		"a reader that is behind with an empty table":    {seen: time.Hour, behind: time.Hour, empty: true, age: time.Hour},
		"a reader that died":                             {seen: -time.Second, late: true, age: time.Minute},
		"a reader that died with an empty table":         {seen: -time.Second, behind: time.Hour, empty: true, age: time.Hour},
		"a reader that died before the events were due":  {seen: -time.Second, behind: time.Hour, late: true, age: time.Hour},
		"a reader that died where a poller delivers now": {seen: -time.Second, behind: time.Hour, empty: true, poller: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asks := &dueAsks{Store: outboxtest.NewStore()}
			store := asks.Store
			e := build(t, outbox.Config{Store: asks, Mode: outbox.WriterOnly{}}, nil)
			quick, plain := kindOf("Quick"), kindOf("Plain")
			require.NoError(t, e.Register(outbox.On("", "Quick", outbox.ListenerFunc(handled), outbox.Rules{MaxDueAge: 5 * time.Second})))
			require.NoError(t, store.Announce(t.Context(), store.DB(), outbox.Node{Owner: "log", Mode: "log", LastPoll: time.Now().Add(-c.behind), Log: &outbox.LogLag{}}, c.seen))
			if c.poller {
				require.NoError(t, store.Announce(t.Context(), store.DB(), outbox.Node{Owner: "a", Mode: "multi-node", LastPoll: time.Now()}, time.Hour))
			}
			if !c.empty {
				dueOf(t, store, quick, time.Now().UTC().Add(-time.Minute))
				dueOf(t, store, plain, time.Now().UTC().Add(-time.Minute))
			}
			st, err := e.Stats(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.late, len(st.Late) == 1)
			require.Equal(t, c.late, asks.kinds == 1, "the due events are read only if one may be late")
			if c.age == 0 {
				require.Zero(t, st.OldestDueAge)
			} else {
				require.InDelta(t, c.age, st.OldestDueAge, float64(30*time.Second))
			}
		})
	}
}

// Each process reports its limits.
func TestANodeReportsItsLimitsOfLateness(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	e := build(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}}, nil)
	require.NoError(t, e.Register(outbox.On("", "Quick", outbox.ListenerFunc(handled), outbox.Rules{MaxDueAge: 5 * time.Second})))
	require.NoError(t, e.Start(t.Context()))
	require.Eventually(t, func() bool {
		nodes, err := e.Nodes(t.Context())
		require.NoError(t, err)
		return len(nodes) == 1 && len(nodes[0].MaxDueAges) == 1 && nodes[0].MaxDueAges[0] == outbox.KindAge{Kind: kindOf("Quick"), MaxDueAge: 5 * time.Second}
	}, 30*time.Second, 5*time.Millisecond)
}

func kindOf(event outbox.EventType) outbox.EventKind {
	return outbox.EventKind{AggregateType: outbox.Global, EventType: event}
}

// dueOf inserts an event of a kind that is due at a time.
func dueOf(t *testing.T, store *outboxtest.Store, kind outbox.EventKind, at time.Time) {
	t.Helper()
	env := outbox.Envelope{EventID: string(kind.EventType), AggregateType: kind.AggregateType, EventType: kind.EventType, OccurredAt: at, AvailableAt: at}
	require.NoError(t, store.Insert(t.Context(), store.DB(), []outbox.Envelope{env}, "", time.Time{}))
}
