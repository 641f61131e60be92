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
	i, _ := slices.BinarySearchFunc(s.changes, entry.ID, func(c change, id string) int { return cmp.Compare(c.ID, id) })
	s.changes = slices.Insert(s.changes, i, change{entry, s.clock().Add(keep)})
	return nil
}

// ForgetChanges implements [outbox.Store].
func (s *Store) ForgetChanges(ctx context.Context, _ outbox.DB, keep, limit int) (int, error) {
	if err := s.lock(ctx, "deleting old entries of the audit log"); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	before, now, over := len(s.changes), s.clock(), 0
	s.changes = slices.Delete(s.changes, 0, min(max(before-keep, 0), limit))
	s.changes = slices.DeleteFunc(s.changes, func(c change) bool {
		ends := !c.until.After(now) && over < limit
		if ends {
			over++
		}
		return ends
	})
	return before - len(s.changes), nil
}

// Audit implements [outbox.Store].
func (s *Store) Audit(ctx context.Context, _ outbox.DB, before string, limit int) ([]outbox.AuditEntry, error) {
	if err := s.lock(ctx, "reading the audit log"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []outbox.AuditEntry
	for _, c := range slices.Backward(s.changes) {
		if (before == "" || c.ID < before) && c.until.After(s.clock()) && len(list) < limit {
			list = append(list, c.AuditEntry)
		}
	}
	return list, nil
}
