package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// silent is a store whose first call of a kind gets no answer until its context
// ends.
type silent struct {
	*outboxtest.Store
	call string
	once sync.Once
}

func (s *silent) memory() *outboxtest.Store { return s.Store }

func (s *silent) hang(ctx context.Context, call string) (err error) {
	if call == s.call {
		s.once.Do(func() {
			<-ctx.Done()
			err = ctx.Err()
		})
	}
	return err
}

func (s *silent) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if err := s.hang(ctx, "Poll"); err != nil {
		return outbox.Batch{}, err
	}
	b, err := s.Store.Poll(ctx, db, q)
	if s.call == "Mark dead" { // which the poller calls for rows that it cannot decode
		for _, env := range b.Envelopes {
			b.Undecodable = append(b.Undecodable, outbox.Undecodable{EventID: env.EventID, Err: errors.New("no such headers")})
		}
		b.Envelopes = nil
	}
	return b, err
}

func (s *silent) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if err := s.hang(ctx, "Claim"); err != nil {
		return outbox.Batch{}, err
	}
	return s.Store.Claim(ctx, db, q)
}

func (s *silent) Reach(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	if err := s.hang(ctx, "Reach"); err != nil {
		return outbox.Reach{}, err
	}
	return s.Store.Reach(ctx, db, q)
}

func (s *silent) NextDue(ctx context.Context, db outbox.DB, after time.Time) (time.Time, error) {
	if err := s.hang(ctx, "NextDue"); err != nil {
		return time.Time{}, err
	}
	return s.Store.NextDue(ctx, db, after)
}

func (s *silent) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if err := s.hang(ctx, "Mark "+kind.String()); err != nil {
		return nil, err
	}
	return s.Store.Mark(ctx, db, kind, marks)
}

func (s *silent) Purge(ctx context.Context, db outbox.DB, q outbox.PurgeQuery) (outbox.Purged, error) {
	if err := s.hang(ctx, "Purge"); err != nil {
		return outbox.Purged{}, err
	}
	return s.Store.Purge(ctx, db, q)
}

// One call that gets no answer is one failure that is logged and tried again: it
// does not stop the poller, or the purger, for ever.
func TestACallThatGetsNoAnswerIsTriedAgain(t *testing.T) {
	t.Parallel()
	single := outbox.SingleNode{Dispatch: outbox.DispatchOptions{HotCapacity: 1}, Poll: outbox.PollOptions{Interval: time.Second}}
	multi := outbox.MultiNode{Dispatch: single.Dispatch, Poll: single.Poll}
	tenants := outbox.MultiNode{Dispatch: single.Dispatch, Poll: single.Poll, Claim: outbox.ClaimOptions{TenantsInTurn: true}}
	for name, tt := range map[string]struct {
		mode   outbox.Mode
		call   string
		says   string
		status outbox.Status
	}{
		"poll":                      {single, "Poll", "polling failed", outbox.StatusDone},
		"next due":                  {single, "NextDue", "polling failed", outbox.StatusDone},
		"claim":                     {tenants, "Claim", "polling failed", outbox.StatusDone},
		"looking at a range":        {multi, "Reach", "polling failed", outbox.StatusDone},
		"reading a range":           {multi, "Poll", "polling failed", outbox.StatusDone},
		"next due beside ranges":    {multi, "NextDue", "polling failed", outbox.StatusDone},
		"marking what is no event":  {single, "Mark dead", "could not be marked dead", outbox.StatusDead},
		"purging beside deliveries": {single, "Purge", "purging failed", outbox.StatusDone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, book := &silent{Store: outboxtest.NewStore(), call: tt.call}, &logbook{}
				e := start(t, outbox.Config{
					Store: store, Mode: tt.mode, Logger: slog.New(book),
					Purge: &outbox.PurgeOptions{Interval: time.Second, Retention: time.Hour},
				}, func(context.Context, outbox.Envelope) error { return nil })
				// What no hot path carries is the poller's.
				writer := build(t, outbox.Config{Store: store.Store, Mode: outbox.WriterOnly{}}, nil)
				time.Sleep(time.Millisecond)
				writer.write(said("cold"))
				time.Sleep(40 * time.Second)
				row, _ := store.Row("cold")
				require.Equal(t, tt.status, row.Status)
				require.Len(t, book.about(tt.says), 1)
				time.Sleep(2 * time.Hour)
				_, there := store.Row("cold")
				require.False(t, there, "the purger goes on too")
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

// halfOpen is a store whose first connections are silent: a statement on one gets
// no answer until its context ends, which drops it.
type halfOpen struct {
	*outboxtest.Store
	left atomic.Int32
}

func (s *halfOpen) memory() *outboxtest.Store { return s.Store }

func (s *halfOpen) statement(ctx context.Context) error {
	if s.left.Add(-1) < 0 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *halfOpen) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if err := s.statement(ctx); err != nil {
		return outbox.Batch{}, err
	}
	return s.Store.Poll(ctx, db, q)
}

func (s *halfOpen) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if err := s.statement(ctx); err != nil {
		return outbox.Batch{}, err
	}
	return s.Store.Claim(ctx, db, q)
}

func (s *halfOpen) Reach(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	if err := s.statement(ctx); err != nil {
		return outbox.Reach{}, err
	}
	return s.Store.Reach(ctx, db, q)
}

// Six idle connections went silent, while new ones work.
func TestSilentConnectionsDoNotStopThePoller(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, got := &halfOpen{Store: outboxtest.NewStore()}, make(chan string, 1)
				e := start(t, outbox.Config{Store: store, Mode: mode}, by("it", got))
				time.Sleep(time.Minute)
				store.left.Store(6)
				build(t, outbox.Config{Store: store.Store, Mode: outbox.WriterOnly{}}, nil).write(said("cold"))
				began := time.Now()
				<-got
				require.Less(t, time.Since(began), 30*time.Second)
				synctest.Wait()
				require.NoError(t, e.Close(t.Context()))
			})
		})
	}
}

