package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
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

// Dialect tells adapters which database this is, as package sqlstore does.
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

// adapterCalls records which callbacks ran, in order.
type adapterCalls struct {
	mu     sync.Mutex
	commit []string
	undone []string
	causes map[string]error
	// during is run by each after-commit callback, outside the lock.
	during func(ctx context.Context)
}

func newAdapterCalls() *adapterCalls { return &adapterCalls{causes: make(map[string]error)} }

func (c *adapterCalls) hook() outbox.WriterHook {
	return outbox.WriterHook{
		AfterCommit: func(ctx context.Context, envs []outbox.Envelope) {
			c.mu.Lock()
			for i := range envs {
				c.commit = append(c.commit, envs[i].EventID)
			}
			during := c.during
			c.mu.Unlock()
			if during != nil {
				during(ctx)
			}
		},
		AfterRollback: func(_ context.Context, envs []outbox.Envelope, cause error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for i := range envs {
				c.undone = append(c.undone, envs[i].EventID)
				c.causes[envs[i].EventID] = cause
			}
		},
	}
}

func (c *adapterCalls) committed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.commit)
}

func (c *adapterCalls) rolledBack() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.undone)
}

func (c *adapterCalls) cause(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.causes[id]
}

// settle waits for the condition, before an assertion: callbacks of transactions
// that the adapter does not end itself run soon after the end.
func (s *adapterSuite) settle(condition func() bool) {
	for deadline := time.Now().Add(20 * time.Second); !condition() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// wantCalls checks the callbacks so far: after commit, in order; after rollback,
// in order.
func (s *adapterSuite) wantCalls(committed, rolledBack []string) {
	s.t.Helper()
	s.wanted = func() bool {
		return slices.Equal(s.calls.committed(), committed) && slices.Equal(s.calls.rolledBack(), rolledBack)
	}
	s.settle(s.wanted)
	if got := s.calls.committed(); !slices.Equal(got, committed) {
		s.t.Errorf("AfterCommit ran for %v; want %v", got, committed)
	}
	if got := s.calls.rolledBack(); !slices.Equal(got, rolledBack) {
		s.t.Errorf("AfterRollback ran for %v; want %v", got, rolledBack)
	}
}

// unchanged checks, when the test ends, that no callback ran after the expected
// ones.
func (s *adapterSuite) unchanged() {
	if s.wanted != nil && !s.t.Failed() && !s.wanted() {
		s.t.Errorf("more callbacks than wanted: AfterCommit ran for %v, AfterRollback for %v", s.calls.committed(), s.calls.rolledBack())
	}
}

// wantCause checks the cause that AfterRollback got.
func (s *adapterSuite) wantCause(id string, target error) {
	s.t.Helper()
	if got := s.calls.cause(id); !errors.Is(got, target) {
		s.t.Errorf("AfterRollback was told %v; want %v", got, target)
	}
	if !errors.Is(target, outbox.ErrOutcomeUnknown) {
		s.wantDefinite(id)
	}
}

// wantDefinite checks that AfterRollback got no unknown outcome.
func (s *adapterSuite) wantDefinite(id string) {
	s.t.Helper()
	if got := s.calls.cause(id); errors.Is(got, outbox.ErrOutcomeUnknown) {
		s.t.Errorf("AfterRollback was told %v; want a definite outcome", got)
	}
}

// wantError checks the error of a call.
func wantError(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s returned %v; want %v", what, err, target)
	}
}
