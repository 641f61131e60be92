package faultrun

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// configure puts the hand-overs that have no statement into a configuration.
func (k *crasher) configure(cfg *outbox.Config) {
	if k == nil {
		return
	}
	cfg.Hooks = []outbox.WriterHook{{
		BeforeWrite: func(_ context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
			k.handOver("hook: before the write")
			return envs, nil
		},
		AfterWrite:    func(context.Context, []outbox.Envelope) { k.handOver("hook: after the write") },
		AfterCommit:   func(context.Context, []outbox.Envelope) { k.handOver("hook: after the commit") },
		AfterRollback: func(context.Context, []outbox.Envelope, error) { k.handOver("hook: after the rollback") },
	}}
	cfg.Interceptors = []outbox.Interceptor{k.intercept}
	cfg.Metrics = &crashMetrics{k: k}
}

// intercept makes points of the beginning and the end of a delivery, and names the listener as the
// owner of its statements.
func (k *crasher) intercept(next outbox.Listener) outbox.Listener {
	return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		k.gate()
		k.again(env.EventID)
		whose := "listener of " + string(env.EventType)
		k.handOver("before the " + whose)
		if strings.Contains(env.EventID, blocks) && !k.Follows {
			k.block()
		}
		err := next.OnEvent(context.WithValue(ctx, whoseKey{}, whose), env)
		k.handOver("after the " + whose)
		var decided *outbox.OutcomeError
		later := errors.As(err, &decided) && decided.Outcome == outbox.OutcomeDeferred
		k.settle(env.EventID, !later && (err == nil || k.spec.Mode == "ordered"))
		return err
	})
}

// result is the result of a delivery; the event's id determines it.
func (k *crasher) result(env outbox.Envelope, listener string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	call := env.EventID + "/" + listener
	k.calls[call]++
	switch {
	case strings.Contains(env.EventID, fails) && env.Attempts == 0 && (listener == "" || listener == Names[1]):
		return checker.Failed
	case strings.Contains(env.EventID, defers) && k.calls[call] == 1:
		return checker.Later
	case strings.Contains(env.EventID, dies):
		return checker.Buried
	default:
		return checker.Done
	}
}

// block lasts until the script lets the listener go on and, where there are leases, until the lease
// was renewed.
func (k *crasher) block() {
	ends := time.After(stepWait)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for claims := k.spec.Mode == "multi" || k.spec.Mode == "by-key"; !isOver(k.unblock) || claims && !k.hasPassed(engine+": renew"); {
		select {
		case <-look.C:
		case <-ends:
			return
		}
	}
}

func (k *crasher) settle(event string, settled bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settled[event] = settled
}

// isSettled reports whether all events have been delivered.
func (k *crasher) isSettled(events []checker.Event) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range events {
		if !k.settled[e.ID] {
			return false
		}
	}
	return true
}

// crashMetrics makes points of the engine's counts.
type crashMetrics struct {
	outbox.NopMetrics
	k *crasher
}

func (m *crashMetrics) HotEnqueued(outbox.EventKind)  { m.k.handOver("in the hot queue") }
func (m *crashMetrics) HotDropped(outbox.EventKind)   { m.k.handOver("not in the hot queue") }
func (m *crashMetrics) ColdEnqueued(outbox.EventKind) { m.k.handOver("in the cold queue") }
func (m *crashMetrics) HotSkippedDelayed(outbox.EventKind) {
	m.k.handOver("a delayed event is committed")
}

func (m *crashMetrics) Delivered(outbox.EventKind, time.Duration) { m.k.handOver("DONE is stored") }
func (m *crashMetrics) Failed(outbox.EventKind)                   { m.k.handOver("RETRY is stored") }
func (m *crashMetrics) Died(outbox.EventKind)                     { m.k.handOver("DEAD is stored") }
func (m *crashMetrics) Deferred(outbox.EventKind)                 { m.k.handOver("a deferral is stored") }
