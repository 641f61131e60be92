package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestWaitsSaysWhyAnEventIsNotDelivered(t *testing.T) {
	t.Parallel()
	kind := outbox.EventKind{AggregateType: "order", EventType: "placed"}
	now := time.Now().UTC().Truncate(time.Second)
	live := outbox.Node{Owner: "shop", Mode: "multi-node", Started: now.Add(-time.Hour), LastPoll: now}
	text := func(t time.Time) string { return t.Format("2006-01-02 15:04:05 UTC") }
	due := text(now.Add(-time.Minute))
	row := func(change func(*outbox.EventRow)) outbox.EventRow {
		r := outbox.EventRow{Envelope: outbox.Envelope{
			EventID: "e2", AggregateType: "order", EventType: "placed", AggregateID: "7", OccurredAt: now.Add(-time.Minute), AvailableAt: now.Add(-time.Minute),
		}}
		if change != nil {
			change(&r)
		}
		return r
	}
	late := func(r *outbox.EventRow) { r.AvailableAt = now.Add(time.Hour) }
	leased := func(by string) outbox.EventRow {
		return row(func(r *outbox.EventRow) { r.Lease, r.LeasedAt = by, now.Add(-time.Minute) })
	}
	for name, c := range map[string]struct {
		row   outbox.EventRow
		nodes []outbox.Node
		dead  []outbox.Node
		pause *outbox.Pause
		first outbox.Status // of the event e1 of the same key
		want  string
	}{
		"dead":     {row: row(func(r *outbox.EventRow) { r.Status = outbox.StatusDead }), want: ""},
		"done":     {row: row(func(r *outbox.EventRow) { r.Status = outbox.StatusDone }), want: ""},
		"delayed":  {row: row(late), nodes: []outbox.Node{live}, want: "it is delayed until " + text(now.Add(time.Hour))},
		"deferred": {row: row(func(r *outbox.EventRow) { late(r); r.LastError = "no invoice" }), want: "it is deferred until " + text(now.Add(time.Hour)) + ": no invoice"},
		"retry": {
			row: row(func(r *outbox.EventRow) {
				late(r)
				r.Status, r.Attempts, r.LastError = outbox.StatusRetry, 1, "refused"
			}),
			want: "1 attempt failed, and the next is at " + text(now.Add(time.Hour)) + ": refused",
		},
		"paused": {
			row: row(nil), nodes: []outbox.Node{live}, pause: &outbox.Pause{Kind: kind, Since: now, Until: now.Add(time.Hour), By: "ada", Reason: "provider down"},
			want: "its kind is paused since " + text(now) + " until " + text(now.Add(time.Hour)) + " by ada: provider down",
		},
		"published from the log": {
			row: row(late), nodes: []outbox.Node{{Owner: "log", Mode: "log", Log: &outbox.LogLag{}}}, pause: &outbox.Pause{Kind: kind, Since: now},
			want: "its row does not change: log publishes the rows of this table from the database's log",
		},
		"its key is paused": {
			row: row(nil), nodes: []outbox.Node{live}, pause: &outbox.Pause{Kind: kind, AggregateID: "7", Since: now, Until: now.Add(time.Hour), By: "ada", Reason: "provider down"},
			want: "its key is paused since " + text(now) + " until " + text(now.Add(time.Hour)) + " by ada: provider down",
		},
		"another key is paused": {
			row: row(nil), nodes: []outbox.Node{live}, pause: &outbox.Pause{Kind: kind, AggregateID: "8", Since: now, Until: now.Add(time.Hour)},
			first: outbox.StatusDead, want: "a process has yet to take it; it has been due since " + due,
		},
		"paused and in hand": {
			row: leased("shop/1/2"), nodes: []outbox.Node{live}, pause: &outbox.Pause{Kind: kind, Since: now},
			want: "its kind is paused since " + text(now) + "; and shop has it in hand since " + due,
		},
		"paused and delayed": {
			row: row(late), nodes: []outbox.Node{live}, pause: &outbox.Pause{Kind: kind, Since: now},
			want: "its kind is paused since " + text(now) + "; and it is delayed until " + text(now.Add(time.Hour)),
		},
		"paused by a listener": {
			row: row(nil), nodes: []outbox.Node{live}, pause: &outbox.Pause{Kind: kind, Since: now, By: "shop", Automatic: true},
			want: "its kind is paused since " + text(now) + " by a listener in shop; it is delivered when somebody resumes the kind",
		},
		"in hand": {row: leased("shop/1/2"), nodes: []outbox.Node{live}, want: "shop has it in hand since " + due},
		"of a process that died": {
			row: leased("shop/1/2"), dead: []outbox.Node{live},
			want: "another process takes it over when the lease of " + due + " expires",
		},
		"of a process that does not report": {row: leased("old/2"), nodes: []outbox.Node{live}, want: "under the lease old/2, of a process that does not report"},
		"no process":                        {row: row(nil), dead: []outbox.Node{live}, want: "no process delivers; it is delivered when a process of the service starts"},
		"only writers":                      {row: row(nil), nodes: []outbox.Node{{Owner: "api", Mode: "writer-only"}}, want: "no process delivers"},
		"no listener": {
			row: row(nil), nodes: []outbox.Node{{Owner: "shop", Mode: "multi-node", LastPoll: now, Kinds: []outbox.EventKind{}}},
			want: "no process has a listener for its kind; it is delivered when a process with such a listener starts",
		},
		"the process with the listener is gone": {
			row: row(nil), nodes: []outbox.Node{{Owner: "shop", Mode: "multi-node", LastPoll: now, Kinds: []outbox.EventKind{}}},
			dead: []outbox.Node{{Owner: "shop-2", Mode: "multi-node", Kinds: []outbox.EventKind{kind}}},
			want: "no process has a listener for its kind; shop-2, last seen at ",
		},
		"no poll": {
			row: row(nil), nodes: []outbox.Node{{Owner: "shop", Mode: "multi-node", Started: now.Add(-time.Hour), LastPoll: now.Add(-2 * time.Minute)}},
			want: "no process has polled since " + text(now.Add(-2*time.Minute)),
		},
		"its turn comes":      {row: row(nil), nodes: []outbox.Node{live}, first: outbox.StatusDead, want: "a process has yet to take it; it has been due since " + due},
		"behind a dead event": {row: row(nil), nodes: []outbox.Node{{Owner: "shop", Mode: "ordered-by-key", LastPoll: now}}, first: outbox.StatusDead, want: "event e1 of its aggregate is DEAD and holds it back until it is replayed or deleted"},
		"behind an event":     {row: row(nil), nodes: []outbox.Node{{Owner: "shop", Mode: "ordered-by-key", LastPoll: now}}, first: outbox.StatusNew, want: "event e1 of its aggregate comes first"},
		"behind a retry":      {row: row(nil), nodes: []outbox.Node{{Owner: "shop", Mode: "ordered-by-key", LastPoll: now}}, first: outbox.StatusRetry, want: "event e1 of its aggregate comes first (3 attempts failed, and the next is at " + text(now.Add(time.Hour)) + ": refused)"},
		"first of its key":    {row: row(nil), nodes: []outbox.Node{{Owner: "shop", Mode: "ordered-by-key", LastPoll: now}}, first: outbox.StatusDone, want: "a process has yet to take it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := outboxtest.NewStore()
			db := store.DB()
			ob, err := outbox.New(outbox.Config{DB: db, Store: store})
			require.NoError(t, err)
			insert := func(id string, at time.Time) {
				env := c.row.Envelope
				env.EventID, env.OccurredAt, env.AvailableAt = id, at, at
				require.NoError(t, store.Insert(t.Context(), db, []outbox.Envelope{env}, "", time.Time{}))
			}
			insert("e2", now.Add(-time.Minute))
			if c.want != "" {
				insert("e1", now.Add(-time.Hour))
			}
			mark := outbox.Mark{EventID: "e1", Error: "refused"}
			switch c.first {
			case outbox.StatusDead:
				_, err = store.Mark(t.Context(), db, outbox.OutcomeDead, []outbox.Mark{mark})
			case outbox.StatusRetry:
				mark.Attempts, mark.AvailableAt = 3, now.Add(time.Hour)
				_, err = store.Mark(t.Context(), db, outbox.OutcomeRetry, []outbox.Mark{mark})
			case outbox.StatusNew:
			case outbox.StatusDone:
				_, err = store.Mark(t.Context(), db, outbox.OutcomeDone, []outbox.Mark{mark})
			}
			require.NoError(t, err)
			for _, n := range c.nodes {
				require.NoError(t, store.Announce(t.Context(), db, n, time.Hour))
			}
			for _, n := range c.dead {
				require.NoError(t, store.Announce(t.Context(), db, n, -time.Second))
			}
			if c.pause != nil {
				require.NoError(t, store.Pause(t.Context(), db, *c.pause))
			}
			got, err := verdict.Waits(t.Context(), ob, &c.row, now)
			require.NoError(t, err)
			require.Contains(t, got, c.want)
			if c.want == "" {
				require.Empty(t, got)
			}
		})
	}
}

