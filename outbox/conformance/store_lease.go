package conformance

import (
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var leaseTests = []storeTest{
	{"ExpiredLeaseIsTakenOverAndCostsAnAttempt", leaseTakeover},
	{"ExpiredLeasesAreLeftAloneByAClaimOfFreshRows", leaseFreshOnly},
	{"TakeoversAreAsFewAsTheLimit", leaseTakeoverLimit},
	{"ARepeatedClaimReturnsTheSameRows", leaseClaimAgain},
	{"LeasesAreByTheDatabasesClock", leaseByDatabaseClock},
	{"RenewStartsTheLeaseAgain", leaseRenew},
	{"RenewLeavesOtherLeasesAlone", leaseRenewOthers},
	{"ReleasedRowsAreClaimedAtOnce", leaseRelease},
}

// expire moves the start of a row's lease into the past.
func (s *storeSuite) expire(id string, by time.Duration) {
	s.t.Helper()
	s.edit(id, func(row *RawRow) { row.LockedAt = row.LockedAt.Add(-by) })
}

func leaseTakeover(s *storeSuite) {
	fresh, _ := s.insertedAs(outbox.StatusNew, "node-1/1")
	retry, _ := s.insertedAs(outbox.StatusRetry, "node-1/1")
	alive, aliveRow := s.insertedAs(outbox.StatusNew, "node-1/1")
	free, _ := s.insertedAs(outbox.StatusNew, "")
	s.expire(fresh.EventID, 2*time.Minute)
	s.expire(retry.EventID, 2*time.Minute)
	s.edit(alive.EventID, func(row *RawRow) {
		row.LockedAt = row.LockedAt.Add(-30 * time.Second)
		aliveRow = *row
	})

	before := s.now()
	b := s.claimFor("node-2/1", 10)
	s.sameIDs("ids", idsOf(b.Envelopes), []string{fresh.EventID, retry.EventID, free.EventID})
	for i, want := range []int{1, 4, 0} {
		id := b.Envelopes[i].EventID
		s.count("attempts of the envelope "+id, b.Envelopes[i].Attempts, want)
		row := s.row(id)
		row.Attempts = want
		s.leasedRow(id, "node-2/1", before, row)
	}
	if got := s.row(retry.EventID).Status; got != outbox.StatusRetry {
		s.t.Fatalf("the takeover made the status %v", got)
	}
	s.sameRow("row whose lease lasts", alive.EventID, aliveRow)

	// A node that takes over its own expired lease counts an attempt too.
	s.expire(fresh.EventID, 2*time.Minute)
	b = s.claimFor("node-2/2", 10)
	s.sameIDs("ids", idsOf(b.Envelopes), []string{fresh.EventID})
	s.count("attempts after another takeover", b.Envelopes[0].Attempts, 2)
}

func leaseFreshOnly(s *storeSuite) {
	expired, _ := s.insertedAs(outbox.StatusNew, "node-1/1")
	again, _ := s.insertedAs(outbox.StatusRetry, "node-1/1")
	alive, aliveRow := s.insertedAs(outbox.StatusNew, "node-1/1")
	fresh, _ := s.insertedAs(outbox.StatusNew, "")
	retry, _ := s.insertedAs(outbox.StatusRetry, "")
	s.expire(expired.EventID, 2*time.Minute)
	s.expire(again.EventID, 2*time.Minute)
	expiredRow, againRow := s.row(expired.EventID), s.row(again.EventID)

	q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 10, Lease: "node-2/1", LockTimeout: time.Minute, FreshOnly: true}
	b := s.claim(q)
	s.sameIDs("ids", idsOf(b.Envelopes), []string{fresh.EventID, retry.EventID})
	s.count("attempts of the event in retry", b.Envelopes[1].Attempts, 3)
	s.sameRow("NEW row whose lease expired", expired.EventID, expiredRow)
	s.sameRow("RETRY row whose lease expired", again.EventID, againRow)
	s.sameRow("row whose lease lasts", alive.EventID, aliveRow)
	q.Lease = "node-2/2"
	s.count("rows when all others are leased", s.claim(q).Len(), 0)

	q.FreshOnly = false
	s.sameIDs("taken over", idsOf(s.claim(q).Envelopes), []string{expired.EventID, again.EventID})
}

// Only a row that is taken counts an attempt: the dead node's other rows stay
// unchanged.
func leaseTakeoverLimit(s *storeSuite) {
	envs := s.events(5)
	s.insertFor("node-1/1", envs...)
	for _, env := range envs {
		s.expire(env.EventID, 2*time.Minute)
	}
	s.sameIDs("the first two", idsOf(s.claimFor("node-2/1", 2).Envelopes), idsOf(envs[:2]))
	for _, env := range envs[2:] {
		row := s.row(env.EventID)
		s.count("attempts of a row beyond the limit", row.Attempts, 0)
		if row.LockedBy != "node-1/1" {
			s.t.Fatalf("a row beyond the limit is under %q, want node-1/1", row.LockedBy)
		}
	}
	b := s.claimFor("node-3/1", 10)
	s.sameIDs("the rest", idsOf(b.Envelopes), idsOf(envs[2:]))
	s.count("attempts of the rest", b.Envelopes[2].Attempts, 1)
}

