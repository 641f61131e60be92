package outboxtest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// change is an entry of the audit log.
type change struct {
	outbox.AuditEntry
	until time.Time
}

// RecordChange implements [outbox.Store].
func (s *Store) RecordChange(ctx context.Context, _ outbox.DB, entry outbox.AuditEntry, keep time.Duration) error {
	if err := s.lock(ctx, "recording a change in the audit log"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	now := s.clock()
	s.changes = append(s.changes, change{entry, now.Add(keep)})
	slices.SortFunc(s.changes, func(a, b change) int { return cmp.Compare(b.ID, a.ID) })
	s.changes = slices.DeleteFunc(s.changes, func(c change) bool { return !c.until.After(now) })
	s.changes = s.changes[:min(len(s.changes), outbox.AuditLimit)]
	return nil
}

// Audit implements [outbox.Store].
func (s *Store) Audit(ctx context.Context, _ outbox.DB, before string, limit int) ([]outbox.AuditEntry, error) {
	if err := s.lock(ctx, "reading the audit log"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []outbox.AuditEntry
	for _, c := range s.changes {
		if (before == "" || c.ID < before) && c.until.After(s.clock()) && len(list) < limit {
			list = append(list, c.AuditEntry)
		}
	}
	return list, nil
}
