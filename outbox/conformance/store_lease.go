package conformance

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var leaseTests = []storeTest{
	{"ExpiredLeaseIsTakenOverAndCostsAnAttempt", leaseTakeover},
	{"ExpiredLeasesAreLeftAloneByAClaimOfFreshRows", leaseFreshOnly},
	{"TakeoversAreAsFewAsTheLimit", leaseTakeoverLimit},
	{"LeasesAreByTheDatabasesClock", leaseByDatabaseClock},
	{"LostLeaseRefusesEveryOutcome", leaseFencing},
	{"OutcomesWithoutOwnerAreNotFenced", leaseNoFencing},
	{"RenewStartsTheLeaseAnew", leaseRenew},
	{"RenewLeavesOthersAlone", leaseRenewOthers},
	{"ReleasedRowsAreClaimedAtOnce", leaseRelease},
	{"StatesSayHowRowsStand", leaseStates},
	{"MarkingRenewingClaimingAndPurgingAtOnceDoNotFail", leaseConcurrently},
}

// expire moves the start of a row's lease into the past.
func (s *storeSuite) expire(id string, by time.Duration) {
	s.t.Helper()
	s.edit(id, func(row *RawRow) { row.LockedAt = row.LockedAt.Add(-by) })
}

func leaseTakeover(s *storeSuite) {
	fresh, _ := s.insertedAs(outbox.StatusNew, "node-1")
	retry, _ := s.insertedAs(outbox.StatusRetry, "node-1")
	alive, aliveRow := s.insertedAs(outbox.StatusNew, "node-1")
	free, _ := s.insertedAs(outbox.StatusNew, "")
	s.expire(fresh.EventID, 2*time.Minute)
	s.expire(retry.EventID, 2*time.Minute)
	s.edit(alive.EventID, func(row *RawRow) {
		row.LockedAt = row.LockedAt.Add(-30 * time.Second)
		aliveRow = *row
	})

	before := s.now()
	b := s.claimFor("node-2", 10)
	s.sameIDs("ids", idsOf(b.Envelopes), []string{fresh.EventID, retry.EventID, free.EventID})
	for i, want := range []int{1, 4, 0} {
		id := b.Envelopes[i].EventID
		row := s.row(id)
		s.count("attempts of the envelope "+id, b.Envelopes[i].Attempts, want)
		s.count("attempts of the row "+id, row.Attempts, want)
		if row.LockedBy != "node-2" {
			s.t.Fatalf("the row is leased to %q, want node-2", row.LockedBy)
		}
		s.duringCall("start of the lease", row.LockedAt, before)
	}
	if got := s.row(retry.EventID).Status; got != outbox.StatusRetry {
		s.t.Fatalf("the takeover made the status %v", got)
	}
	s.sameRow("row whose lease lasts", alive.EventID, aliveRow)

	// A node that takes its own expired lease over pays too.
	s.expire(fresh.EventID, 2*time.Minute)
	b = s.claimFor("node-2", 10)
	s.sameIDs("ids", idsOf(b.Envelopes), []string{fresh.EventID})
	s.count("attempts after another takeover", b.Envelopes[0].Attempts, 2)
}

func leaseFreshOnly(s *storeSuite) {
	expired, _ := s.insertedAs(outbox.StatusNew, "node-1")
	again, _ := s.insertedAs(outbox.StatusRetry, "node-1")
	alive, aliveRow := s.insertedAs(outbox.StatusNew, "node-1")
	fresh, _ := s.insertedAs(outbox.StatusNew, "")
	retry, _ := s.insertedAs(outbox.StatusRetry, "")
	s.expire(expired.EventID, 2*time.Minute)
	s.expire(again.EventID, 2*time.Minute)
	expiredRow, againRow := s.row(expired.EventID), s.row(again.EventID)

	q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 10, Owner: "node-2", LockTimeout: time.Minute, FreshOnly: true}
	b := s.claim(q)
	s.sameIDs("ids", idsOf(b.Envelopes), []string{fresh.EventID, retry.EventID})
	s.count("attempts of the event in retry", b.Envelopes[1].Attempts, 3)
	s.sameRow("NEW row whose lease expired", expired.EventID, expiredRow)
	s.sameRow("RETRY row whose lease expired", again.EventID, againRow)
	s.sameRow("row whose lease lasts", alive.EventID, aliveRow)
	s.count("rows when all others are leased", s.claim(q).Len(), 0)

	q.FreshOnly = false
	s.sameIDs("taken over", idsOf(s.claim(q).Envelopes), []string{expired.EventID, again.EventID})
}

