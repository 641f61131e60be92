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
	{"OnlyRowsOfTheEventsThatAreNamed", claimNamed},
	{"RowsOfALiveLeaseAreSkipped", claimSkipsLeased},
	{"BehindAPlaceNoRowIsPassedOver", claimBehind},
	{"ConcurrentClaimsAreDisjointAndComplete", claimConcurrently},
	{"LockedRowsAreSkippedWithoutWaiting", claimSkipsLocked},
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
		s.leasedRow(got.EventID, "node-1/1", before, RawRow{CreatedAt: envs[i].OccurredAt, AvailableAt: envs[i].AvailableAt})
	}
	if left := s.row(envs[2].EventID); left.LockedBy != "" || !left.LockedAt.IsZero() {
		s.t.Fatalf("a row beyond the limit is leased: %+v", left)
	}
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

// claimBehind claims a mix of NEW and RETRY rows in batches, each behind the one
// before. No row may be passed over.
func claimBehind(s *storeSuite) {
	envs := s.events(12)
	s.insert(envs...)
	for _, env := range envs[3:7] { // of one kind in a row, and mixed
		s.edit(env.EventID, func(row *RawRow) { row.Status = outbox.StatusRetry })
	}
	s.edit(envs[10].EventID, func(row *RawRow) { row.Status = outbox.StatusRetry })
	for _, limit := range []int{1, 2, 3, 5} {
		q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: limit, LockTimeout: time.Minute}
		var claimed []string
		for n := 0; ; n++ {
			q.Lease = fmt.Sprintf("node-%d/%d", limit, n)
			b := s.claim(q)
			claimed = append(claimed, idsOf(b.Envelopes)...)
			if b.Len() < limit {
				break
			}
			q.After = b.Next
		}
		slices.Sort(claimed)
		s.sameIDs(fmt.Sprintf("claimed by %d at a time", limit), claimed, idsOf(envs))
		for _, env := range envs {
			s.edit(env.EventID, func(row *RawRow) { row.LockedBy, row.LockedAt = "", time.Time{} })
		}
	}
	place := outbox.Cursor{AvailableAt: envs[5].AvailableAt, CreatedAt: envs[5].OccurredAt, EventID: envs[5].EventID}
	b := s.claim(outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 12, Lease: "node-0/1", LockTimeout: time.Minute, After: place})
	s.sameIDs("claimed behind the sixth", idsOf(b.Envelopes), idsOf(envs[6:]))
}
