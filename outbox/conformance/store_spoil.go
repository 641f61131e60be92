package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// spoilt are events with unreadable rows, by the names in Spoil, between good events.
type spoilt struct {
	bad  map[string]outbox.Envelope
	good []outbox.Envelope
}

func (s *storeSuite) spoilt() spoilt {
	s.t.Helper()
	if len(s.Spoil) == 0 {
		s.t.Skip("the harness has no Spoil: this store cannot hold a row that does not decode")
	}
	sp := spoilt{bad: map[string]outbox.Envelope{}}
	for i, name := range slices.Sorted(maps.Keys(s.Spoil)) {
		bad, good := s.event(time.Duration(2*i)*time.Millisecond), s.event(time.Duration(2*i+1)*time.Millisecond)
		s.insert(bad, good)
		s.Spoil[name](s.t, bad.EventID)
		sp.bad[name], sp.good = bad, append(sp.good, good)
	}
	return sp
}

func (sp *spoilt) badIDs() []string {
	ids := idsOf(slices.Collect(maps.Values(sp.bad)))
	slices.Sort(ids)
	return ids
}

// reads checks the rows that were read: the good events, and the bad events with the wrong column.
func (sp *spoilt) reads(s *storeSuite, what string, good []outbox.Envelope, bad []outbox.Undecodable) {
	s.t.Helper()
	s.sameIDs(what+": good rows", idsOf(good), idsOf(sp.good))
	s.count(what+": rows that do not decode", len(bad), len(sp.bad))
	for name, env := range sp.bad {
		i := slices.IndexFunc(bad, func(row outbox.Undecodable) bool { return row.EventID == env.EventID })
		if i < 0 || bad[i].Err == nil {
			s.t.Fatalf("%s: the event with %s is not reported", what, name)
		}
		column, _, _ := strings.Cut(name, " ")
		s.mentions(bad[i].Err, column)
	}
}

// undecodableRows: a value that its column should not have affects only its own row, and fails no
// read.
func undecodableRows(s *storeSuite) {
	sp := s.spoilt()
	n := len(sp.good) + len(sp.bad)
	_, err := s.Store.NextDue(s.ctx, s.DB, suiteTime.Add(later))
	s.ok("NextDue", err)
	_, err = s.Store.Stats(s.ctx, s.DB, suiteTime.Add(later), nil)
	s.ok("Stats", err)
	_, err = s.Store.DueKinds(s.ctx, s.DB, outbox.DueKindsQuery{Now: suiteTime.Add(later)})
	s.ok("DueKinds", err)
	b := s.pollAt(later)
	sp.reads(s, "poll", b.Envelopes, b.Undecodable)

	// Polls of any size get to every row.
	for _, limit := range []int{1, 3, n} {
		q := outbox.PollQuery{Now: suiteTime.Add(later), Limit: limit}
		seen := map[string]bool{}
		for range 4 * n {
			b := s.poll(q)
			if b.Len() > limit {
				s.t.Fatalf("a page of %d rows, want at most %d", b.Len(), limit)
			}
			for _, env := range b.Envelopes {
				seen[env.EventID] = true
			}
			if b.Len() < limit {
				break
			}
			if q.After = b.Next; len(b.Envelopes) == 0 { // as the poller does
				s.mark(outbox.OutcomeDead, "", deadOf(b.Undecodable)...)
			}
		}
		for _, env := range sp.good {
			if !seen[env.EventID] {
				s.t.Fatalf("polls of %d rows do not get to event %s", limit, env.EventID)
			}
		}
	}

	sp = s.spoiltAnew(sp)
	b = s.claimFor("node-1/1", 10_000)
	sp.reads(s, "claim", b.Envelopes, b.Undecodable)
	listSpoilt(s, sp, outbox.EventFilter{})

	lease := "node-1/1"
	for _, spoil := range s.SpoilLease { // as if the process died before it marked the rows
		for _, id := range sp.badIDs() {
			spoil(s.t, id)
		}
		lease += "again"
		b = s.claimFor(lease, 10_000)
		s.count("rows that do not decode, claimed again", len(b.Undecodable), len(sp.bad))
	}
	s.mark(outbox.OutcomeDead, lease, deadOf(b.Undecodable)...)
	s.sameIDs("rows left", s.leasedUnder("node-1/1"), idsOf(sp.good))
	listSpoilt(s, sp, outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusDead}})
	buryAndReplay(s, sp)
}

func deadOf(rows []outbox.Undecodable) []outbox.Mark {
	marks := make([]outbox.Mark, len(rows))
	for i, row := range rows {
		marks[i] = outbox.Mark{EventID: row.EventID, Error: "spoilt"}
	}
	return marks
}

