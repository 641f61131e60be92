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
		}}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			n := c.add(env.EventID)
			if n == 1 && env.EventID[len(env.EventID)-1] == '5' {
				return outbox.RetryAfter(0), nil // goes around once more, on any node
			}
			return outbox.Done(), nil
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

// A row is leased to its writer from the insert on, so that no other node takes
// it between the commit and the hot path.
func TestAnEventIsItsWritersFromTheInsertOn(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	mode := func(owner string) outbox.Mode {
		return outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Millisecond}, Claim: outbox.ClaimOptions{Owner: owner}}
	}
	by := make(chan string, 10)
	listen := func(name string) func(context.Context, outbox.Envelope) (outbox.Result, error) {
		return func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			by <- name + " " + env.EventID
			return outbox.Done(), nil
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
	require.Equal(t, "other theirs", <-by)
	for range 5 {
		_, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: 10, Lease: "third/1", LockTimeout: time.Minute})
		require.NoError(t, err)
	}
	for _, fn := range scope.commit {
		fn(t.Context())
	}
	require.Equal(t, "writer mine", <-by)
}

func TestALeaseIsRenewedWhileItsListenerRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		release := make(chan struct{})
		started := make(chan struct{}, 2)
		mode := outbox.MultiNode{
			Poll:  outbox.PollOptions{Interval: 5 * time.Millisecond},
			Claim: outbox.ClaimOptions{LockTimeout: time.Second},
		}
		listen := func(context.Context, outbox.Envelope) (outbox.Result, error) {
			started <- struct{}{}
			<-release
			return outbox.Done(), nil
		}
		a := start(t, outbox.Config{Store: store, Mode: mode}, listen)
		start(t, outbox.Config{Store: store, Mode: mode}, listen)
		a.write(said("long"))
		<-started
		time.Sleep(2500 * time.Millisecond) // well past the lease
		synctest.Wait()
		require.Empty(t, started, "another node took the event although its listener runs")
		close(release)
		row := a.await("long", outbox.StatusDone)
		require.Zero(t, row.Attempts)
	})
}

// orphaned is a store with an event of a node that wrote it, leased it, and is
// gone.
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
			Poll: outbox.PollOptions{Interval: 5 * time.Millisecond}, Claim: outbox.ClaimOptions{LockTimeout: 50 * time.Millisecond},
		}}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			attempts <- env.Attempts
			return outbox.Done(), nil
		})
		require.Equal(t, 1, <-attempts)
		e.await("orphan", outbox.StatusDone)
	})
}

// takeOver has another node take all rows over.
func takeOver(t *testing.T, store *outboxtest.Store) {
	t.Helper()
	time.Sleep(time.Millisecond) // the leases get old
	steal(t, store)
}

func TestAnEventThatKillsItsProcessesEndsDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := orphaned(t, "killer")
		takeOver(t, store) // and the next one is gone too
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{MaxAttempts: 1},
			Poll:     outbox.PollOptions{Interval: 5 * time.Millisecond}, Claim: outbox.ClaimOptions{LockTimeout: 20 * time.Millisecond},
		}}, func(context.Context, outbox.Envelope) (outbox.Result, error) {
			t.Error("an event without attempts left was delivered")
			return outbox.Done(), nil
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
// long that the lease may end, others may have taken the row: it is left to the
// poller.
func TestAnOldLeaseIsNotTrusted(t *testing.T) {
	t.Parallel()
	dropped := make(chan outbox.EventKind, 1)
	e := start(t, outbox.Config{Metrics: dropMetrics{dropped: dropped}, Mode: outbox.MultiNode{
		Poll: outbox.PollOptions{Interval: time.Hour}, Claim: outbox.ClaimOptions{LockTimeout: 40 * time.Millisecond},
	}}, func(context.Context, outbox.Envelope) (outbox.Result, error) { return outbox.Done(), nil })
	scope := outboxtest.NewScope(e.store.DB())
	_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("slow")})
	require.NoError(t, err)
	<-time.After(25 * time.Millisecond)
	require.NoError(t, scope.Commit())
	require.Equal(t, outbox.EventType("Said"), (<-dropped).EventType)
	e.await("slow", outbox.StatusDone)
}

// slowClaim has claimed rows when closing begins, and has not yet said so.
type slowClaim struct {
	*outboxtest.Store
	claimed, proceed chan struct{}
}

func (s *slowClaim) memory() *outboxtest.Store { return s.Store }

func (s *slowClaim) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	b, err := s.Store.Claim(ctx, db, q)
	if b.Len() > 0 {
		s.claimed <- struct{}{}
		<-s.proceed
	}
	if ctx.Err() != nil { // as a driver says whose answer comes too late
		return outbox.Batch{}, ctx.Err()
	}
	return b, err
}