// brief is a store that answers after a while, and whose claims are carried out
// although the client gave up.
type brief struct {
	*outboxtest.Store
	takes  time.Duration
	claims atomic.Int32
}

func (s *brief) memory() *outboxtest.Store { return s.Store }

func (s *brief) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	b, err := s.Store.Claim(ctx, db, q)
	s.claims.Add(1)
	select {
	case <-time.After(s.takes):
		return b, err
	case <-ctx.Done():
		return outbox.Batch{}, ctx.Err()
	}
}

// A slow database gets more time. Rows of claims whose answers were too late are
// delivered at once, not when their leases expire.
func TestASlowDatabaseIsGivenTimeToClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, got := &brief{Store: outboxtest.NewStore(), takes: 7 * time.Second}, make(chan string, 10)
		build(t, outbox.Config{Store: store.Store, Mode: outbox.WriterOnly{}}, nil).write(said("1"), said("2"))
		began := time.Now()
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}}}, by("it", got))
		require.ElementsMatch(t, []string{"it 1", "it 2"}, []string{<-got, <-got})
		require.Less(t, time.Since(began), time.Minute)
		require.Zero(t, e.await("1", outbox.StatusDone).Attempts)
		require.NoError(t, e.Close(t.Context()))
	})
}

// One claim of a backlog is carried out without an answer. Its rows are given back, and
// delivered with the rest.
func TestAClaimWithoutAnAnswerIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &lostClaim{Store: written(t, named("e", 5000)...)}
		var delivered calls
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}}}, func(_ context.Context, env outbox.Envelope) error {
			delivered.add(env.EventID)
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		time.Sleep(20 * time.Second)
		require.NoError(t, e.Close(t.Context()))
		events, deliveries := delivered.total()
		require.Equal(t, [2]int{5000, 5000}, [2]int{events, deliveries})
		require.Less(t, store.claims.Load(), int64(60))
	})
}

// lostClaim is a store whose second claim is carried out without an answer.
type lostClaim struct {
	*outboxtest.Store
	claims atomic.Int64
}

func (s *lostClaim) memory() *outboxtest.Store { return s.Store }

func (s *lostClaim) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	b, err := s.Store.Claim(ctx, db, q)
	if s.claims.Add(1) == 2 {
		return outbox.Batch{}, errors.New("the answer was lost")
	}
	return b, err
}

// lateClaim is a store that carries its first claim of any rows out 25 seconds after the
// client gave it up.
type lateClaim struct {
	*outboxtest.Store
	once sync.Once
	rows chan int // that the late claim leased
}

func (s *lateClaim) memory() *outboxtest.Store { return s.Store }

func (s *lateClaim) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (b outbox.Batch, err error) {
	if len(q.EventIDs) == 0 {
		s.once.Do(func() {
			err = context.DeadlineExceeded
			time.AfterFunc(25*time.Second, func() {
				b, _ := s.Store.Claim(context.WithoutCancel(ctx), db, q)
				s.rows <- b.Len()
			})
		})
	}
	if err != nil {
		return outbox.Batch{}, err
	}
	return s.Store.Claim(ctx, db, q)
}

// The server carries a claim out when other claims have long succeeded. Nobody asked for
// its rows: they are given back, and do not wait until that lease is over.
func TestAClaimThatIsCarriedOutLateIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &lateClaim{Store: written(t, named("e", 100)...), rows: make(chan int, 1)}
		var delivered calls
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 1, ColdCapacity: 10}, Claim: outbox.ClaimOptions{LeaseDuration: time.Hour, TenantsInTurn: true},
		}}, func(_ context.Context, env outbox.Envelope) error {
			delivered.add(env.EventID)
			time.Sleep(time.Second)
			return nil
		})
		require.Positive(t, <-store.rows)
		time.Sleep(2 * time.Minute)
		require.NoError(t, e.Close(t.Context()))
		events, deliveries := delivered.total()
		require.Equal(t, [2]int{100, 100}, [2]int{events, deliveries})
		for _, row := range store.Rows() {
			require.Zero(t, row.Attempts, row)
		}
	})
}

// deadlocking is a store whose second poll is the victim of a deadlock.
type deadlocking struct {
	*outboxtest.Store
	polls atomic.Int64
}

type deadlockError struct{}

func (deadlockError) Error() string    { return "deadlock detected" }
func (deadlockError) SQLState() string { return "40P01" }

func (s *deadlocking) memory() *outboxtest.Store { return s.Store }

func (s *deadlocking) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if s.polls.Add(1) == 2 {
		return outbox.Batch{}, deadlockError{}
	}
	return s.Store.Poll(ctx, db, q)
}

func TestADeadlockWhilePollingIsARetryAtDebug(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, book := &deadlocking{Store: outboxtest.NewStore()}, &logbook{}
		e := start(t, outbox.Config{Store: store, Logger: slog.New(book)}, handled)
		time.Sleep(time.Minute)
		require.NoError(t, e.Close(t.Context()))
		require.Empty(t, book.problems())
		require.Equal(t, slog.LevelDebug, book.about("deadlock")[0].level)
	})
}
