package outboxtest

import (
	"testing"

	"github.com/outboxkit/outbox-go/outbox"
)

// MemoryHarness makes the harness of an empty [Store], as an example of one
// and to certify stores that wrap it.
func MemoryHarness(store *Store) StoreHarness {
	return StoreHarness{
		Store: store, DB: store.DB(), Table: store.Table(),
		Begin: func(testing.TB) (outbox.Execer, func() error, func() error) {
			scope := NewScope(store.DB())
			return scope, scope.Commit, func() error { return scope.Rollback(nil) }
		},
		Row: func(_ testing.TB, eventID string) (RawRow, bool) {
			row, ok := store.Row(eventID)
			return row.RawRow, ok
		},
		SetRow: func(t testing.TB, eventID string, row RawRow) {
			t.Helper()
			if !store.change(eventID, func(r *memRow) { r.RawRow = row }) {
				t.Fatalf("event %s has no row", eventID)
			}
		},
		CorruptHeaders: func(t testing.TB, eventID string) {
			t.Helper()
			if !store.change(eventID, func(r *memRow) { r.corrupt = true }) {
				t.Fatalf("event %s has no row", eventID)
			}
		},
	}
}

func (s *Store) change(eventID string, fn func(r *memRow)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[eventID]
	if r != nil {
		fn(r)
	}
	return r != nil
}