// The first reason of an outbox that is late is why its oldest event waits.
func TestALateOutboxSaysWhyItsOldestEventWaits(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	db := store.DB()
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	now := time.Now().UTC()
	insert := func(id string, event outbox.EventType, age time.Duration) {
		at := now.Add(-age)
		require.NoError(t, store.Insert(t.Context(), db, []outbox.Envelope{{
			EventID: id, EventType: event, AggregateType: "Order", AggregateID: id, Payload: outbox.JSON(1), OccurredAt: at, AvailableAt: at,
		}}, "", now))
	}
	paused := outbox.EventKind{AggregateType: "Order", EventType: "Paused"}
	require.NoError(t, store.Pause(t.Context(), db, outbox.Pause{Kind: paused}))
	require.NoError(t, store.Announce(t.Context(), db, outbox.Node{Owner: "shop", Mode: "multi-node", LastPoll: now, Kinds: []outbox.EventKind{paused}}, time.Hour))
	insert("e1", "Paused", 3*time.Hour)
	insert("e2", "Placed", time.Minute)
	said := func() string {
		t.Helper()
		facts, err := verdict.Read(t.Context(), ob, 0)
		require.NoError(t, err)
		return facts.Verdict().Summary
	}
	require.Equal(t, "In time, but look: Order/Paused paused (1 event due).", said())
	insert("e3", "Placed", 2*time.Hour)
	require.Regexp(t, `^Late by 2 h 0 min: the oldest, e3 of Order/Placed, waits since `+now.Add(-2*time.Hour).Format("15:04")+` UTC because no process has a listener for its kind, Order/Paused paused \(1 event due\)\.$`, said())
	require.NoError(t, store.Announce(t.Context(), db, outbox.Node{Owner: "shop", Mode: "multi-node", LastPoll: now, SeenAt: now}, -time.Second))
	require.NotContains(t, said(), "the oldest", "that no process delivers is said by itself")
}