// Only what is taken costs an attempt: the rest of the dead node's rows stay as
// they are.
func leaseTakeoverLimit(s *storeSuite) {
	envs := s.events(5)
	s.insertFor("node-1", envs...)
	for _, env := range envs {
		s.expire(env.EventID, 2*time.Minute)
	}
	s.sameIDs("the first two", idsOf(s.claimFor("node-2", 2).Envelopes), idsOf(envs[:2]))
	for _, env := range envs[2:] {
		row := s.row(env.EventID)
		s.count("attempts of a row beyond the limit", row.Attempts, 0)
		if row.LockedBy != "node-1" {
			s.t.Fatalf("a row beyond the limit is leased to %q, want node-1", row.LockedBy)
		}
	}
	b := s.claimFor("node-3", 10)
	s.sameIDs("the rest", idsOf(b.Envelopes), idsOf(envs[2:]))
	s.count("attempts of the rest", b.Envelopes[2].Attempts, 1)
}

func leaseByDatabaseClock(s *storeSuite) {
	s.inserted()
	far := s.now().AddDate(10, 0, 0) // a node whose clock is ten years ahead
	q := outbox.ClaimQuery{Now: far, Limit: 10, Owner: "node-1", LockTimeout: time.Minute}
	before := s.now()
	b := s.claim(q)
	s.count("rows", b.Len(), 1)
	s.duringCall("start of the lease", s.row(b.Envelopes[0].EventID).LockedAt, before)
	q.Owner = "node-2"
	s.count("rows while the lease lasts by the database's clock", s.claim(q).Len(), 0)
}

// allKinds are the kinds of outcomes.
var allKinds = []outbox.Outcome{
	outbox.OutcomeDone, outbox.OutcomeDelete, outbox.OutcomeRetry, outbox.OutcomeDead, outbox.OutcomeDeferred, outbox.OutcomeReleased,
}

// markFor is an outcome with everything that a kind may use.
func markFor(id string) outbox.Mark {
	return outbox.Mark{EventID: id, AvailableAt: suiteTime.Add(24 * time.Hour), Error: "it failed", Attempts: 7}
}

func leaseFencing(s *storeSuite) {
	for _, kind := range allKinds {
		taken, row := s.insertedAs(outbox.StatusRetry, "node-2")
		s.count(kind.String()+" of a row that another node holds", s.mark(kind, "node-1", markFor(taken.EventID)), 0)
		s.sameRow(kind.String()+" of a row that another node holds", taken.EventID, row)

		free, row := s.insertedAs(outbox.StatusNew, "")
		s.count(kind.String()+" of a row that nobody holds", s.mark(kind, "node-1", markFor(free.EventID)), 0)
		s.sameRow(kind.String()+" of a row that nobody holds", free.EventID, row)

		both := []outbox.Mark{markFor(taken.EventID), markFor(free.EventID)}
		s.count(kind.String()+" of the row that the node holds", s.mark(kind, "node-2", both...), 1)
	}
}

func leaseNoFencing(s *storeSuite) {
	for _, kind := range allKinds {
		env, _ := s.insertedAs(outbox.StatusRetry, "node-1")
		s.count(kind.String(), s.mark(kind, "", markFor(env.EventID)), 1)
		if row, ok := s.Row(s.t, env.EventID); ok && (row.LockedBy != "" || !row.LockedAt.IsZero()) {
			s.t.Fatalf("%s leaves the lease: %+v", kind, row)
		}
	}
}

func leaseRenew(s *storeSuite) {
	env, want := s.insertedAs(outbox.StatusRetry, "node-1")
	s.expire(env.EventID, 2*time.Minute) // expired and not taken over: still held
	before := s.now()
	n, err := s.Store.Renew(s.ctx, s.DB, "node-1", []string{env.EventID})
	s.ok("Renew", err)
	s.count("renewed", n, 1)
	got := s.row(env.EventID)
	s.duringCall("start of the lease", got.LockedAt, before)
	got.LockedAt = want.LockedAt
	if !sameRow(got, want) {
		s.t.Fatalf("Renew changes locked_at alone:\n got %+v\nwant %+v", got, want)
	}
	s.count("rows that another node claims", s.claimFor("node-2", 10).Len(), 0)
}

