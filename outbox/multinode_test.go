package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestManyNodesDeliverEachEventOnce(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	var c calls
	var nodes []*engine
	for i := range 4 {
		nodes = append(nodes, start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{HotCapacity: 10, ColdCapacity: 10},
			Poll:     outbox.PollOptions{Interval: time.Millisecond, BatchSize: 5},
			Claim:    outbox.ClaimOptions{Owner: fmt.Sprint("node-", i)},
		}}, func(_ context.Context, env outbox.Envelope) error {
			n := c.add(env.EventID)
			if n == 1 && env.EventID[len(env.EventID)-1] == '5' {
				return outbox.Defer(0) // is delivered once more, by any node
			}
			return nil
		}))
	}
	const each = 200
	ids := make(chan string, 4*each)
	var wg sync.WaitGroup
	for _, node := range nodes {
		wg.Go(func() {
			for range each {
				ids <- node.write(said(""))[0]
			}
		})
	}
	wg.Wait()
	close(ids)
	for id := range ids {
		nodes[0].await(id, outbox.StatusDone)
	}
	for _, node := range nodes {
		require.NoError(t, node.Close(t.Context()))
	}
	for id, n := range c.n {
		want := 1
		if id[len(id)-1] == '5' {
			want = 2
		}
		require.Equal(t, want, n, id)
	}
}

// A row is leased to its writer from the insert on, so that no other node
// claims it between the commit and the hot path.
func TestAnEventIsLeasedToItsWriterFromTheInsertOn(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	mode := func(owner string) outbox.Mode {
		return outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Millisecond}, Claim: outbox.ClaimOptions{Owner: owner}}
	}
	by := make(chan string, 10)
	listen := func(name string) func(context.Context, outbox.Envelope) error {
		return func(_ context.Context, env outbox.Envelope) error {
			by <- name + " " + env.EventID
			return nil
		}
	}
	writer := start(t, outbox.Config{Store: store, Mode: mode("writer")}, listen("writer"))
	scope := &visible{Scope: outboxtest.NewScope(store.DB())}
	_, err := writer.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("mine")})
	require.NoError(t, err)
	row, _ := store.Row("mine")
	require.Regexp(t, `^writer/\w+$`, row.LockedBy)

	other := start(t, outbox.Config{Store: store, Mode: mode("other")}, listen("other"))
	other.write(said("theirs"))
	require.Equal(t, "other theirs", receive(t, by))
	for range 5 {
		_, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: 10, Lease: "third/1", LeaseDuration: time.Minute})
		require.NoError(t, err)
	}
	for _, fn := range scope.commit {
		fn(t.Context())
	}
	require.Equal(t, "writer mine", receive(t, by))
}

// orphaned is a store with an event under the lease of a dead node.
func orphaned(t *testing.T, id string) *outboxtest.Store {
	t.Helper()
	store := outboxtest.NewStore()
	scope := outboxtest.NewScope(store.DB())
	now := time.Now().UTC().Truncate(time.Microsecond)
	env := said(id)
	env.AggregateType, env.OccurredAt, env.AvailableAt = outbox.Global, now, now
	require.NoError(t, store.Insert(t.Context(), scope, []outbox.Envelope{env}, "dead node/1", now))
	require.NoError(t, scope.Commit())
	return store
}

func TestADeadNodesEventsAreTakenOverAndCostAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := orphaned(t, "orphan")
		attempts := make(chan int, 1)
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{
			Poll: outbox.PollOptions{Interval: 5 * time.Millisecond}, Claim: outbox.ClaimOptions{LeaseDuration: 50 * time.Millisecond},
		}}, func(_ context.Context, env outbox.Envelope) error {
			attempts <- env.Attempts
			return nil
		})
		require.Equal(t, 1, <-attempts)
		e.await("orphan", outbox.StatusDone)
	})
}

// takeOver has another node take over all rows.
func takeOver(t *testing.T, store *outboxtest.Store) {
	t.Helper()
	time.Sleep(time.Millisecond) // the leases get old
	steal(t, store)
}

func TestAnEventThatKillsItsProcessesEndsDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := orphaned(t, "killer")
		takeOver(t, store) // and the next node dies too
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{MaxAttempts: 1},
			Poll:     outbox.PollOptions{Interval: 5 * time.Millisecond}, Claim: outbox.ClaimOptions{LeaseDuration: 20 * time.Millisecond},
		}}, func(context.Context, outbox.Envelope) error {
			t.Error("an event without attempts left was delivered")
			return nil
		})
		row := e.await("killer", outbox.StatusDead)
		require.Contains(t, row.LastError, "no attempts left")
		require.Equal(t, 2, row.Attempts)
	})
}

type dropMetrics struct {
	outbox.NopMetrics
	dropped chan outbox.EventKind
}

func (m dropMetrics) HotDropped(kind outbox.EventKind) { m.dropped <- kind }

// The lease of an event begins with its insert. When the transaction takes so
// long that the lease may have expired, another node may have claimed the row: the
// event is left to the poller.
func TestAnEventWhoseLeaseIsOldIsLeftToThePoller(t *testing.T) {
	t.Parallel()
	dropped := make(chan outbox.EventKind, 1)
	e := start(t, outbox.Config{Metrics: dropMetrics{dropped: dropped}, Mode: outbox.MultiNode{
		Poll: outbox.PollOptions{Interval: time.Hour}, Claim: outbox.ClaimOptions{LeaseDuration: 40 * time.Millisecond},
	}}, func(context.Context, outbox.Envelope) error { return nil })
	scope := outboxtest.NewScope(e.store.DB())
	_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("slow")})
	require.NoError(t, err)
	<-time.After(25 * time.Millisecond)
	require.NoError(t, scope.Commit())
	require.Equal(t, outbox.EventType("Said"), receive(t, dropped).EventType)
	e.await("slow", outbox.StatusDone)
}

type leaseMetrics struct {
	outbox.NopMetrics
	lost chan int
}

func (m leaseMetrics) LeaseLost(n int) { m.lost <- n }

func TestANodeThatLostItsLeaseCannotStoreAnOutcome(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	lost := make(chan int, 1)
	running, release := make(chan struct{}), make(chan struct{})
	e := start(t, outbox.Config{Store: store, Metrics: leaseMetrics{lost: lost}, Mode: outbox.MultiNode{
		Poll: outbox.PollOptions{Interval: time.Hour}, Claim: outbox.ClaimOptions{Owner: "slow"},
	}}, func(context.Context, outbox.Envelope) error {
		close(running)
		<-release
		return errors.New("too late")
	})
	e.write(said("contended"))
	receive(t, running)
	b, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: 1, Lease: "thief/1", LeaseDuration: 0})
	require.NoError(t, err)
	require.Equal(t, 1, b.Len())
	close(release)
	require.Equal(t, 1, receive(t, lost))
	row, _ := store.Row("contended")
	require.Equal(t, "thief/1", row.LockedBy)
	require.Equal(t, outbox.StatusNew, row.Status)
}
