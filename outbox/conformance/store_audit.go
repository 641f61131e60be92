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
	{"AnEntryEndsAndIsDeleted", func(s *storeSuite) {
		over, kept := outbox.AuditEntry{ID: "01", At: s.now(), Action: "pause"}, outbox.AuditEntry{ID: "02", At: s.now(), Action: "resume"}
		s.ok("RecordChange", s.Store.RecordChange(s.ctx, s.DB, over, -time.Second))
		s.audits("", 10)
		s.ok("RecordChange", s.Store.RecordChange(s.ctx, s.DB, kept, time.Hour))
		s.audits("", 10, kept)
		s.ok("RecordChange, again", s.Store.RecordChange(s.ctx, s.DB, over, time.Hour)) // the first is deleted
		s.audits("", 10, kept, over)
		pauses, err := s.Store.Paused(s.ctx, s.DB)
		s.ok("Paused", err)
		nodes, err := s.Store.Nodes(s.ctx, s.DB)
		s.ok("Nodes", err)
		if len(pauses)+len(nodes) > 0 {
			s.t.Fatalf("entries are read as something else: %+v, %+v", pauses, nodes)
		}
	}},
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