func leaseByDatabaseClock(s *storeSuite) {
	s.inserted()
	far := s.now().AddDate(10, 0, 0) // a node whose clock is ten years ahead
	q := outbox.ClaimQuery{Now: far, Limit: 10, Lease: "node-1/1", LockTimeout: time.Minute}
	before := s.now()
	b := s.claim(q)
	s.count("rows", b.Len(), 1)
	s.duringCall("start of the lease", s.row(b.Envelopes[0].EventID).LockedAt, before)
	q.Lease = "node-2/1"
	s.count("rows while the lease lasts by the database's clock", s.claim(q).Len(), 0)
}

// The answer to a claim may be lost. The repeated claim returns the rows that it
// leased, and counts no attempt twice.
func leaseClaimAgain(s *storeSuite) {
	fresh, _ := s.insertedAs(outbox.StatusRetry, "")
	expired, _ := s.insertedAs(outbox.StatusNew, "node-1/1")
	s.expire(expired.EventID, 2*time.Minute)
	ids, attempts := []string{fresh.EventID, expired.EventID}, []int{3, 1}
	for _, freshOnly := range []bool{false, false, true} {
		b := s.claim(outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 10, Lease: "node-2/1", LockTimeout: time.Minute, FreshOnly: freshOnly})
		s.sameIDs("rows of the lease", idsOf(b.Envelopes), ids)
		for i := range ids {
			s.count("attempts of the envelope "+ids[i], b.Envelopes[i].Attempts, attempts[i])
			s.count("attempts of the row "+ids[i], s.row(ids[i]).Attempts, attempts[i])
		}
	}
	s.count("rows for another claim of the node", s.claimFor("node-2/2", 10).Len(), 0)
}

func (s *storeSuite) renew(leases ...outbox.Lease) {
	s.t.Helper()
	s.ok("Renew", s.Store.Renew(s.ctx, s.DB, leases))
}

func leaseRenew(s *storeSuite) {
	first, firstRow := s.insertedAs(outbox.StatusRetry, "node-1/1")
	second, secondRow := s.insertedAs(outbox.StatusNew, "node-1/2")
	rows := map[string]RawRow{first.EventID: firstRow, second.EventID: secondRow}
	for id := range rows {
		s.expire(id, 2*time.Minute) // expired and not taken over: still held
	}
	before := s.now()
	s.renew(outbox.Lease{EventID: second.EventID, Name: "node-1/2"}, outbox.Lease{EventID: first.EventID, Name: "node-1/1"})
	for id, want := range rows {
		s.leasedRow(id, want.LockedBy, before, want)
	}
	s.count("rows that another node claims", s.claimFor("node-2/1", 10).Len(), 0)
}

func leaseRenewOthers(s *storeSuite) {
	mine, _ := s.insertedAs(outbox.StatusNew, "node-1/2")
	others, othersRow := s.insertedAs(outbox.StatusNew, "node-2/1")
	free, freeRow := s.insertedAs(outbox.StatusNew, "")
	old, oldRow := s.insertedAs(outbox.StatusNew, "node-1/3") // claimed again since
	s.expire(mine.EventID, 2*time.Minute)
	before := s.now()
	s.renew(
		outbox.Lease{EventID: mine.EventID, Name: "node-1/2"}, outbox.Lease{EventID: others.EventID, Name: "node-1/2"},
		outbox.Lease{EventID: free.EventID, Name: "node-1/1"}, outbox.Lease{EventID: old.EventID, Name: "node-1/2"},
		outbox.Lease{EventID: "no such event", Name: "node-1/1"})
	s.duringCall("start of the lease", s.row(mine.EventID).LockedAt, before)
	s.renew(outbox.Lease{EventID: old.EventID, Name: "node-1/2"})
	s.sameRow("row of another node", others.EventID, othersRow)
	s.sameRow("row without a lease", free.EventID, freeRow)
	s.sameRow("row under a later lease", old.EventID, oldRow)
	s.renew()
}

func leaseRelease(s *storeSuite) {
	envs := s.events(3)
	s.insertFor("node-1/1", envs...)
	s.mark(outbox.OutcomeReleased, "node-1/1", marksOf(envs[:2])...)
	b := s.claimFor("node-2/1", 10)
	s.sameIDs("claimed by another node", idsOf(b.Envelopes), idsOf(envs[:2]))
	s.count("attempts: a release is no failure", b.Envelopes[0].Attempts, 0)
}
