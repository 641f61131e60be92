package outbox_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestCommittedEventIsDeliveredAndDone(t *testing.T) {
	t.Parallel()
	got := make(chan outbox.Envelope, 1)
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(_ context.Context, env outbox.Envelope) error {
			got <- env
			return nil
		})
	ids := e.write(said(""))
	env := receive(t, got)
	require.Equal(t, ids[0], env.EventID)
	require.Equal(t, `""`, env.Payload.String())
	require.Equal(t, env.OccurredAt, env.OccurredAt.Truncate(time.Microsecond))
	require.Equal(t, time.UTC, env.OccurredAt.Location())
	row := e.await(env.EventID, outbox.StatusDone)
	require.False(t, row.DoneAt.IsZero())
	require.Zero(t, row.Attempts)
}

func TestRolledBackEventIsNeverDelivered(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Millisecond}}},
		func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		})
	scope := outboxtest.NewScope(e.store.DB())
	_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("gone")})
	require.NoError(t, err)
	require.NoError(t, scope.Rollback(nil))
	e.write(said("kept"))
	e.await("kept", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"kept": 1}, c.n)
}

// An event does not reach its listener twice, however the two paths race: with slow
// listeners, a poller that never pauses, and slow transactions.
func TestNoDuplicatesBetweenHotAndColdPath(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{Workers: 8, HotCapacity: 20, ColdCapacity: 20},
		Poll:     outbox.PollOptions{Interval: time.Millisecond, BatchSize: 7},
	}}, func(_ context.Context, env outbox.Envelope) error {
		if c.add(env.EventID)%2 == 0 {
			runtime.Gosched()
		}
		if env.EventID[len(env.EventID)-1] == '7' {
			<-time.After(time.Millisecond) // a slow listener
		}
		return nil
	})
	const writers, each = 8, 250
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				e.write(said(""))
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { n, _ := c.total(); return n == writers*each }, 30*time.Second, time.Millisecond)
	require.NoError(t, e.Close(t.Context()))
	events, deliveries := c.total()
	require.Equal(t, writers*each, events)
	require.Equal(t, writers*each, deliveries, "an event was delivered twice")
}

// visible is a scope that commits its rows at once and leaves the callbacks
// to the test: the moment between COMMIT and the hot path, held open.
type visible struct {
	*outboxtest.Scope
	shown  bool
	commit []func(context.Context)
}

func (v *visible) AtCommit(fn func()) error {
	if !v.shown { // the store's own, which shows the rows
		v.shown = true
		fn()
		return nil
	}
	return v.AfterCommit(func(context.Context) { fn() })
}

func (v *visible) AfterCommit(fn func(context.Context)) error {
	v.commit = append(v.commit, fn)
	return nil
}

func TestPollerLeavesAnEventAloneBetweenCommitAndHotPath(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		})
	scope := &visible{Scope: outboxtest.NewScope(e.store.DB())}
	_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("early")})
	require.NoError(t, err)
	row, found := e.store.Row("early")
	require.True(t, found, "the row is visible")
	require.Equal(t, outbox.StatusNew, row.Status)

	e.Wake() // the poller reads the row before the hot path has it
	e.write(said("later"))
	e.await("later", outbox.StatusDone)
	e.Wake()
	e.write(said("later still"))
	e.await("later still", outbox.StatusDone)
	require.Equal(t, map[string]int{"later": 1, "later still": 1}, c.n)

	for _, fn := range scope.commit {
		fn(t.Context())
	}
	e.await("early", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, 1, c.n["early"])
}

// paused holds back what Poll read until the test lets it go.
type paused struct {
	*outboxtest.Store
	read    chan outbox.Batch
	proceed chan struct{}
	armed   atomic.Bool
}

func (p *paused) memory() *outboxtest.Store { return p.Store }

func (p *paused) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	b, err := p.Store.Poll(ctx, db, q)
	if b.Len() > 0 && p.armed.CompareAndSwap(true, false) {
		p.read <- b
		<-p.proceed
	}
	return b, err
}

func TestRowsReadBeforeTheirOutcomeAreNotDeliveredAfterIt(t *testing.T) {
	t.Parallel()
	var c calls
	running, release := make(chan struct{}), make(chan struct{})
	store := &paused{Store: outboxtest.NewStore(), read: make(chan outbox.Batch, 1), proceed: make(chan struct{})}
	e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			close(running)
			<-release
			return nil
		})
	e.write(said("once"))
	receive(t, running)
	store.armed.Store(true)
	e.Wake()
	require.Equal(t, 1, receive(t, store.read).Len(), "the poller has read the row as NEW")
	close(release)
	e.await("once", outbox.StatusDone)
	close(store.proceed) // and hands it over now that it is DONE
	e.Wake()
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"once": 1}, c.n)
}

func TestEventsThatOverflowTheHotQueueAreReadFromTheTable(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{HotCapacity: 3, ColdCapacity: 4}, Poll: outbox.PollOptions{Interval: time.Hour}},
		"multi node":  outbox.MultiNode{Dispatch: outbox.DispatchOptions{HotCapacity: 3, ColdCapacity: 4}, Poll: outbox.PollOptions{Interval: time.Hour}},
		"tenants":     outbox.MultiNode{Dispatch: outbox.DispatchOptions{HotCapacity: 3, ColdCapacity: 4}, Poll: outbox.PollOptions{Interval: time.Hour}, Claim: outbox.ClaimOptions{TenantsInTurn: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c calls
			e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
				c.add(env.EventID)
				return nil
			})
			const n = 500
			for range n / 5 {
				e.write(said(""), said(""), said(""), said(""), said(""))
			}
			require.Eventually(t, func() bool { done, _ := c.total(); return done == n }, 30*time.Second, time.Millisecond)
			require.NoError(t, e.Close(t.Context()))
			_, deliveries := c.total()
			require.Equal(t, n, deliveries)
		})
	}
}
