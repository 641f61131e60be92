package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// adapterStore inserts the ids of events into suite_event. The suite needs nothing
// else from a store: any other method panics.
type adapterStore struct {
	outbox.Store
	dialect Dialect
}

// Dialect names the database for adapters, as package sqlstore does.
func (s adapterStore) Dialect() string { return string(s.dialect) }

// Insert adds the ids.
func (s adapterStore) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, _ string, _ time.Time) error {
	query := "INSERT INTO suite_event (id) VALUES (?)"
	if s.dialect == Postgres {
		query = "INSERT INTO suite_event (id) VALUES ($1)"
	}
	for i := range envs {
		if _, err := tx.ExecContext(ctx, query, envs[i].EventID); err != nil {
			return err
		}
	}
	return nil
}

// InsertOnce is Insert, and skips an event whose unique key is the id of a row. It reads in the
// transaction, as stores do.
func (s adapterStore) InsertOnce(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) ([]string, error) {
	query := "SELECT id FROM suite_event WHERE id = ?"
	if s.dialect == Postgres {
		query = "SELECT id FROM suite_event WHERE id = $1"
	}
	ids := idsOf(envs)
	for i := range envs {
		if envs[i].UniqueKey != "" {
			there, err := outbox.QueryTexts(ctx, tx, query, envs[i].UniqueKey)
			if err != nil {
				return nil, err
			}
			if len(there) > 0 {
				ids[i] = there[0]
				continue
			}
		}
		if err := s.Insert(ctx, tx, envs[i:i+1], lease, due); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// committed returns the events for which AfterCommit ran, in order.
func (s *adapterSuite) committed() []string { return idsOf(s.calls.Committed()) }

// rolledBack returns the events for which AfterRollback ran, in order.
func (s *adapterSuite) rolledBack() (ids []string) {
	for _, r := range s.calls.RolledBack() {
		ids = append(ids, r.Envelope.EventID)
	}
	return ids
}

// cause is the cause that AfterRollback last got for an event.
func (s *adapterSuite) cause(id string) (cause error) {
	for _, r := range s.calls.RolledBack() {
		if r.Envelope.EventID == id {
			cause = r.Cause
		}
	}
	return cause
}

// wantEnded checks transactions that are over: the callbacks, as wantCalls does; that the table
// holds only the committed events; and that AfterRollback got no unknown outcome.
func (s *adapterSuite) wantEnded(committed, rolledBack string) {
	s.t.Helper()
	s.wantCalls(committed, rolledBack)
	s.rows(strings.Fields(committed)...)
	for _, id := range strings.Fields(rolledBack) {
		s.wantDefinite(id)
	}
}

// wantCalls checks for which events, separated by spaces, callbacks have run so far: after commit,
// in order; after rollback, in order. wantCalls waits for the callbacks: if the adapter does not
// end a transaction itself, the callbacks run soon after the end.
func (s *adapterSuite) wantCalls(committed, rolledBack string) {
	s.t.Helper()
	s.wanted = func() bool {
		return strings.Join(s.committed(), " ") == committed && strings.Join(s.rolledBack(), " ") == rolledBack
	}
	if !s.settle(s.wanted) {
		s.t.Errorf("AfterCommit ran for %v and AfterRollback for %v; want [%s] and [%s]",
			s.committed(), s.rolledBack(), committed, rolledBack)
	}
}

// wantCallsInAnyOrder checks that callbacks ran once for each of these events, and
// that AfterRollback got no unknown outcome.
func (s *adapterSuite) wantCallsInAnyOrder(committed, rolledBack []string) {
	s.t.Helper()
	s.settle(func() bool {
		return len(s.committed())+len(s.rolledBack()) >= len(committed)+len(rolledBack)
	})
	s.sameEvents("AfterCommit", s.committed(), committed)
	s.sameEvents("AfterRollback", s.rolledBack(), rolledBack)
	for _, id := range rolledBack {
		s.wantDefinite(id)
	}
}

// sameEvents compares the events of callbacks with the expected events.
func (s *adapterSuite) sameEvents(what string, got, want []string) {
	s.t.Helper()
	times := map[string]int{}
	for _, id := range got {
		times[id]++
	}
	for _, id := range want {
		times[id]--
	}
	for id, n := range times {
		if n != 0 {
			s.t.Errorf("%s ran %+d times too often for event %s; AfterRollback got the cause %v", what, n, id, s.cause(id))
		}
	}
}

// wantTruth checks that each of the events has had a single callback, which agrees with the table.
func (s *adapterSuite) wantTruth(ids ...string) {
	s.t.Helper()
	stored := s.stored()
	undone := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(stored, id) })
	s.wantCalls(strings.Join(stored, " "), strings.Join(undone, " "))
}

// unchanged checks, when the test ends, that no callback ran after the expected callbacks.
func (s *adapterSuite) unchanged() {
	if s.wanted != nil && !s.t.Failed() && !s.wanted() {
		s.t.Errorf("a callback ran too often: AfterCommit ran for %v, AfterRollback for %v", s.committed(), s.rolledBack())
	}
}

// wantUnknown checks events that were committed without the adapter: AfterRollback
// got an unknown outcome, and the events are in the table.
func (s *adapterSuite) wantUnknown(id string) {
	s.t.Helper()
	s.wantCalls("", id)
	if got := s.cause(id); !errors.Is(got, outbox.ErrOutcomeUnknown) {
		s.t.Errorf("AfterRollback got the cause %v; want %v", got, outbox.ErrOutcomeUnknown)
	}
	s.rows(id)
}

// wantDefinite checks that AfterRollback got no unknown outcome.
func (s *adapterSuite) wantDefinite(id string) {
	s.t.Helper()
	if got := s.cause(id); errors.Is(got, outbox.ErrOutcomeUnknown) {
		s.t.Errorf("AfterRollback got the cause %v; want a definite outcome", got)
	}
}

// wantError checks the error of a call.
func wantError(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s returned %v; want %v", what, err, target)
	}
}
