package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestTheVerdictSaysWhetherAnOutboxIsWellAndWhy(t *testing.T) {
	at := time.Date(2026, 3, 1, 2, 13, 40, 0, time.UTC)
	kind := outbox.EventKind{AggregateType: "order", EventType: "placed"}
	other := outbox.EventKind{AggregateType: "order", EventType: "sent"}
	live := outbox.Node{Owner: "a", Mode: "multi-node", Live: true, SeenAt: at, Kinds: []outbox.EventKind{kind}}
	dead := outbox.Node{Owner: "b", Mode: "multi-node", SeenAt: at}
	writer := outbox.Node{Owner: "c", Mode: "writer-only", Live: true, SeenAt: at}
	unheard := outbox.Node{Owner: "d", Mode: "multi-node", Live: true, SeenAt: at, Unheard: []outbox.EventKind{kind, other}}
	reader := func(published time.Time, lag outbox.LogLag) outbox.Node {
		return outbox.Node{Owner: "log", Mode: "log", Live: true, SeenAt: at, LastPoll: published, Log: &lag}
	}
	for name, c := range map[string]struct {
		facts   verdict.Facts
		level   verdict.Level
		summary string
	}{
		"idle": {verdict.Facts{Nodes: []outbox.Node{live}}, verdict.Well, "Well: no event is due."},
		"at work": {
			verdict.Facts{Nodes: []outbox.Node{live, writer}, Throughput: outbox.Throughput{Done: 1200}, Stats: outbox.Stats{Due: 3, OldestDueAge: 200 * time.Millisecond}},
			verdict.Well, "Well: 1,200 events delivered in the last minute, the oldest due event has waited for 0.2 s.",
		},
		"nobody ever started": {verdict.Facts{}, verdict.Well, "Well: no event is due."},
		"no process":          {verdict.Facts{Stats: outbox.Stats{Due: 1}}, verdict.Attention, "In time, but look: no process delivers."},
		"another program reads the table": {
			verdict.Facts{Nodes: []outbox.Node{writer}, Stats: outbox.Stats{Due: 5}}, verdict.Well, "Well: 5 events are due.",
		},
		"a reader of the log": {
			verdict.Facts{Nodes: []outbox.Node{writer, reader(at, outbox.LogLag{Behind: 12_345, Kept: 1 << 30, Left: -1})}, Stats: outbox.Stats{Due: 5}},
			verdict.Well, "Well: log publishes the log, and is 12.3 kB behind.",
		},
		"a reader of a log without figures": {
			verdict.Facts{Nodes: []outbox.Node{writer, reader(at, outbox.LogLag{Behind: -1, Kept: -1, Left: -1})}}, verdict.Well, "Well: log publishes the log.",
		},
		"a reader that is behind": {
			verdict.Facts{Nodes: []outbox.Node{writer, reader(at.Add(-10*time.Minute), outbox.LogLag{Behind: 1, Kept: 1, Left: -1})}, Stats: outbox.Stats{OldestDueAge: 10 * time.Minute}},
			verdict.Late, "Late by 10 min 0 s: log has not published the whole log since 02:03 UTC.",
		},
		"a reader that may lose its place": {
			verdict.Facts{Nodes: []outbox.Node{writer, reader(at, outbox.LogLag{Behind: 1, Kept: 3e9, Left: 2e9})}},
			verdict.Attention, "In time, but look: the server drops log that log has not published when it has grown by 2 GB.",
		},
		"a reader that died": {
			verdict.Facts{Nodes: []outbox.Node{writer, {Owner: "log", Mode: "log", SeenAt: at, LastPoll: at, Log: &outbox.LogLag{}}}, Stats: outbox.Stats{Due: 5}},
			verdict.Attention, "In time, but look: no process delivers since 02:13 UTC, when log was last seen.",
		},
		"a dead node": {
			verdict.Facts{Nodes: []outbox.Node{live, dead}}, verdict.Attention, "In time, but look: 1 of 2 processes not seen since 02:13 UTC.",
		},
		"all nodes are dead": {
			verdict.Facts{Nodes: []outbox.Node{dead, {Owner: "e", Mode: "ordered", SeenAt: at.Add(time.Hour), LastPoll: at.Add(7 * time.Minute)}, writer}},
			verdict.Attention, "In time, but look: no process delivers since 03:13 UTC, when e was last seen (it last polled at 02:20 UTC).",
		},
		"a bad night": {
			verdict.Facts{
				Nodes: []outbox.Node{live, dead, unheard},
				Stats: outbox.Stats{
					Due: 40_000, Dead: outbox.StatsLimit, OldestDueAge: 64 * time.Minute,
					Paused: []outbox.Pause{{Kind: kind}, {Kind: other, Automatic: true}},
				},
			},
			verdict.Late, "Late by 1 h 4 min: 1 of 3 processes not seen since 02:13 UTC, order/sent without a listener in any process, 2 kinds paused, 1 of them by listeners, 100,000 or more events are dead.",
		},
		"the oldest has no listener": {
			verdict.Facts{
				Nodes: []outbox.Node{live, unheard}, Stats: outbox.Stats{Due: 9, OldestDueAge: time.Hour},
				Oldest: &verdict.Reason{Text: "the oldest, e1 of order/sent, waits since 02:13 UTC because no process has a listener for its kind"},
			},
			verdict.Late, "Late by 1 h 0 min: the oldest, e1 of order/sent, waits since 02:13 UTC because no process has a listener for its kind.",
		},
		"a kind with a long name": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{Paused: []outbox.Pause{{Kind: outbox.EventKind{AggregateType: "x", EventType: outbox.EventType(strings.Repeat("é", 100))}}}}},
			verdict.Attention, "In time, but look: x/" + strings.Repeat("é", 78) + "… paused.",
		},
		"a paused key": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{Paused: []outbox.Pause{{AggregateID: "1"}, {AggregateID: "2"}}}},
			verdict.Attention, "In time, but look: 2 keys paused.",
		},
		"slow": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{Due: 7, OldestDueAge: 301 * time.Second}},
			verdict.Late, "Late by 5 min 1 s: 7 events are due, and deliveries go on too slowly or fail.",
		},
		"a kind that may be late by a day": { // and that has been due for an hour: it is in neither figure
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{Due: 40}}, verdict.Well, "Well: 40 events are due.",
		},
		"a kind that may be late by seconds": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{Due: 12, Late: []outbox.LateKind{{Kind: kind, MaxDueAge: 5 * time.Second, Events: 12, OldestDueAge: 6 * time.Second}}}},
			verdict.Late, "Late by 6 s: 12 events of order/placed due for more than 5 s.",
		},
		"a kind of its own, and others": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{
				Due: 13, OldestDueAge: 6 * time.Minute, Late: []outbox.LateKind{{Kind: kind, MaxDueAge: 5 * time.Second, Events: 1, OldestDueAge: 6 * time.Second}},
			}},
			verdict.Late, "Late by 6 min 0 s: 1 event of order/placed due for more than 5 s, other events due for 6 min 0 s.",
		},
		"many kinds": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{Due: 5, Late: []outbox.LateKind{
				{Kind: kind, MaxDueAge: time.Second, Events: 1, OldestDueAge: 2 * time.Second},
				{Kind: other, MaxDueAge: time.Minute, Events: 1, OldestDueAge: time.Hour},
				{Kind: kind, MaxDueAge: time.Second},
				{Kind: kind},
				{Kind: kind},
			}}},
			verdict.Late, "Late by 1 h 0 min: 1 event of order/placed due for more than 1 s, 1 event of order/sent due for more than 1 min 0 s, 0 events of order/placed due for more than 1 s, 2 more kinds late.",
		},
		"a pause hides no second incident": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{
				Due: 1203, DuePaused: 1200, Paused: []outbox.Pause{{Kind: kind}}, Late: []outbox.LateKind{{Kind: other, MaxDueAge: 5 * time.Second, Events: 3, OldestDueAge: 8 * time.Second}},
			}},
			verdict.Late, "Late by 8 s: 3 events of order/sent due for more than 5 s, order/placed paused (1,200 events due).",
		},
		"paused events are not late": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{Due: 1, DuePaused: 1, Paused: []outbox.Pause{{Kind: kind, Automatic: true}}}},
			verdict.Attention, "In time, but look: order/placed paused by listeners (1 event due).",
		},
		"a replay without progress": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{Dead: 2, ReplayProgressAge: verdict.MaxReplayProgressAge + time.Second}},
			verdict.Attention, "In time, but look: a replay of delivered events has made no progress for 10 min 1 s, 2 events are dead.",
		},
		"a replay that makes progress": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{ReplayProgressAge: verdict.MaxReplayProgressAge}},
			verdict.Well, "Well: no event is due.",
		},
		"a bound of the user's": {
			verdict.Facts{Nodes: []outbox.Node{live}, Stats: outbox.Stats{Due: 1, OldestDueAge: 2 * time.Second}, MaxDueAge: time.Second},
			verdict.Late, "Late by 2 s: 1 event is due, and deliveries go on too slowly or fail.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.facts.Verdict()
			require.Equal(t, c.level, got.Level)
			require.Equal(t, c.summary, got.Summary)
		})
	}
}

func TestADurationHasTheUnitsThatFitIt(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 15 * time.Millisecond: "15 ms", 150 * time.Millisecond: "0.15 s", 200 * time.Millisecond: "0.2 s", time.Second: "1 s", 12340 * time.Millisecond: "12.3 s",
		61 * time.Second: "1 min 1 s", 64 * time.Minute: "1 h 4 min", 50 * time.Hour: "2 days",
	} {
		require.Equal(t, want, verdict.Span(d))
	}
}