func TestAClaimUnderWayWhenTheOutboxClosesIsNotLost(t *testing.T) {
	t.Parallel()
	store := &slowClaim{Store: outboxtest.NewStore(), claimed: make(chan struct{}), proceed: make(chan struct{})}
	build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil).write(said("claimed"))
	e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}},
		func(context.Context, outbox.Envelope) (outbox.Result, error) { return outbox.Done(), nil })
	<-store.claimed
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- e.Close(ended) }()
	<-time.After(5 * time.Millisecond) // closing has told the poller to end
	close(store.proceed)
	require.NoError(t, <-closed)
	row, _ := store.Row("claimed")
	require.Empty(t, row.LockedBy, "what was claimed is delivered or given back")
}

// tardy is a store that answers a deferral only when the row was claimed anew.
type tardy struct{ *outboxtest.Store }

func (s *tardy) memory() *outboxtest.Store { return s.Store }

func (s *tardy) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	left, err := s.Store.Mark(ctx, db, kind, marks)
	for kind == outbox.OutcomeDeferred {
		if row, _ := s.Row(marks[0].EventID); row.LockedBy != "" {
			break
		}
		<-time.After(time.Millisecond)
	}
	return left, err
}

// The moment a deferral is stored this node may claim the row again, before it
// knows that it was stored. That is a delivery, not a copy to be dropped.
func TestARowThatIsClaimedAnewAtOnceIsDelivered(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{Store: &tardy{outboxtest.NewStore()}, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Millisecond}}},
		func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			if c.add(env.EventID) == 1 {
				return outbox.RetryAfter(0), nil
			}
			return outbox.Done(), nil
		})
	e.write(said("again"))
	e.await("again", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"again": 2}, c.n)
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
	}}, func(context.Context, outbox.Envelope) (outbox.Result, error) {
		close(running)
		<-release
		return outbox.Done(), errors.New("too late")
	})
	e.write(said("contended"))
	<-running
	b, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: 1, Lease: "thief/1", LockTimeout: 0})
	require.NoError(t, err)
	require.Equal(t, 1, b.Len())
	close(release)
	require.Equal(t, 1, <-lost)
	row, _ := store.Row("contended")
	require.Equal(t, "thief/1", row.LockedBy)
	require.Equal(t, outbox.StatusNew, row.Status)
}

// twice is a store in whose INSERT a row of the same id appears and is claimed.
type twice struct {
	*outboxtest.Store
	appear  func()
	claimed chan struct{}
	once    sync.Once
}

func (s *twice) memory() *outboxtest.Store { return s.Store }

func (s *twice) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) error {
	s.appear()
	<-s.claimed
	return s.Store.Insert(ctx, tx, envs, lease, due)
}

func (s *twice) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	b, err := s.Store.Claim(ctx, db, q)
	if b.Len() > 0 {
		s.once.Do(func() { close(s.claimed) })
	}
	return b, err
}

// An id that the caller chose is written again while its row waits to be claimed.
// The second write fails; the first one's event must not lie leased to nobody.
func TestARowThatIsClaimedWhileItsIDIsWrittenAgainIsDelivered(t *testing.T) {
	t.Parallel()
	store := &twice{Store: outboxtest.NewStore(), claimed: make(chan struct{})}
	var c calls
	e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			c.add(env.EventID)
			return outbox.Done(), nil
		})
	first := build(t, outbox.Config{Store: store.Store, Mode: outbox.WriterOnly{}}, nil)
	store.appear = func() {
		first.write(said("again"))
		e.Wake()
	}
	_, err := e.Writer().WriteScope(t.Context(), outboxtest.NewScope(store.DB()), []outbox.Envelope{said("again")})
	require.ErrorContains(t, err, "again")
	e.await("again", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"again": 1}, c.n)
}

// choosy is a handler that refuses one event once.
type choosy struct {
	refuses string
	taken   []string
}

func (c *choosy) AvailableCapacity() int { return 10 }

func (c *choosy) Handle(env outbox.Envelope) bool {
	if env.EventID == c.refuses {
		c.refuses = ""
		return false
	}
	c.taken = append(c.taken, env.EventID)
	return true
}

func TestWhatAHandlerRefusesComesFirstAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := written(t, "1", "2", "3")
		handler := &choosy{refuses: "2"}
		p, err := outbox.NewPoller(outbox.PollerConfig{DB: store.DB(), Store: store, Handler: handler, Logger: quiet})
		require.NoError(t, err)
		for range 2 {
			_, err = p.Poll(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, []string{"1", "1", "2", "3"}, handler.taken)
		require.NoError(t, p.Close(t.Context()))
	})
}
