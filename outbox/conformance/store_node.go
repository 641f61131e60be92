package conformance

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var nodeTests = []storeTest{
	{"AReportIsReplacedAndWithdrawn", nodeReports},
	{"AReportExpires", nodeExpires},
	{"HoldersAndOwnersOfLeasesAreNodes", nodeOwners},
	{"LeasesBehindManyDueRowsAreThoseOfTheReport", nodeHiddenLeases},
}

func (s *storeSuite) announces(node outbox.Node, d time.Duration) {
	s.t.Helper()
	s.ok("Announce", s.Store.Announce(s.ctx, s.DB, node, d))
}

// nodes compares the nodes, except for the times that the database sets.
func (s *storeSuite) nodes(what string, want ...outbox.Node) []outbox.Node {
	s.t.Helper()
	got, err := s.Store.Nodes(s.ctx, s.DB)
	s.ok("Nodes", err)
	same := slices.EqualFunc(got, want, func(a, b outbox.Node) bool {
		times := a.Started.Equal(b.Started) && a.LastPoll.Equal(b.LastPoll)
		a.Started, a.LastPoll, a.SeenAt, a.OldestLease = b.Started, b.LastPoll, b.SeenAt, b.OldestLease
		return times && reflect.DeepEqual(a, b)
	})
	if !same {
		s.t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
	return got
}

func nodeReports(s *storeSuite) {
	s.nodes("an empty table")
	s.ok("Withdraw of nothing", s.Store.Withdraw(s.ctx, s.DB, "node-1"))
	before := s.now()
	one := outbox.Node{
		Owner: "node-1", Mode: "multi-node", Version: `v1.2.3+"é"`, Started: suiteTime, LastPoll: suiteTime.Add(time.Second), HotDepth: 3, ColdDepth: 4,
		Totals: &outbox.Totals{
			Written: 1 << 53, Delivered: 2, Failed: 3, Latencies: []int64{0, 2},
			Kinds: []outbox.KindTotals{{Kind: outbox.EventKind{AggregateType: "a/b", EventType: "<é>"}, Delivered: 1 << 53, Failed: 1}, {Kind: outbox.EventKind{AggregateType: outbox.Global, EventType: "Sent"}, Delivered: 1}},
		},
		Kinds: []outbox.EventKind{{AggregateType: "a/b", EventType: "<é>"}}, Unheard: []outbox.EventKind{{AggregateType: outbox.Global, EventType: "Lost"}},
		MaxDueAges: []outbox.KindAge{{Kind: outbox.EventKind{AggregateType: "a/b", EventType: "<é>"}, MaxDueAge: 24*time.Hour + time.Microsecond}},
		Log:        &outbox.LogLag{Behind: 1 << 53, Kept: 0, Left: -1},
	}
	two := outbox.Node{Owner: strings.Repeat("é", 112), Mode: "ordered", Started: suiteTime, Kinds: []outbox.EventKind{}} // a list that is empty is known
	s.announces(two, time.Hour)
	s.announces(one, time.Hour)
	listed := func(node outbox.Node) outbox.Node { node.Live = true; return node }
	for _, got := range s.nodes("by owner", listed(one), listed(two)) {
		s.duringCall("the time of the report of "+got.Owner, got.SeenAt, before)
	}
	one.Totals = &outbox.Totals{}
	one.HotDepth, one.LastPoll = 9, suiteTime.Add(time.Minute)
	s.announces(one, time.Hour)
	s.nodes("replaced", listed(one), listed(two))
	s.pauses(outbox.Pause{Kind: outbox.EventKind{AggregateType: "order", EventType: "Paid"}, Since: suiteTime}) // another row of the control table
	s.ok("Withdraw", s.Store.Withdraw(s.ctx, s.DB, "node-1"))
	s.nodes("withdrawn", listed(two))
}

func nodeExpires(s *storeSuite) {
	dead := outbox.Node{Owner: "node-1", Mode: "ordered", Started: suiteTime}
	s.announces(dead, -59*time.Minute)
	s.announces(outbox.Node{Owner: "node-2"}, time.Hour)
	s.nodes("one that died", dead, outbox.Node{Owner: "node-2", Live: true})
	s.announces(dead, -61*time.Minute)
	s.announces(outbox.Node{Owner: "node-2"}, time.Hour)
	s.nodes("one that died over an hour ago", outbox.Node{Owner: "node-2", Live: true})
}

func nodeHiddenLeases(s *storeSuite) {
	s.announces(outbox.Node{Owner: "node-1", Mode: "multi-node", Leases: 7}, time.Hour)
	s.nodes("few rows are due, so that the leases are counted", outbox.Node{Owner: "node-1", Mode: "multi-node", Live: true})
	for range outbox.SearchLimit / 500 { // as with events of a paused kind
		envs := make([]outbox.Envelope, 500)
		for i := range envs {
			envs[i] = s.event(0)
		}
		s.insert(envs...)
	}
	behind := s.event(time.Minute)
	s.insert(behind)
	s.edit(behind.EventID, func(row *RawRow) { row.LockedBy, row.LockedAt = "node-1/1", s.now() })
	s.nodes("the report has what is behind them", outbox.Node{Owner: "node-1", Mode: "multi-node", Live: true, Leases: 7})
}

func nodeOwners(s *storeSuite) {
	s.holds("node-1", time.Hour)
	s.nodes("a holder that does not report", outbox.Node{Owner: "node-1", Holds: true})
	s.announces(outbox.Node{Owner: "node-1", Mode: "single-node"}, time.Hour)
	s.nodes("a holder that reports", outbox.Node{Owner: "node-1", Mode: "single-node", Live: true, Holds: true})
	s.holds("node-3", -time.Second)
	s.nodes("no holder any more", outbox.Node{Owner: "node-1", Mode: "single-node", Live: true})

	before := s.now()
	s.leasedFor(time.Hour, outbox.StatusRetry, "host/a/1")
	s.insertedAs(outbox.StatusNew, "host/a/2")
	s.insertedAs(outbox.StatusNew, "node-1/1")
	s.inserted()
	s.edit(s.insertedAs(outbox.StatusNew, "node-1/1").EventID, func(row *RawRow) { row.AvailableAt = before.Add(time.Hour) }) // not due
	s.insertedAs(outbox.StatusDone, "node-2/1")
	got := s.nodes("owners of leases",
		outbox.Node{Owner: "host/a", Leases: 2},
		outbox.Node{Owner: "node-1", Mode: "single-node", Live: true, Leases: 1})
	if age := before.Sub(got[0].OldestLease); age < time.Hour-time.Minute {
		s.t.Fatalf("the oldest lease is %s old, want an hour", age)
	}
}

// holds gives an owner the right to all rows.
func (s *storeSuite) holds(owner string, d time.Duration) {
	s.t.Helper()
	was := s.ranges()
	next := outbox.Ranges{Version: was.Version + "+", Ranges: []outbox.Range{{Name: owner, Until: was.Now.Add(d)}}}
	if !s.sets(was.Version, next) {
		s.t.Fatal("the ranges are not set")
	}
}
