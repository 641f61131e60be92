package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// outcomeCounts counts the outcomes that metrics report.
type outcomeCounts struct {
	outbox.NopMetrics
	mu                                      sync.Mutex
	delivered, failed, died, deferred, lost int
}

func (l *outcomeCounts) count(n *int, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*n += by
}

func (l *outcomeCounts) Delivered(outbox.EventKind, time.Duration) { l.count(&l.delivered, 1) }
func (l *outcomeCounts) Failed(outbox.EventKind)                   { l.count(&l.failed, 1) }
func (l *outcomeCounts) Died(outbox.EventKind)                     { l.count(&l.died, 1) }
func (l *outcomeCounts) Deferred(outbox.EventKind)                 { l.count(&l.deferred, 1) }
func (l *outcomeCounts) LeaseLost(n int)                           { l.count(&l.lost, n) }

func (l *outcomeCounts) require(t *testing.T, delivered, failed, died, deferred, lost int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, [...]int{delivered, failed, died, deferred, lost},
		[...]int{l.delivered, l.failed, l.died, l.deferred, l.lost}, "delivered, failed, died, deferred, lost")
}

// answer is a listener's answer to an event, by the event's id.
func answer(id string) error {
	switch id[:4] {
	case "fail":
		return errors.New("boom")
	case "dead":
		return outbox.Dead(errors.New("no such thing"))
	case "wait":
		return outbox.Defer(time.Hour)
	default:
		return nil
	}
}

// steal has another node take all events over.
func steal(t *testing.T, store *outboxtest.Store) {
	t.Helper()
	b, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: 10, Lease: "thief/1"})
	require.NoError(t, err)
	require.NotZero(t, b.Len())
}

// gated is a store whose first outcome takes until the gate opens, so that the
// others gather meanwhile.
type gated struct {
	*outboxtest.Store
	gate chan struct{}
}

func (s *gated) memory() *outboxtest.Store { return s.Store }

func (s *gated) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	<-s.gate
	return s.Store.Mark(ctx, db, kind, marks)
}

// Another node takes one event of each kind over; with "kept" a second one of
// each is in the same statement and stays.
func TestARefusedOutcomeCountsAsALostLeaseAndAsNothingElse(t *testing.T) {
	t.Parallel()
	for name, batches := range map[string][]string{
		"all of a statement":  {"stolen"},
		"some of a statement": {"stolen", "kept"},
	} {
		for onDone, what := range map[outbox.OnDone]string{outbox.Keep: "kept rows", outbox.Delete: "deleted rows"} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { refuse(t, batches, onDone) })
			})
		}
	}
}

func refuse(t *testing.T, batches []string, onDone outbox.OnDone) {
	store, counts, book := &gated{outboxtest.NewStore(), make(chan struct{})}, &outcomeCounts{}, &logbook{}
	release := make(chan struct{})
	e := start(t, outbox.Config{Store: store, Metrics: counts, Logger: slog.New(book), Purge: &outbox.PurgeOptions{OnDone: onDone}, Mode: outbox.MultiNode{
		Dispatch: outbox.DispatchOptions{Workers: 10},
		Poll:     outbox.PollOptions{Interval: time.Hour}, Claim: outbox.ClaimOptions{Owner: "slow", LeaseDuration: 24 * time.Hour},
	}}, func(_ context.Context, env outbox.Envelope) error {
		if env.EventID != "first" {
			<-release
		}
		return answer(env.EventID)
	})
	kinds := []string{"done", "fail", "dead", "wait"}
	for _, batch := range batches {
		for _, kind := range kinds {
			e.write(said(kind + " " + batch))
		}
		if batch == "stolen" {
			time.Sleep(time.Millisecond) // the leases get old
			steal(t, store.Store)
		}
	}
	e.write(said("first"))
	synctest.Wait() // it is being stored
	close(release)
	synctest.Wait() // all the others wait to be
	close(store.gate)
	require.NoError(t, e.Close(context.Background()))

	kept := len(batches) - 1
	counts.require(t, kept+1, kept, kept, kept, len(kinds))
	require.Len(t, book.about("event is dead"), kept)
	require.EqualValues(t, len(kinds), counted(book.about("outcomes were refused")))
}

// lostAnswers is a store whose first answer to each kind of outcome is lost.
type lostAnswers struct {
	*outboxtest.Store
	mu   sync.Mutex
	lost map[outbox.Outcome]bool
}

func (s *lostAnswers) memory() *outboxtest.Store { return s.Store }

func (s *lostAnswers) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	n, err := s.Store.Mark(ctx, db, kind, marks)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lost[kind] {
		s.lost[kind] = true
		return nil, errors.New("the connection broke")
	}
	return n, err
}

func TestAnOutcomeWhoseFirstAnswerWasLostIsNoLostLease(t *testing.T) {
	t.Parallel()
	counts := &outcomeCounts{}
	e := start(t, outbox.Config{
		Store: &lostAnswers{Store: outboxtest.NewStore(), lost: map[outbox.Outcome]bool{}}, Metrics: counts,
		RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Hour }),
		Mode:        outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}},
	}, func(_ context.Context, env outbox.Envelope) error { return answer(env.EventID) })
	e.write(said("done"), said("fail"), said("dead"), said("wait"))
	e.await("done", outbox.StatusDone)
	e.await("fail", outbox.StatusRetry)
	e.await("dead", outbox.StatusDead)
	require.NoError(t, e.Close(context.Background()))
	counts.require(t, 1, 1, 1, 1, 0)
}

// The other node has already stored the same outcome.
func TestAnEventThatAnotherNodeFinishedCountsAsALostLease(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string][]string{"all of a statement": {"done"}, "one of two": {"done", "done kept"}} {
		for onDone, what := range map[outbox.OnDone]string{outbox.Keep: "kept rows", outbox.Delete: "deleted rows"} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { finishElsewhere(t, kinds, onDone) })
			})
		}
	}
}

func finishElsewhere(t *testing.T, ids []string, onDone outbox.OnDone) {
	store, counts := &gated{outboxtest.NewStore(), make(chan struct{})}, &outcomeCounts{}
	release := make(chan struct{})
	e := start(t, outbox.Config{Store: store, Metrics: counts, Purge: &outbox.PurgeOptions{OnDone: onDone}, Mode: outbox.MultiNode{
		Dispatch: outbox.DispatchOptions{Workers: 10},
		Poll:     outbox.PollOptions{Interval: time.Hour}, Claim: outbox.ClaimOptions{Owner: "slow", LeaseDuration: 24 * time.Hour},
	}}, func(_ context.Context, env outbox.Envelope) error {
		if env.EventID != "first" {
			<-release
		}
		return answer(env.EventID)
	})
	e.write(said(ids[0]), said("dead"))
	time.Sleep(time.Millisecond) // the leases get old
	steal(t, store.Store)
	for _, id := range ids[1:] {
		e.write(said(id))
	}
	e.write(said("first"))
	synctest.Wait() // it is being stored
	finished := outbox.OutcomeDone
	if onDone == outbox.Delete {
		finished = outbox.OutcomeDelete
	}
	for kind, id := range map[outbox.Outcome]string{finished: ids[0], outbox.OutcomeDead: "dead"} {
		left, err := store.Store.Mark(t.Context(), store.DB(), kind, []outbox.Mark{{EventID: id, Lease: "thief/1"}})
		require.NoError(t, err)
		require.Empty(t, left)
	}
	close(release)
	synctest.Wait() // all the others wait to be
	close(store.gate)
	require.NoError(t, e.Close(context.Background()))
	counts.require(t, len(ids), 0, 0, 0, 2)
}
