package conformance

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var claimTests = []storeTest{
	{"LeasesAndReturnsDueRows", claimLeases},
	{"RowsAreDueAtTheirTimeAndNotBefore", claimDue},
	{"OnlyNewAndRetryRows", claimStatuses},
	{"ChosenByDueTimeReturnedOldestFirst", claimOrder},
	{"CreatedBefore", claimCreatedBefore},
	{"OnlyRowsOfTheEventsThatAreNamed", claimNamed},
	{"RowsOfALiveLeaseAreSkipped", claimSkipsLeased},
	{"ConcurrentClaimsAreDisjointAndComplete", claimConcurrently},
	{"LockedRowsAreSkippedWithoutWaiting", claimSkipsLocked},
	{"NoDueRowsIsAnEmptyBatch", claimNothing},
}

func claimLeases(s *storeSuite) {
	envs := s.events(3)
	s.insert(envs...)
	before := s.now()
	b := s.claimFor("node-1/1", 2)
	s.sameIDs("ids", idsOf(b.Envelopes), idsOf(envs[:2]))
	for i, got := range b.Envelopes {
		for _, d := range diffEnvelopes(got, envs[i]) {
			s.t.Errorf("claimed event: %s", d)
		}
		row := s.row(got.EventID)
		if row.LockedBy != "node-1/1" {
			s.t.Fatalf("the row is under %q, want node-1/1", row.LockedBy)
		}
		s.duringCall("start of the lease", row.LockedAt, before)
		row.LockedBy, row.LockedAt = "", time.Time{}
		if want := (RawRow{CreatedAt: envs[i].OccurredAt, AvailableAt: envs[i].AvailableAt}); !sameRow(row, want) {
			s.t.Fatalf("a claim changes the lease alone:\n got %+v\nwant %+v", row, want)
		}
	}
	if left := s.row(envs[2].EventID); left.LockedBy != "" || !left.LockedAt.IsZero() {
		s.t.Fatalf("a row beyond the limit is leased: %+v", left)
	}
}

func claimDue(s *storeSuite) {
	env := s.event(0)
	env.AvailableAt = suiteTime.Add(time.Minute)
	s.insert(env)
	q := outbox.ClaimQuery{Now: env.AvailableAt.Add(-time.Microsecond), Limit: 10, Lease: "node-1/1", LockTimeout: time.Minute}
	s.count("rows a microsecond early", s.claim(q).Len(), 0)
	q.Now = env.AvailableAt
	s.count("rows at the time", s.claim(q).Len(), 1)
}

func claimNamed(s *storeSuite) {
	free, _ := s.insertedAs(outbox.StatusNew, "")
	expired, _ := s.insertedAs(outbox.StatusRetry, "node-2/1")
	s.expire(expired.EventID, time.Hour)
	held, row := s.insertedAs(outbox.StatusNew, "node-2/2")
	done, _ := s.insertedAs(outbox.StatusDone, "")
	other, otherRow := s.insertedAs(outbox.StatusNew, "")
	b := s.claim(outbox.ClaimQuery{
		Now: suiteTime.Add(later), Limit: 10, Lease: "node-1/1", LockTimeout: time.Minute,
		EventIDs: []string{held.EventID, expired.EventID, done.EventID, free.EventID, "no such event"},
	})
	s.sameIDs("ids", idsOf(b.Envelopes), []string{free.EventID, expired.EventID})
	s.count("attempts of the event that was free", b.Envelopes[0].Attempts, 0)
	s.count("attempts of the event whose lease expired", b.Envelopes[1].Attempts, 4)
	s.sameRow("a row under a live lease", held.EventID, row)
	s.sameRow("a row of another event", other.EventID, otherRow)
}

