package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// auditTests: the audit log.
var auditTests = []storeTest{
	{"EntriesAreReadAsTheyWereRecorded", func(s *storeSuite) {
		s.audits("", 10)
		var want []outbox.AuditEntry
		for i := range 5 {
			e := outbox.AuditEntry{ID: fmt.Sprintf("0%d", i), At: s.now(), Action: "replay"}
			if i == 2 {
				e.Operator = outbox.Operator{Name: `anna "é🎉"`, From: "10.0.0.7"}
				e.Target, e.Count, e.Reason, e.Incomplete = `event_id=a'b\`, 7, "a reason", true
				e.DeletionID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
			}
			s.ok("RecordChange", s.Store.RecordChange(s.ctx, s.DB, e, time.Hour))
			want = append(want, e)
		}
		slices.Reverse(want)
		s.audits("", 10, want...)
		s.audits("", 2, want[:2]...)
		s.audits(want[1].ID, 2, want[2:4]...)
		s.audits(want[4].ID, 2)
	}},
	{"EntriesEndAndAreDeleted", func(s *storeSuite) {
		kept, over := s.audited("02", time.Hour), s.audited("01", -time.Second)
		alsoOver := s.audited("03", -time.Second)
		s.audits("", 10, kept)
		s.forgets(10, 1, 1)
		s.forgets(10, 10, 1)
		s.forgets(10, 10, 0)
		for _, e := range []outbox.AuditEntry{over, alsoOver} { // the entries with these ids are deleted
			s.ok("RecordChange, again", s.Store.RecordChange(s.ctx, s.DB, e, time.Hour))
		}
		s.audits("", 10, alsoOver, kept, over)
	}},
	{"OnlyTheNewestEntriesAreKept", func(s *storeSuite) {
		var all []outbox.AuditEntry
		for i := range 7 {
			all = append(all, s.audited(fmt.Sprintf("0%d", i), time.Hour))
		}
		slices.Reverse(all)
		s.forgets(7, 10, 0)
		s.forgets(3, 2, 2)
		s.forgets(3, 2, 2)
		s.forgets(3, 2, 0)
		s.audits("", 10, all[:3]...)
	}},
	{"EntriesAreNeitherPausesNorNodes", func(s *storeSuite) {
		kind := outbox.EventKind{AggregateType: "A", EventType: "T"}
		s.ok("Pause", s.Store.Pause(s.ctx, s.DB, outbox.Pause{Kind: kind, Since: s.now()}))
		s.audited("01", time.Hour)
		pauses, err := s.Store.Paused(s.ctx, s.DB)
		s.ok("Paused", err)
		nodes, err := s.Store.Nodes(s.ctx, s.DB)
		s.ok("Nodes", err)
		if len(pauses) != 1 || len(nodes) > 0 {
			s.t.Fatalf("entries are read as something else: %+v, %+v", pauses, nodes)
		}
		s.forgets(0, 10, 1)
		if pauses, err = s.Store.Paused(s.ctx, s.DB); err != nil || len(pauses) != 1 {
			s.t.Fatalf("the pause is gone with the entries: %+v, %v", pauses, err)
		}
	}},
}

// audited records an entry.
func (s *storeSuite) audited(id string, keep time.Duration) outbox.AuditEntry {
	s.t.Helper()
	e := outbox.AuditEntry{ID: id, At: s.now(), Action: "pause"}
	s.ok("RecordChange", s.Store.RecordChange(s.ctx, s.DB, e, keep))
	return e
}

// forgets deletes old entries, and compares how many were deleted.
func (s *storeSuite) forgets(keep, limit, want int) {
	s.t.Helper()
	n, err := s.Store.ForgetChanges(s.ctx, s.DB, keep, limit)
	s.ok("ForgetChanges", err)
	if n != want {
		s.t.Fatalf("ForgetChanges(%d, %d) deleted %d entries; want %d", keep, limit, n, want)
	}
}

// audits reads entries of the audit log and compares them.
func (s *storeSuite) audits(before string, limit int, want ...outbox.AuditEntry) {
	s.t.Helper()
	got, err := s.Store.Audit(s.ctx, s.DB, before, limit)
	s.ok("Audit", err)
	same := func(a, b outbox.AuditEntry) bool {
		at := a.At.Equal(b.At)
		a.At, b.At = time.Time{}, time.Time{}
		return at && a == b
	}
	if !slices.EqualFunc(got, want, same) {
		s.t.Fatalf("the audit log before %q:\n got %+v\nwant %+v", before, got, want)
	}
}
