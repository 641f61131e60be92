package conformance

import (
	"testing"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// MemoryHarness makes the harness of an empty [outboxtest.Store], as an example,
// and to certify stores that wrap it.
func MemoryHarness(store *outboxtest.Store) StoreHarness {
	return StoreHarness{
		Store: store, DB: store.DB(), Table: store.Table(),
		Begin: func(testing.TB) (outbox.Execer, func() error, func() error) {
			scope := outboxtest.NewScope(store.DB())
			return scope, scope.Commit, func() error { return scope.Rollback(nil) }
		},
		Row: func(_ testing.TB, eventID string) (RawRow, bool) {
			row, ok := store.Row(eventID)
			return row.RawRow, ok
		},
		SetRow: func(t testing.TB, eventID string, row RawRow) {
			t.Helper()
			if !store.SetRow(eventID, row) {
				t.Fatalf("event %s has no row", eventID)
			}
		},
		Spoil: map[string]func(testing.TB, string){"headers": func(t testing.TB, eventID string) {
			t.Helper()
			if !store.CorruptHeaders(eventID) {
				t.Fatalf("event %s has no row", eventID)
			}
		}},
	}
}
