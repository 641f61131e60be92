package conformance

import (
	"context"
	"testing"
	"time"
)

// steps are the steps that the tests of stores and of adapters share.
type steps struct {
	t   *testing.T
	ctx context.Context // the test's context, which bounds every call
}

// newSteps limits a subtest to two minutes, so that a subtest that waits for a lock fails instead
// of hanging.
func newSteps(t *testing.T) steps {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return steps{t, ctx}
}

// ok fails the test on an error.
func (s steps) ok(doing string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", doing, err)
	}
}

// settle waits until the condition holds, and reports whether it does.
func (s steps) settle(condition func() bool) bool {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if condition() {
			return true
		}
	}
	return false
}

// eventually waits until the condition holds.
func (s steps) eventually(what string, condition func() bool) {
	s.t.Helper()
	if !s.settle(condition) {
		s.t.Fatalf("after 20 s it is not true that %s", what)
	}
}
