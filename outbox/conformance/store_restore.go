package conformance

import (
	"errors"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// aDeletion and anotherDeletion are ids of deletions.
const (
	aDeletion       = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	anotherDeletion = "01ARZ3NDEKTSV4RRFFQ69G5FAW"
)

// deletes deletes dead letters; an empty id of the deletion: for good.
func (s *storeSuite) deletes(want int, deletion string, at time.Time, ids ...string) {
	s.t.Helper()
	by := ""
	if deletion != "" {
		by = outbox.DeletedBy + deletion
	}
	n, err := s.Store.DeleteDead(s.ctx, s.DB, ids, by, at)
	s.ok("DeleteDead", err)
	s.count("dead letters that were deleted", n, want)
}

// restores restores the letters of a deletion at a time, in as many calls as the limit needs.
func (s *storeSuite) restores(want int, deletion string, at time.Time, limit int) {
	s.t.Helper()
	q := outbox.DeletedQuery{By: outbox.DeletedBy + deletion, Since: at, Until: at.Add(time.Millisecond), Limit: limit}
	n, err := s.Store.CountDeleted(s.ctx, s.DB, q)
	s.ok("CountDeleted", err)
	s.count("deleted letters that were counted", int(n), min(want, limit))
	r, err := s.Store.RestoreDead(s.ctx, s.DB, q)
	s.ok("RestoreDead", err)
	s.count("deleted letters that were found", r.Looked, min(want, limit))
	s.count("dead letters that were restored", r.Rows, min(want, limit))
	if r.Rows > 0 && (r.Last.Before(at) || !r.Last.Before(q.Until)) {
		s.t.Fatalf("the last restored letter was deleted at %v, want a time from %v on", r.Last, at)
	}
}

func restores(s *storeSuite) {
	rows, others := s.notDead()
	ids := []string{s.died(time.Second, nil).EventID, s.died(2*time.Second+time.Microsecond, nil).EventID, s.died(0, nil).EventID}
	s.edit(ids[2], func(row *RawRow) { row.DoneAt = time.Time{} }) // as another program may end a row
	before := s.allRows(ids)
	at := s.now()
	s.deletes(3, aDeletion, at, append([]string{"no such event", ids[0], ids[1], ids[2]}, others...)...)
	for i, id := range ids {
		want := before[i]
		want.Status, want.LockedBy, want.LockedAt, want.DoneAt = outbox.StatusDone, outbox.DeletedBy+aDeletion, want.DoneAt, at
		s.sameRow("deleted row", id, want)
	}
	s.deletes(0, anotherDeletion, at, ids...)
	s.restores(0, anotherDeletion, at, 10)
	s.restores(0, aDeletion, at.Add(time.Microsecond), 10)
	s.restores(0, aDeletion, at.Add(-time.Millisecond), 10)
	s.restores(3, aDeletion, at, 2)
	s.restores(1, aDeletion, at, 2)
	for i, id := range ids {
		s.sameRow("restored row", id, before[i])
	}
	s.restores(0, aDeletion, at, 10)
	s.unchanged("row that was not dead", rows...)

	s.deletes(1, aDeletion, at, ids[0])
	s.deletes(1, anotherDeletion, at, ids[1])
	s.restores(1, anotherDeletion, at, 10)
	s.deletes(2, "", time.Time{}, ids...)
	s.left("rows left after a deletion for good", ids, ids[:1])
	s.restores(1, aDeletion, at, 10)

	// The earliest come first, so that the next call begins at the last time.
	var batches []string
	for i := range 6 {
		batches = append(batches, s.died(time.Second, nil).EventID)
		s.deletes(1, anotherDeletion, at.Add(time.Duration(5-i)*time.Microsecond), batches[i])
	}
	q := outbox.DeletedQuery{By: outbox.DeletedBy + anotherDeletion, Since: at, Until: at.Add(time.Millisecond), Limit: 4}
	r, err := s.Store.RestoreDead(s.ctx, s.DB, q)
	s.ok("RestoreDead", err)
	if r.Rows != 4 || r.Looked != 4 || !r.Last.Equal(at.Add(3*time.Microsecond)) {
		s.t.Fatalf("the first four letters of a deletion: %+v, want those until %v", r, at.Add(3*time.Microsecond))
	}
	q.Since = r.Last
	s.restores(2, anotherDeletion, q.Since, 10)
}

func deletedLetters(s *storeSuite) {
	now := s.now()
	done := s.as(outbox.StatusDone, time.Second)
	leased := s.insertedAs(outbox.StatusNew, "node-1/1").EventID
	a, b, c := s.died(time.Second, nil), s.died(2*time.Second, nil), s.died(3*time.Second, nil)
	s.deletes(2, aDeletion, now.Add(-time.Second), a.EventID, c.EventID)
	s.deletes(1, anotherDeletion, now, b.EventID)
	s.count("dead letters", len(s.queryDead(outbox.DeadRowsQuery{})), 0)
	if _, err := s.Store.GetDead(s.ctx, s.DB, a.EventID); !errors.Is(err, outbox.ErrNotFound) {
		s.t.Fatalf("GetDead of a deleted letter: got %v, want ErrNotFound", err)
	}
	n, err := s.Store.ReplayDead(s.ctx, s.DB, []string{a.EventID}, suiteTime, outbox.StatusNew)
	s.ok("ReplayDead", err)
	s.count("deleted letters that were replayed", n, 0)
	t, err := s.Store.Throughput(s.ctx, s.DB, now.Add(-outbox.ThroughputWindow))
	s.ok("Throughput", err)
	if t != (outbox.Throughput{}) {
		s.t.Fatalf("deleted letters count as delivered: %+v", t)
	}
	s.finds("leased", outbox.EventFilter{Leased: true}, leased)
	s.finds("DONE", outbox.EventFilter{Statuses: doneStatuses}, b.EventID, c.EventID, a.EventID, done)
	of := func(deletion string) outbox.EventFilter {
		return outbox.EventFilter{Statuses: doneStatuses, DeletionID: deletion}
	}
	s.finds("of a deletion", of(aDeletion), c.EventID, a.EventID)
	s.finds("of another deletion", of(anotherDeletion), b.EventID)
	s.finds("of no deletion", of("01ARZ3NDEKTSV4RRFFQ69G5FAX"))
	s.finds("of a deletion, whatever the status", outbox.EventFilter{DeletionID: aDeletion}, c.EventID, a.EventID)
	row, err := s.Store.FindEvent(s.ctx, s.DB, a.EventID)
	s.ok("FindEvent", err)
	if row.Lease != outbox.DeletedBy+aDeletion || !row.LeasedAt.Equal(suiteTime.Add(time.Second)) || !row.EndedAt.Equal(now.Add(-time.Second)) {
		s.t.Fatalf("a deleted letter is read with lease %q of %v, ended at %v", row.Lease, row.LeasedAt, row.EndedAt)
	}
	nodes := s.nodes("which only have leases", outbox.Node{Owner: "node-1", Leases: 1})
	s.count("nodes", len(nodes), 1)
	s.leaves(outbox.OutcomeDone, []outbox.Mark{{EventID: a.EventID}}, nil) // a late outcome
	s.restores(2, aDeletion, now.Add(-time.Second), 10)
	s.count("events that were purged", s.purge(outbox.PurgeQuery{Before: now, Status: outbox.StatusDone, Limit: 100}), 1)
	s.count("deleted letters that were purged", s.purge(outbox.PurgeQuery{Before: now.Add(time.Microsecond), Status: outbox.StatusDone, Limit: 100}), 1)
	s.restores(0, anotherDeletion, now, 10)
}

// restoresAtOnce: two restorations and a purge meet. The rows are in no second state, and each is counted
// once.
func restoresAtOnce(s *storeSuite) {
	const letters = 40
	var ids []string
	for range letters {
		ids = append(ids, s.died(time.Second, nil).EventID)
	}
	at := s.now()
	s.deletes(letters, aDeletion, at, ids...)
	var counts [3]int
	var errs [3]error
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			for range letters {
				if errs[i] != nil {
					return
				}
				var n int
				if i < 2 {
					var r outbox.Restored
					r, errs[i] = s.Store.RestoreDead(s.ctx, s.DB, outbox.DeletedQuery{By: outbox.DeletedBy + aDeletion, Since: at, Until: at.Add(time.Millisecond), Limit: 5})
					n = r.Rows
				} else {
					var purged outbox.Purged
					purged, errs[i] = s.Store.Purge(s.ctx, s.DB, outbox.PurgeQuery{Before: at.Add(time.Second), Status: outbox.StatusDone, Limit: 3})
					n = purged.Rows
				}
				counts[i] += n
			}
		})
	}
	wg.Wait()
	s.ok("restoring and purging at once", errors.Join(errs[:]...))
	restored := len(s.queryDead(outbox.DeadRowsQuery{}))
	s.count("letters that were restored", counts[0]+counts[1], restored)
	s.count("letters that were restored or purged", restored+counts[2], letters)
}
