package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// readLog records the looks at free events, and calls before each; it counts the rows that are read.
type readLog struct {
	*outboxtest.Store
	before func(read int)
	slow   func(ctx context.Context, q outbox.PollQuery) error

	mu      sync.Mutex
	queries []outbox.PollQuery
	found   []int
	rows    int
}

func (s *readLog) memory() *outboxtest.Store { return s.Store }

func (s *readLog) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if s.slow != nil {
		if err := s.slow(ctx, q); err != nil {
			return outbox.Batch{}, err
		}
	}
	b, err := s.Store.Poll(ctx, db, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows += b.Len()
	return b, err
}

func (s *readLog) Reach(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	s.mu.Lock()
	n := len(s.queries)
	s.mu.Unlock()
	if s.before != nil {
		s.before(n)
	}
	if s.slow != nil {
		if err := s.slow(ctx, q); err != nil {
			return outbox.Reach{}, err
		}
	}
	reach, err := s.Store.Reach(ctx, db, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries, s.found = append(s.queries, q), append(s.found, reach.Fresh)
	return reach, err
}

// readBacklog runs fn with a node that had a second, less than its interval, to read 100 events in
// batches of ten.
func readBacklog(t *testing.T, before func(s *readLog, read int), fn func(s *readLog)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &readLog{Store: outboxtest.NewStore()}
		s.before = func(read int) { before(s, read) }
		for i := range 100 {
			insertDue(t, s.Store, fmt.Sprintf("e%03d", i), time.Duration(i-1000)*time.Second)
		}
		start(t, outbox.Config{Store: s, Mode: outbox.MultiNode{
			Poll:  outbox.PollOptions{Interval: time.Hour, BatchSize: 10},
			Claim: outbox.ClaimOptions{LeaseDuration: time.Minute},
		}}, handled)
		time.Sleep(time.Second)
		fn(s)
	})
}

// insertDue inserts an event that became due a while from now.
func insertDue(t *testing.T, store *outboxtest.Store, id string, due time.Duration) {
	t.Helper()
	env := said(id)
	env.OccurredAt = time.Now().Add(due)
	w, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	scope := outboxtest.NewScope(store.DB())
	_, err = w.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{env})
	require.NoError(t, err)
	require.NoError(t, scope.Commit())
}

func TestAReadOfABacklogGoesOnWhereTheLastReadEnded(t *testing.T) {
	readBacklog(t, func(*readLog, int) {}, func(s *readLog) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fromStart := 0
		for i, q := range s.queries {
			if q.After.IsZero() {
				fromStart++
				continue
			}
			if i > 0 {
				require.Equal(t, 1, q.After.AvailableAt.Compare(s.queries[i-1].After.AvailableAt))
			}
		}
		require.Equal(t, 2, fromStart, "the first read, and a read before the node is idle: %v", s.queries)
		require.Zero(t, s.found[len(s.found)-1])
	})
}

func TestAnEventThatIsFreeBehindTheReadsIsDeliveredBeforeTheNodeIsIdle(t *testing.T) {
	readBacklog(t, func(s *readLog, read int) {
		if read == 5 { // its transaction committed late
			insertDue(t, s.Store, "late", -time.Hour)
		}
	}, func(s *readLog) {
		row, _ := s.Row("late")
		require.Equal(t, outbox.StatusDone, row.Status)
	})
}

func TestEventsThatComeFreeBehindTheReadsAgainAreDeliveredBeforeTheNodeIsIdle(t *testing.T) {
	readBacklog(t, func(s *readLog, read int) {
		switch read {
		case 3: // behind the first pass
			for i := range 15 {
				insertDue(t, s.Store, fmt.Sprintf("late%02d", i), time.Duration(i-3600)*time.Second)
			}
		case 6: // behind the second one
			insertDue(t, s.Store, "later", -2*time.Hour)
		}
	}, func(s *readLog) {
		row, _ := s.Row("later")
		require.Equal(t, outbox.StatusDone, row.Status)
	})
}

// pollCounter counts polls.
type pollCounter struct {
	*outboxtest.Store
	polls atomic.Int32
}

func (s *pollCounter) memory() *outboxtest.Store { return s.Store }

func (s *pollCounter) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	s.polls.Add(1)
	return s.Store.Poll(ctx, db, q)
}

// What is in hand is found again by each pass from the start.
func TestAPassThatBeganWithItsCycleIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &pollCounter{Store: written(t, named("e", 15)...)}
		e := start(t, outbox.Config{Store: s, Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: 1}, Poll: outbox.PollOptions{Interval: time.Hour, BatchSize: 10},
		}}, func(context.Context, outbox.Envelope) error {
			time.Sleep(time.Minute)
			return nil
		})
		time.Sleep(time.Second)
		before := s.polls.Load()
		e.Wake()
		time.Sleep(time.Second)
		polls := s.polls.Load() - before
		time.Sleep(time.Hour)
		require.EqualValues(t, 2, polls)
	})
}

func TestAnEventThatIsCommittedBehindThePollsIsDeliveredBeforeThePollerIsIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := outboxtest.NewStore(), newBus()
		writer := start(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}, Notifier: b}, nil)
		scope := outboxtest.NewScope(store.DB())
		_, err := writer.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("late")})
		require.NoError(t, err)
		time.Sleep(time.Second)
		for i := range 100 {
			writer.write(said(fmt.Sprint("e", i)))
		}
		start(t, outbox.Config{Store: store, Notifier: b, Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: 1, ColdCapacity: 10}, Poll: outbox.PollOptions{Interval: time.Hour, BatchSize: 10},
		}}, func(context.Context, outbox.Envelope) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		time.Sleep(3 * time.Second)        // the poller waits for room
		require.NoError(t, scope.Commit()) // which notifies
		time.Sleep(time.Minute)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 101}, statuses(store))
	})
}

func TestAnExpiredLeaseBehindTheReadsOfABacklogIsTakenOverWithinTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Second
		s := &readLog{Store: outboxtest.NewStore()}
		for i := range 800 {
			insertDue(t, s.Store, fmt.Sprintf("e%04d", i), time.Duration(i-10_000)*time.Second)
		}
		var died, took time.Time
		s.before = func(read int) {
			if read != 20 {
				return
			}
			insertDue(t, s.Store, "held", -24*time.Hour)
			row, _ := s.Row("held")
			row.LockedBy, row.LockedAt = "dead node/1", time.Now().Add(-time.Hour)
			require.True(t, s.SetRow("held", row.RawRow))
			died = time.Now()
		}
		left := 800
		var mu sync.Mutex
		all := make(chan struct{})
		start(t, outbox.Config{Store: s, Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 1, ColdCapacity: 20},
			Poll:     outbox.PollOptions{Interval: interval, BatchSize: 10},
			Claim:    outbox.ClaimOptions{LeaseDuration: time.Minute},
		}}, func(_ context.Context, env outbox.Envelope) error {
			time.Sleep(5 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if env.EventID == "held" {
				took = time.Now()
			} else if left--; left == 0 {
				close(all)
			}
			return nil
		})
		<-all
		require.False(t, took.IsZero())
		require.LessOrEqual(t, took.Sub(died), interval+200*time.Millisecond, "while the backlog lasted")
	})
}
