package outbox_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// mute is a store whose statements get no answer from some moment on. They end with
// their context, or with a driver that ignores that, when the test frees them.
type mute struct {
	*outboxtest.Store
	ignores bool
	begun   atomic.Bool
	free    chan struct{}
}

func (s *mute) memory() *outboxtest.Store { return s.Store }

func (s *mute) answer(ctx context.Context) error {
	switch {
	case !s.begun.Load():
		return nil
	case s.ignores:
		<-s.free
	default:
		<-ctx.Done()
	}
	return context.Cause(ctx)
}

func (s *mute) Check(ctx context.Context, db outbox.DB, claims bool) error {
	if err := s.answer(ctx); err != nil {
		return err
	}
	return s.Store.Check(ctx, db, claims)
}

func (s *mute) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if err := s.answer(ctx); err != nil {
		return outbox.Batch{}, err
	}
	return s.Store.Poll(ctx, db, q)
}

func (s *mute) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if err := s.answer(ctx); err != nil {
		return outbox.Batch{}, err
	}
	return s.Store.Claim(ctx, db, q)
}

func (s *mute) NextDue(ctx context.Context, db outbox.DB, after time.Time) (time.Time, error) {
	if err := s.answer(ctx); err != nil {
		return time.Time{}, err
	}
	return s.Store.NextDue(ctx, db, after)
}

func (s *mute) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	return s.Store.Mark(ctx, db, outcome, marks)
}

func (s *mute) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	if err := s.answer(ctx); err != nil {
		return err
	}
	return s.Store.Renew(ctx, db, leases)
}

func (s *mute) Leased(ctx context.Context, db outbox.DB, names []string) ([]outbox.Lease, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	return s.Store.Leased(ctx, db, names)
}

func (s *mute) Ranges(ctx context.Context, db outbox.DB) (outbox.Ranges, error) {
	if err := s.answer(ctx); err != nil {
		return outbox.Ranges{}, err
	}
	return s.Store.Ranges(ctx, db)
}

func (s *mute) SetRanges(ctx context.Context, db outbox.DB, was string, by time.Time, next outbox.Ranges) (bool, error) {
	if err := s.answer(ctx); err != nil {
		return false, err
	}
	return s.Store.SetRanges(ctx, db, was, by, next)
}

func (s *mute) Reach(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	if err := s.answer(ctx); err != nil {
		return outbox.Reach{}, err
	}
	return s.Store.Reach(ctx, db, q)
}

func (s *mute) Paused(ctx context.Context, db outbox.DB) ([]outbox.Pause, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	return s.Store.Paused(ctx, db)
}

func (s *mute) Purge(ctx context.Context, db outbox.DB, q outbox.PurgeQuery) (outbox.Purged, error) {
	if err := s.answer(ctx); err != nil {
		return outbox.Purged{}, err
	}
	return s.Store.Purge(ctx, db, q)
}

func (s *mute) Now(ctx context.Context, db outbox.DB) (time.Time, error) {
	if err := s.answer(ctx); err != nil {
		return time.Time{}, err
	}
	return s.Store.Now(ctx, db)
}

func (s *mute) Announce(ctx context.Context, db outbox.DB, node outbox.Node, d time.Duration) error {
	if err := s.answer(ctx); err != nil {
		return err
	}
	return s.Store.Announce(ctx, db, node, d)
}

func (s *mute) Withdraw(ctx context.Context, db outbox.DB, owner string) error {
	if err := s.answer(ctx); err != nil {
		return err
	}
	return s.Store.Withdraw(ctx, db, owner)
}

// muteNotifier is a notifier that hears nothing and gets no answer.
type muteNotifier struct{ store *mute }

func (n muteNotifier) Notify(ctx context.Context, _ outbox.DB, _ string) error {
	return n.store.answer(ctx)
}

func (n muteNotifier) Listen(ctx context.Context, _ outbox.DB, _ string, wake func()) error {
	wake()
	if n.store.ignores {
		<-n.store.free
	}
	<-ctx.Done()
	return ctx.Err()
}

const boundedDrain = 3 * time.Second

// Close's documented bound; see docs/reliability/CLOSING.md.
const (
	closeBound    = 4*boundedDrain + 7*time.Second
	closeIgnoring = 10 * time.Second // more, for a driver that ignores the end of a context
)