func claimStatuses(s *storeSuite) {
	fresh, _ := s.insertedAs(outbox.StatusNew, "")
	retry, row := s.insertedAs(outbox.StatusRetry, "")
	done, doneRow := s.insertedAs(outbox.StatusDone, "")
	dead, deadRow := s.insertedAs(outbox.StatusDead, "")
	b := s.claimFor("node-1/1", 10)
	s.sameIDs("ids", idsOf(b.Envelopes), []string{fresh.EventID, retry.EventID})
	s.count("attempts of the event in retry", b.Envelopes[1].Attempts, row.Attempts)
	if got := s.row(retry.EventID).Status; got != outbox.StatusRetry {
		s.t.Fatalf("the claim made the status %v", got)
	}
	s.sameRow("DONE row", done.EventID, doneRow)
	s.sameRow("DEAD row", dead.EventID, deadRow)
}

func claimOrder(s *storeSuite) {
	envs := orderEvents(s)
	shuffled := slices.Concat(envs[3:], envs[:3])
	slices.Reverse(shuffled)
	s.insert(shuffled...)
	s.sameIDs("the four that were due first", idsOf(s.claimFor("node-1/1", 4).Envelopes), idsOf(envs[2:]))
	s.sameIDs("the rest", idsOf(s.claimFor("node-1/2", 4).Envelopes), idsOf(envs[:2]))
}

func claimCreatedBefore(s *storeSuite) {
	envs := s.events(4)
	s.insert(envs...)
	b := s.claim(outbox.ClaimQuery{
		Now: suiteTime.Add(later), CreatedBefore: envs[2].OccurredAt, Limit: 10, Lease: "node-1/1", LockTimeout: time.Minute,
	})
	s.sameIDs("ids", idsOf(b.Envelopes), idsOf(envs[:3]))
}

func claimSkipsLeased(s *storeSuite) {
	envs := s.events(5)
	s.insert(envs...)
	s.sameIDs("the first node's", idsOf(s.claimFor("node-1/1", 2).Envelopes), idsOf(envs[:2]))
	s.sameIDs("the second node's", idsOf(s.claimFor("node-2/1", 2).Envelopes), idsOf(envs[2:4]))
	s.sameIDs("the first node's again", idsOf(s.claimFor("node-1/2", 10).Envelopes), idsOf(envs[4:]))
	s.count("rows when all are leased", s.claimFor("node-1/3", 10).Len(), 0)
}

func claimConcurrently(s *storeSuite) {
	const nodes, rows = 4, 200
	envs := s.events(rows)
	s.insert(envs...)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		claimed []string
		failure error
	)
	left := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(claimed) < rows && failure == nil && s.ctx.Err() == nil
	}
	for node := range nodes {
		n := 0
		q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 7, LockTimeout: time.Minute}
		wg.Go(func() {
			for left() {
				n++
				q.Lease = fmt.Sprintf("node-%d/%d", node, n)
				b, err := s.Store.Claim(s.ctx, s.DB, q)
				mu.Lock()
				claimed = append(claimed, idsOf(b.Envelopes)...)
				if err != nil {
					failure = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.ok("Claim", failure)
	slices.Sort(claimed)
	s.sameIDs("what all nodes claimed", claimed, idsOf(envs))
}

func claimSkipsLocked(s *storeSuite) {
	if s.LockRow == nil {
		s.t.Skip("the harness has no LockRow: this database has no locks on rows")
	}
	envs := s.events(6)
	s.insert(envs...)
	unlock := s.LockRow(s.t, envs[1].EventID)
	b := s.claimFor("node-1/1", 3)
	s.sameIDs("claimed beside the locked row", idsOf(b.Envelopes), []string{envs[0].EventID, envs[2].EventID, envs[3].EventID})
	unlock()
	s.sameIDs("claimed afterwards", idsOf(s.claimFor("node-2/1", 10).Envelopes), []string{envs[1].EventID, envs[4].EventID, envs[5].EventID})
}

func claimNothing(s *storeSuite) {
	b := s.claimFor("node-1/1", 10)
	s.count("rows of an empty table", b.Len(), 0)
}