// spoiltAnew deletes the events and makes new events.
func (s *storeSuite) spoiltAnew(sp spoilt) spoilt {
	s.t.Helper()
	ids := append(idsOf(sp.good), sp.badIDs()...)
	for _, id := range ids {
		_, err := s.Store.Mark(s.ctx, s.DB, outbox.OutcomeDelete, []outbox.Mark{{EventID: id}})
		s.ok("Mark delete", err)
	}
	return s.spoilt()
}

// unreadableLeases: a lease whose time is no time has expired, in each read that asks for the
// lease.
func unreadableLeases(s *storeSuite) {
	if len(s.SpoilLease) == 0 {
		s.t.Skip("the harness has no SpoilLease: this store cannot hold such a lease")
	}
	var ids []string
	for _, name := range slices.Sorted(maps.Keys(s.SpoilLease)) {
		for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry} {
			row := s.insertedAs(status, "node-1/1")
			s.SpoilLease[name](s.t, row.EventID)
			ids = append(ids, row.EventID)
		}
	}
	keyed := s.keyed("spoilt lease", held, keyRow{})
	for _, spoil := range s.SpoilLease {
		spoil(s.t, keyed[0])
	}
	b := s.pollAt(later)
	expired := eventsOf(b.Expired)
	s.sameIDs("polled, free", idsOf(b.Envelopes), keyed[1:])
	s.sameIDs("polled, whose lease expired", expired, append(slices.Clone(ids), keyed[0]))
	_, err := s.Store.Nodes(s.ctx, s.DB)
	s.ok("Nodes", err)
	if _, reads := s.Store.(outbox.RunReader); reads {
		s.sameRuns("runs", s.runs(outbox.RunQuery{}).EventIDs, nil)
		var takeovers [][]string
		for _, id := range append(slices.Clone(ids), keyed[0]) {
			takeovers = append(takeovers, []string{id})
		}
		s.sameRuns("runs that are taken over", s.runs(outbox.RunQuery{Takeovers: true}).EventIDs, takeovers)
	}
	b = s.claimFor("node-2/1", 1000)
	s.sameIDs("claimed", idsOf(b.Envelopes), append(ids, keyed...))
	s.count("attempts: a process may have died with the event", b.Envelopes[0].Attempts, 1)
	s.sameIDs("under the new lease", s.leasedUnder("node-2/1"), append(ids, keyed...))
}

// listSpoilt: operators see the unreadable rows.
func listSpoilt(s *storeSuite, sp spoilt, filter outbox.EventFilter) {
	s.t.Helper()
	page, err := s.Store.FindEvents(s.ctx, s.DB, outbox.EventQuery{EventFilter: filter, Limit: 10_000})
	s.ok("FindEvents", err)
	listed := map[string]bool{}
	for _, event := range page.Rows {
		listed[event.EventID] = true
	}
	for name, env := range sp.bad {
		if !listed[env.EventID] {
			s.t.Fatalf("the event with %s is not listed", name)
		}
		_, err := s.Store.FindEvent(s.ctx, s.DB, env.EventID)
		s.ok("FindEvent of the event with "+name, err)
	}
}

// buryAndReplay: the unreadable rows are ordinary dead letters.
func buryAndReplay(s *storeSuite, sp spoilt) {
	s.t.Helper()
	got := deadIDs(s.queryDead(outbox.DeadRowsQuery{}))
	slices.Sort(got)
	s.sameIDs("dead letters", got, sp.badIDs())
	for name, env := range sp.bad {
		letter, err := s.Store.GetDead(s.ctx, s.DB, env.EventID)
		s.ok("GetDead of the event with "+name, err)
		if letter.LastError != "spoilt" || letter.DiedAt.IsZero() {
			s.t.Fatalf("the dead letter of the event with %s: %s", name, fmt.Sprint(letter.LastError, letter.DiedAt))
		}
	}
	n, err := s.Store.ReplayDead(s.ctx, s.DB, got, suiteTime, outbox.StatusNew)
	s.ok("ReplayDead", err)
	s.count("events that were replayed", n, len(got))
	b := s.pollAt(later)
	s.mark(outbox.OutcomeDead, "", deadOf(b.Undecodable)...)
	letters := deadIDs(s.queryDead(outbox.DeadRowsQuery{}))
	s.deletes(len(b.Undecodable), aDeletion, suiteTime, letters...)
	s.restores(len(b.Undecodable), aDeletion, suiteTime, 1000)
	s.sameIDs("dead letters that were restored", deadIDs(s.queryDead(outbox.DeadRowsQuery{})), letters)
	s.deletes(len(b.Undecodable), "", time.Time{}, letters...)
}
