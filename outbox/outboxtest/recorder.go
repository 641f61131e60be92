package outboxtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// WaitLimit is how long the Wait methods of [Recorder] wait before they fail
// the test.
const WaitLimit = 10 * time.Second

// Recorder records the calls of a writer's hooks and of listeners. Make a Recorder with
// [NewRecorder]; it is safe for concurrent use.
type Recorder struct {
	mu         sync.Mutex // never held while anything blocks
	written    []outbox.Envelope
	committed  []outbox.Envelope
	rolledBack []RolledBack
	deliveries []Received
	changed    chan struct{} // closed and replaced whenever something is recorded
}

// RolledBack is an event whose transaction did not commit.
type RolledBack struct {
	Envelope outbox.Envelope
	Cause    error // as AfterRollback got it
}

// Received is a call of a recorded listener, with the answer.
type Received struct {
	Envelope outbox.Envelope
	Answer   Answer
}

// Answer is the answer of a recorded listener: it panics if Panic is not nil,
// otherwise it returns Err. The zero value is success.
type Answer struct {
	Err   error
	Panic any
}

// NewRecorder makes an empty recorder.
func NewRecorder() *Recorder { return &Recorder{changed: make(chan struct{})} }

// Hook records every write, commit and rollback of the writers that have the hook: put it into
// outbox.Config.Hooks.
func (r *Recorder) Hook() outbox.WriterHook {
	return outbox.WriterHook{
		AfterWrite: func(_ context.Context, envs []outbox.Envelope) {
			r.record(func() { r.written = append(r.written, envs...) })
		},
		AfterCommit: func(_ context.Context, envs []outbox.Envelope) {
			r.record(func() { r.committed = append(r.committed, envs...) })
		},
		AfterRollback: func(_ context.Context, envs []outbox.Envelope, cause error) {
			r.record(func() {
				for _, env := range envs {
					r.rolledBack = append(r.rolledBack, RolledBack{Envelope: env, Cause: cause})
				}
			})
		},
	}
}

// Listener makes a listener that records its calls. The first delivery of each event gets the first
// answer, the second delivery the second answer, and so on; deliveries beyond the script succeed.
// Without a script all deliveries succeed.
func (r *Recorder) Listener(script ...Answer) outbox.Listener {
	var mu sync.Mutex
	calls := map[string]int{}
	next := func(id string) (a Answer) {
		mu.Lock()
		defer mu.Unlock()
		if n := calls[id]; n < len(script) {
			a = script[n]
		}
		calls[id]++
		return a
	}
	return outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		answer := next(env.EventID)
		r.record(func() { r.deliveries = append(r.deliveries, Received{Envelope: env, Answer: answer}) })
		if answer.Panic != nil {
			panic(answer.Panic)
		}
		return answer.Err
	})
}

// Written are the events that were written, committed or not.
func (r *Recorder) Written() []outbox.Envelope { return snapshot(r, &r.written) }

// Committed are the events whose transactions committed, in order.
func (r *Recorder) Committed() []outbox.Envelope { return snapshot(r, &r.committed) }

// Emitted is [Recorder.Committed]; it implements [Emitter].
func (r *Recorder) Emitted() []outbox.Envelope { return r.Committed() }

// RolledBack are the events whose transactions or savepoints were rolled back,
// or whose outcome is unknown.
func (r *Recorder) RolledBack() []RolledBack { return snapshot(r, &r.rolledBack) }

// Deliveries are the calls of the recorded listeners, in order.
func (r *Recorder) Deliveries() []Received { return snapshot(r, &r.deliveries) }

// WaitCommitted waits until n events or more have committed and returns the events. WaitCommitted
// fails the test after [WaitLimit].
func (r *Recorder) WaitCommitted(t testing.TB, n int) []outbox.Envelope {
	t.Helper()
	return wait(t, r, &r.committed, n, "committed events")
}

// WaitDeliveries waits until the recorded listeners were called n times or more and returns the
// calls. WaitDeliveries fails the test after [WaitLimit].
func (r *Recorder) WaitDeliveries(t testing.TB, n int) []Received {
	t.Helper()
	return wait(t, r, &r.deliveries, n, "deliveries")
}

// Reset deletes the records. Scripts continue where they are.
func (r *Recorder) Reset() {
	r.record(func() { r.written, r.committed, r.rolledBack, r.deliveries = nil, nil, nil, nil })
}

func (r *Recorder) record(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
	close(r.changed)
	r.changed = make(chan struct{})
}

func snapshot[T any](r *Recorder, list *[]T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(*list)
}

func wait[T any](t testing.TB, r *Recorder, list *[]T, n int, what string) []T {
	t.Helper()
	timeout := time.NewTimer(WaitLimit)
	defer timeout.Stop()
	for {
		r.mu.Lock()
		got, changed := slices.Clone(*list), r.changed
		r.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("waited %s for %d %s, there are %d%s", WaitLimit, n, what, len(got), listed(got))
			return got
		}
	}
}

// listed shows one item per line.
func listed[T any](list []T) string {
	var text string
	for _, v := range list {
		text += fmt.Sprintf("\n  %v", v)
	}
	return text
}