// boundedModes is each mode with a dispatcher, with many outcomes in hand at once.
func boundedModes() map[string]outbox.Mode {
	d := outbox.DispatchOptions{DrainTimeout: boundedDrain, HotCapacity: 5000, ColdCapacity: 5000}
	polled := outbox.DispatchOptions{DrainTimeout: boundedDrain, PollerOnly: true, ColdCapacity: 5000}
	limited := d
	limited.Rules = map[outbox.EventKind]outbox.Rules{kindSaid: {Concurrency: 8}}
	return map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: d}, "many nodes": outbox.MultiNode{Dispatch: d},
		"ordered": outbox.Ordered{DrainTimeout: boundedDrain}, "ordered by key": outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{DrainTimeout: boundedDrain}},
		"limits": outbox.MultiNode{Dispatch: limited}, "tenants in turn": outbox.MultiNode{Dispatch: d, Claim: outbox.ClaimOptions{TenantsInTurn: true}},
		"tenants":     outbox.MultiNode{Dispatch: polled, Claim: outbox.ClaimOptions{TenantsInTurn: true}},
		"writer only": outbox.WriterOnly{},
	}
}

// The database stops answering while listeners work: Close returns within its bound,
// and counts each outcome that it could not store.
func TestCloseIsBoundedAndCountsWhatIsNotStored(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, mode := range boundedModes() {
		for _, ignores := range []bool{false, true} {
			for ctxName, ctx := range map[string]context.Context{"background": context.Background(), "ended": ended} {
				for _, stubborn := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, driver ignores contexts: %t, context: %s, stubborn listener: %t", name, ignores, ctxName, stubborn), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) { closeMuted(ctx, t, mode, ignores, stubborn) })
					})
				}
			}
		}
	}
}

func closeMuted(ctx context.Context, t *testing.T, mode outbox.Mode, ignores, stubborn bool) {
	store := &mute{Store: outboxtest.NewStore(), ignores: ignores, free: make(chan struct{})}
	free := sync.OnceFunc(func() { close(store.free) })
	defer free()
	var answered, running atomic.Int64
	e := start(t, outbox.Config{Store: store, Mode: mode, Purge: &outbox.PurgeOptions{Interval: time.Second}, Notifier: muteNotifier{store}},
		func(_ context.Context, env outbox.Envelope) error {
			running.Add(1)
			defer running.Add(-1)
			store.begun.Store(true)
			if stubborn && env.EventID == "e001" {
				<-store.free
				return nil
			}
			answered.Add(1)
			return nil
		})
	var envs []outbox.Envelope
	for _, id := range named("e", 3000) {
		env := said(id)
		env.AggregateID, env.TenantID = id[:3], id[:3]
		envs = append(envs, env)
	}
	e.write(envs...)
	e.Wake()
	if _, writes := mode.(outbox.WriterOnly); writes {
		store.begun.Store(true)
	}
	time.Sleep(20 * time.Second)

	bound := closeBound
	if ignores {
		bound += closeIgnoring
	}
	began := time.Now()
	err := e.Close(ctx)
	require.LessOrEqual(t, time.Since(began), bound)
	require.Equal(t, answered.Load(), outcomesIn(t, err), "%v", err)
	if running.Load() > 0 {
		require.ErrorContains(t, err, "listeners still run")
	} else if err != nil {
		require.NotContains(t, err.Error(), "listeners still run")
	}
	if ignores {
		require.ErrorContains(t, err, "withdrawing the report of this node: it has not ended yet")
	} else if err != nil {
		require.NotContains(t, err.Error(), "withdrawing", "it ends with its context")
	}
	delivered := answered.Load() + running.Load()
	time.Sleep(time.Hour)
	require.Equal(t, delivered, answered.Load()+running.Load(), "nothing is delivered after Close")
	free()
}

var outcomeCount = regexp.MustCompile(`(\d+) outcomes could not be stored`)

// outcomesIn is the number of unstored outcomes that an error of Close reports.
func outcomesIn(t *testing.T, err error) int64 {
	if err == nil {
		return 0
	}
	found := outcomeCount.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	require.NoError(t, err)
	return n
}
