package conformance

import (
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// dueTests hold for polls and claims alike.
var dueTests = []storeTest{
	{"RowsAreDueAtTheirTimeAndNotBefore", func(s *storeSuite) {
		s.count("rows claimed from an empty table", s.claimFor("node-1/1", 10).Len(), 0)
		env := s.event(0)
		env.AvailableAt = suiteTime.Add(time.Minute)
		s.insert(env)
		early, late := outbox.PollQuery{Now: env.AvailableAt.Add(-time.Microsecond), Limit: 10}, outbox.PollQuery{Now: env.AvailableAt, Limit: 10}
		s.count("rows polled a microsecond early", s.poll(early).Len(), 0)
		b := s.poll(late)
		s.count("rows polled at the time", b.Len(), 1)
		if b.Next.EventID != env.EventID || !b.Next.AvailableAt.Equal(env.AvailableAt) || !b.Next.CreatedAt.Equal(env.OccurredAt) {
			s.t.Fatalf("Next is %+v, want the place of %v", b.Next, env)
		}
		s.count("rows polled afterwards", s.pollAt(later).Len(), 1)
		s.count("rows claimed a microsecond early", s.claim(claimOf(early)).Len(), 0)
		s.count("rows claimed at the time", s.claim(claimOf(late)).Len(), 1)
	}},
	// Due times are in the opposite order of the creation, with two events created at
	// the same time.
	{"ChosenByDueTimeReturnedOldestFirst", func(s *storeSuite) {
		envs := make([]outbox.Envelope, 6)
		for i := range envs {
			envs[i] = s.event(time.Duration(i) * time.Second)
			envs[i].AvailableAt = suiteTime.Add(time.Minute - time.Duration(i)*time.Second)
		}
		envs[4].OccurredAt = envs[3].OccurredAt
		shuffled := slices.Concat(envs[3:], envs[:3])
		slices.Reverse(shuffled)
		s.insert(shuffled...)
		s.sameIDs("all polled", idsOf(s.pollAt(later).Envelopes), idsOf(envs))
		b := s.poll(outbox.PollQuery{Now: suiteTime.Add(later), Limit: 4})
		s.sameIDs("polled: the four that were due first", idsOf(b.Envelopes), idsOf(envs[2:]))
		s.sameIDs("claimed: the four that were due first", idsOf(s.claimFor("node-1/1", 4).Envelopes), idsOf(envs[2:]))
		s.sameIDs("claimed: the rest", idsOf(s.claimFor("node-1/2", 4).Envelopes), idsOf(envs[:2]))
	}},
	{"CreatedBefore", func(s *storeSuite) {
		envs := s.events(4)
		s.insert(envs...)
		q := outbox.PollQuery{Now: suiteTime.Add(later), CreatedBefore: envs[2].OccurredAt.Add(-time.Microsecond), Limit: 10}
		s.sameIDs("polled a microsecond earlier", idsOf(s.poll(q).Envelopes), idsOf(envs[:2]))
		q.CreatedBefore = envs[2].OccurredAt
		s.sameIDs("polled", idsOf(s.poll(q).Envelopes), idsOf(envs[:3]))
		s.sameIDs("claimed", idsOf(s.claim(claimOf(q)).Envelopes), idsOf(envs[:3]))
	}},
	{"ExceptedKindsAreLeftOut", dueExcept},
	{"UptoAPlace", dueUpto},
}

// claimOf is a claim of the rows that a poll reads.
func claimOf(q outbox.PollQuery) outbox.ClaimQuery {
	return outbox.ClaimQuery{Now: q.Now, CreatedBefore: q.CreatedBefore, Limit: q.Limit, Lease: "node-1/1", LeaseDuration: time.Minute, Except: q.Except, After: q.After, Upto: q.Upto}
}

// dueExcept excepts pairs of types: each type alone also occurs in events that stay.
func dueExcept(s *storeSuite) {
	kinds := []outbox.EventKind{
		{AggregateType: "Order", EventType: "Placed"},
		{AggregateType: "Order", EventType: "Paid"},
		{AggregateType: "Cart", EventType: "Placed"},
		{AggregateType: outbox.Global, EventType: "Placed"},
		{AggregateType: outbox.Global, EventType: "Paid"},
	}
	envs := s.events(2 * len(kinds))
	for i := range envs {
		envs[i].AggregateType, envs[i].EventType = kinds[i%len(kinds)].AggregateType, kinds[i%len(kinds)].EventType
	}
	s.insert(envs...)
	s.edit(envs[6].EventID, func(row *RawRow) { row.Status = outbox.StatusRetry })
	q := outbox.PollQuery{Now: suiteTime.Add(later), Limit: 3, Except: []outbox.EventKind{kinds[0], kinds[4], {AggregateType: "Cart", EventType: "Paid"}}}
	stay := []string{envs[1].EventID, envs[2].EventID, envs[3].EventID, envs[6].EventID, envs[7].EventID, envs[8].EventID}
	first := s.poll(q)
	s.sameIDs("polled", idsOf(first.Envelopes), stay[:3])
	behind := q
	behind.After = first.Next
	s.sameIDs("polled behind them", idsOf(s.poll(behind).Envelopes), stay[3:])
	all := claimOf(q)
	all.Limit = 10
	s.sameIDs("claimed", idsOf(s.claim(all).Envelopes), stay)
	named := claimOf(q)
	named.Lease, named.EventIDs, named.Limit = "node-1/2", []string{envs[0].EventID, envs[4].EventID}, 10
	s.count("claimed of those left out, by their ids", s.claim(named).Len(), 0)
	q.Except, q.Limit = nil, 10
	s.sameIDs("polled without exceptions", idsOf(s.poll(q).Envelopes), []string{envs[0].EventID, envs[4].EventID, envs[5].EventID, envs[9].EventID})
}