func leaseRenewOthers(s *storeSuite) {
	mine, _ := s.insertedAs(outbox.StatusNew, "node-1")
	others, othersRow := s.insertedAs(outbox.StatusNew, "node-2")
	free, freeRow := s.insertedAs(outbox.StatusNew, "")
	n, err := s.Store.Renew(s.ctx, s.DB, "node-1", []string{mine.EventID, others.EventID, free.EventID, "no such event"})
	s.ok("Renew", err)
	s.count("renewed", n, 1)
	s.sameRow("row of another node", others.EventID, othersRow)
	s.sameRow("row of nobody", free.EventID, freeRow)

	n, err = s.Store.Renew(s.ctx, s.DB, "node-1", nil)
	s.ok("Renew of nothing", err)
	s.count("renewed of nothing", n, 0)
}

func leaseRelease(s *storeSuite) {
	envs := s.events(3)
	s.insertFor("node-1", envs...)
	s.count("released", s.mark(outbox.OutcomeReleased, "node-1", marksOf(envs[:2])...), 2)
	b := s.claimFor("node-2", 10)
	s.sameIDs("claimed by another node", idsOf(b.Envelopes), idsOf(envs[:2]))
	s.count("attempts: a release is no failure", b.Envelopes[0].Attempts, 0)
}

// leaseStates is for stores that can be asked.
func leaseStates(s *storeSuite) {
	reader, ok := s.Store.(outbox.StateReader)
	if !ok {
		s.t.Log("the store is no outbox.StateReader, which is an extra")
		return
	}
	want := map[string]outbox.RowState{}
	ids := []string{"no such event"}
	for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead} {
		for _, owner := range []string{"", "node-1"} {
			if owner != "" && status.Terminal() {
				continue
			}
			env, _ := s.insertedAs(status, owner)
			want[env.EventID] = outbox.RowState{Status: status, Owner: owner}
			ids = append(ids, env.EventID)
		}
	}
	got, err := reader.States(s.ctx, s.DB, ids)
	s.ok("States", err)
	if !maps.Equal(got, want) {
		s.t.Fatalf("States are %v, want %v", got, want)
	}
	got, err = reader.States(s.ctx, s.DB, nil)
	s.ok("States of nothing", err)
	s.count("states of nothing", len(got), 0)
}

// leaseConcurrently does at once what a node and its neighbours do at once: on
// the same rows, in different orders. Nothing may fail, as by a deadlock, and
// every row ends up marked once.
func leaseConcurrently(s *storeSuite) {
	const rows, batch = 300, 30
	envs := s.events(rows)
	s.insertFor("node-1", envs...)
	s.insert(s.events(batch)...) // for the neighbour to claim
	ids := idsOf(envs)
	backwards := slices.Clone(ids)
	slices.Reverse(backwards)

	var neighbours, marking sync.WaitGroup
	var mu sync.Mutex
	var failures []error
	done := make(chan struct{})
	fail := func(err error) {
		if err != nil {
			mu.Lock()
			failures = append(failures, err)
			mu.Unlock()
		}
	}
	until := func(fn func()) {
		neighbours.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					fn()
				}
			}
		})
	}
	until(func() {
		_, err := s.Store.Renew(s.ctx, s.DB, "node-1", backwards)
		fail(err)
	})
	until(func() {
		q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 5, Owner: "node-2", LockTimeout: time.Hour}
		_, err := s.Store.Claim(s.ctx, s.DB, q)
		fail(err)
	})
	until(func() {
		_, err := s.Store.Purge(s.ctx, s.DB, outbox.PurgeQuery{Before: suiteTime, Limit: 50})
		fail(err)
	})
	changed := 0
	for i, kind := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeRetry, outbox.OutcomeDead} {
		marking.Go(func() {
			for from := i * rows / 3; from < (i+1)*rows/3; from += batch {
				n, err := s.Store.Mark(s.ctx, s.DB, kind, "node-1", marksOf(envs[from:min(from+batch, (i+1)*rows/3)]))
				fail(err)
				mu.Lock()
				changed += n
				mu.Unlock()
			}
		})
	}
	marking.Wait()
	close(done)
	neighbours.Wait()
	if len(failures) > 0 {
		s.t.Fatalf("%d of the calls failed, the first: %v", len(failures), failures[0])
	}
	s.count("rows marked", changed, rows)
}
