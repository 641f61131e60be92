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

// byRanges is a mode in which nodes take ranges.
func byRanges(poll outbox.PollOptions) outbox.MultiNode {
	return outbox.MultiNode{Poll: poll, Dispatch: outbox.DispatchOptions{Workers: 4}}
}

// rangesOf are the ranges of the store.
func rangesOf(t *testing.T, store *outboxtest.Store) []outbox.Range {
	t.Helper()
	ranges, err := store.Ranges(t.Context(), store.DB())
	require.NoError(t, err)
	return ranges.Ranges
}

func TestNodesThatTakeRangesDeliverABacklogOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		const events = 3000
		for i := range events {
			insertDue(t, store, fmt.Sprintf("e%04d", i), -time.Hour+time.Duration(i/3)*time.Millisecond)
		}
		var got calls
		nodes := map[string]*atomic.Int64{}
		for _, name := range []string{"a", "b", "c", "d"} {
			n := &atomic.Int64{}
			nodes[name] = n
			mode := byRanges(outbox.PollOptions{BatchSize: 50})
			mode.Dispatch.ColdCapacity = 100 // a node has a fraction of the backlog in hand
			start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
				time.Sleep(time.Millisecond)
				row, _ := store.Row(env.EventID)
				require.Empty(t, row.LockedBy, "no row changes before it is marked")
				got.add(env.EventID)
				n.Add(1)
				return nil
			})
		}
		time.Sleep(time.Minute)
		delivered, deliveries := got.total()
		require.Equal(t, []int{events, events}, []int{delivered, deliveries})
		for name, n := range nodes {
			require.Positive(t, n.Load(), "node %s took part", name)
		}
		require.Empty(t, rangesOf(t, store), "finished ranges are given up")
	})
}

func TestAFastProcessTakesRangesOfSeveralBatches(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		listener time.Duration
		slow     bool
	}{
		"fast": {0, false},
		"slow": {100 * time.Millisecond, true}, // 10 events a second: 5 seconds for a batch
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				// A read takes a time at which nothing else happens: a read while outcomes are being stored
				// cannot tell those rows from free ones, and reads them again.
				store := &readLog{Store: outboxtest.NewStore(), slow: func(context.Context, outbox.PollQuery) error {
					time.Sleep(1_000_003 * time.Nanosecond)
					return nil
				}}
				const events, batch = 2000, 50
				for i := range events {
					insertDue(t, store.Store, fmt.Sprintf("e%04d", i), -time.Hour) // the ids alone say the order
				}
				var got calls
				mode := byRanges(outbox.PollOptions{BatchSize: batch, Interval: time.Hour})
				mode.Dispatch.Workers, mode.Dispatch.ColdCapacity = 1, 2*batch
				start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
					time.Sleep(tc.listener)
					got.add(env.EventID)
					return nil
				})
				time.Sleep(10 * time.Minute)
				delivered, deliveries := got.total()
				require.Equal(t, []int{events, events}, []int{delivered, deliveries})
				require.Empty(t, rangesOf(t, store.Store))
				store.mu.Lock()
				defer store.mu.Unlock()
				require.Equal(t, events, store.rows, "a range is not read twice")
				looks := 0
				for _, q := range store.queries {
					if looks = max(looks, q.Limit); tc.slow {
						require.LessOrEqual(t, q.Limit, 2*batch, "the rows of a range wait for this process")
					}
				}
				if !tc.slow {
					require.GreaterOrEqual(t, looks, 4*batch)
					require.LessOrEqual(t, len(store.queries), events/batch/2)
				}
			})
		})
	}
}

// A range is read in parts. Its rest is read although the pass begins again meanwhile, and a kind of
// event is paused and resumed.
func TestTheRestOfARangeIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		const events = 600
		for i := range events {
			insertDue(t, store, fmt.Sprintf("e%04d", i), -time.Hour)
		}
		var got calls
		mode := byRanges(outbox.PollOptions{BatchSize: 20, Interval: time.Second})
		mode.Dispatch.Workers, mode.Dispatch.ColdCapacity = 1, 40
		e := start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
			n, _ := got.total()
			switch {
			case n == 200:
				insertDue(t, store, "early", -2*time.Hour) // behind the place
			case n > 200:
				time.Sleep(100 * time.Millisecond) // a pass ends in the range
			}
			if got.add(env.EventID); env.EventID == "early" {
				require.Less(t, n, 300, "within a pass, and behind the events in hand")
			}
			return nil
		})
		time.Sleep(10 * time.Second)
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: outbox.EventKind{EventType: "Said"}}))
		time.Sleep(10 * time.Second)
		require.NoError(t, e.Resume(t.Context(), outbox.EventKind{EventType: "Said"}))
		time.Sleep(10 * time.Minute)
		delivered, deliveries := got.total()
		require.Equal(t, []int{events + 1, events + 1}, []int{delivered, deliveries})
		require.Empty(t, rangesOf(t, store))
	})
}

// A listener that takes long keeps its range, in which rows come free meanwhile.
func TestAnEventThatCommitsIntoARangeIsDeliveredWithinTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		insertDue(t, store, "before", -time.Hour)
		insertDue(t, store, "slow", -time.Minute)
		release, late := make(chan struct{}), make(chan time.Time, 1)
		var got calls
		const interval = 5 * time.Second
		for range 2 {
			start(t, outbox.Config{Store: store, Mode: byRanges(outbox.PollOptions{Interval: interval})}, func(_ context.Context, env outbox.Envelope) error {
				got.add(env.EventID)
				switch env.EventID {
				case "slow":
					<-release
				case "late":
					late <- time.Now()
				}
				return nil
			})
		}
		time.Sleep(2 * time.Minute)
		require.Len(t, rangesOf(t, store), 1, "the range is renewed")
		began := time.Now()
		insertDue(t, store, "late", -2*time.Minute-30*time.Minute)
		require.LessOrEqual(t, (<-late).Sub(began), interval)
		close(release)
		time.Sleep(interval)
		delivered, deliveries := got.total()
		require.Equal(t, []int{3, 3}, []int{delivered, deliveries})
		require.Empty(t, rangesOf(t, store))
	})
}

// slowMarks is a store whose answers to Mark take a second.
type slowMarks struct{ *outboxtest.Store }

func (s slowMarks) memory() *outboxtest.Store { return s.Store }

func (s slowMarks) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	left, err := s.Store.Mark(ctx, db, outcome, marks)
	time.Sleep(time.Second)
	return left, err
}

// A range has as many due rows as events in hand, but another row: the answer to the outcome of an event
// is on its way, or the listener completed the event, and a row came free.
func TestARowThatTakesThePlaceOfARowInHandIsRead(t *testing.T) {
	t.Parallel()
	for name, completes := range map[string]bool{"outcome on its way": false, "completed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := slowMarks{outboxtest.NewStore()}
				var got calls
				var e *engine
				complete := func(ctx context.Context) error {
					scope := outboxtest.NewScope(store.DB())
					if err := e.Writer().Complete(ctx, scope); err != nil {
						return err
					}
					err := scope.Commit()
					time.Sleep(time.Second)
					return err
				}
				e = start(t, outbox.Config{Store: store, Mode: byRanges(outbox.PollOptions{Interval: time.Hour})}, func(ctx context.Context, env outbox.Envelope) error {
					got.add(env.EventID)
					if completes {
						return complete(ctx)
					}
					return nil
				})
				insertDue(t, store.Store, "first", -time.Hour)
				e.Wake()
				time.Sleep(500 * time.Millisecond)
				row, _ := store.Row("first")
				require.Equal(t, outbox.StatusDone, row.Status)
				require.Len(t, rangesOf(t, store.Store), 1)
				insertDue(t, store.Store, "second", -2*time.Hour)
				e.Wake()
				synctest.Wait()
				require.Equal(t, 1, got.of("second"))
				time.Sleep(time.Minute)
				_, deliveries := got.total()
				require.Equal(t, 2, deliveries)
			})
		})
	}
}

// A process that lost the database begins no delivery after its ranges expired. Another process takes
// the rows over, a few at a time, without an attempt.
func TestTheRowsOfARangeThatExpiredAreTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := &cut{Store: outboxtest.NewStore()}
		const events = 40
		for i := range events {
			insertDue(t, first.Store, fmt.Sprintf("e%02d", i), -time.Hour+time.Duration(i)*time.Second)
		}
		release := make(chan struct{})
		var stopped atomic.Int64
		var mu sync.Mutex
		var begun []time.Time // when the rows were taken over
		start(t, outbox.Config{Store: first, Mode: byRanges(outbox.PollOptions{})}, func(context.Context, outbox.Envelope) error {
			stopped.Add(1)
			<-release
			return nil
		})
		synctest.Wait()
		require.EqualValues(t, 4, stopped.Load())
		first.away.Store(true)
		began := time.Now()
		var got calls
		start(t, outbox.Config{Store: first.Store, Mode: byRanges(outbox.PollOptions{})}, func(_ context.Context, env outbox.Envelope) error {
			require.Zero(t, env.Attempts)
			require.GreaterOrEqual(t, time.Since(began), 8*time.Second, "the right lasts")
			got.add(env.EventID)
			mu.Lock()
			begun = append(begun, time.Now())
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		time.Sleep(time.Minute)
		delivered, deliveries := got.total()
		require.Equal(t, []int{events, events}, []int{delivered, deliveries})
		mu.Lock()
		require.GreaterOrEqual(t, begun[1].Sub(begun[0]), 100*time.Millisecond, "the first alone")
		require.GreaterOrEqual(t, begun[3].Sub(begun[1]), 100*time.Millisecond, "then two, because the first survived")
		mu.Unlock()
		close(release)
		time.Sleep(time.Second)
		require.EqualValues(t, 4, stopped.Load(), "the events that were queued are not delivered")
		first.away.Store(false)
		time.Sleep(time.Minute)
		for i := range events {
			row, _ := first.Row(fmt.Sprintf("e%02d", i))
			require.Equal(t, outbox.StatusDone, row.Status)
		}
		require.EqualValues(t, 4, stopped.Load())
		require.Empty(t, rangesOf(t, first.Store))
	})
}

// Closing gives queued events back to other nodes at once.
func TestAClosedNodeGivesItsRangesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		for i := range 100 {
			insertDue(t, store, fmt.Sprintf("e%02d", i), -time.Hour+time.Duration(i)*time.Second)
		}
		mode := byRanges(outbox.PollOptions{})
		mode.Dispatch.DrainTimeout = time.Second
		first := start(t, outbox.Config{Store: store, Mode: mode}, func(ctx context.Context, _ outbox.Envelope) error {
			<-ctx.Done()
			return ctx.Err()
		})
		synctest.Wait()
		require.NotEmpty(t, rangesOf(t, store))
		require.NoError(t, first.Close(t.Context()))
		require.Empty(t, rangesOf(t, store))
		var got calls
		start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
			require.Zero(t, env.Attempts)
			got.add(env.EventID)
			return nil
		})
		time.Sleep(time.Second)
		delivered, _ := got.total()
		require.Equal(t, 100, delivered)
	})
}

// lockedClaims is a store whose claims find each row locked.
type lockedClaims struct {
	*outboxtest.Store
	n atomic.Int64
}

func (s *lockedClaims) memory() *outboxtest.Store { return s.Store }

func (s *lockedClaims) Claim(context.Context, outbox.DB, outbox.ClaimQuery) (outbox.Batch, error) {
	s.n.Add(1)
	return outbox.Batch{}, nil
}

// A takeover of rows that another transaction has locked is tried again a few times in a second.
func TestATakeoverOfLockedRowsDoesNotKeepThePollerBusy(t *testing.T) {
	t.Parallel()
	for name, expired := range map[string]func(t *testing.T) *outboxtest.Store{
		"a lease": func(t *testing.T) *outboxtest.Store { t.Helper(); return orphaned(t, "e") },
		"a range": func(t *testing.T) *outboxtest.Store {
			t.Helper()
			store := outboxtest.NewStore()
			insertDue(t, store, "e", -time.Minute)
			row, _ := store.Row("e")
			upto := outbox.Cursor{AvailableAt: row.AvailableAt, CreatedAt: row.Envelope.OccurredAt, EventID: "e"}
			ok, err := store.SetRanges(t.Context(), store.DB(), "", time.Now().Add(time.Hour), outbox.Ranges{
				Version: "1", Ranges: []outbox.Range{{Name: "dead node/1", Upto: upto, Until: time.Now().Add(time.Second)}},
			})
			require.NoError(t, err)
			require.True(t, ok)
			return store
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &lockedClaims{Store: expired(t)}
				start(t, outbox.Config{Store: s, Mode: byRanges(outbox.PollOptions{})}, handled)
				time.Sleep(outbox.DefaultLeaseDuration + time.Minute)
				tries := s.n.Load()
				require.Positive(t, tries)
				time.Sleep(time.Minute)
				require.Less(t, s.n.Load()-tries, int64(60*1000/50+10))
			})
		})
	}
}

// The row of an event in hand loses its lease by hand. Reads find a copy of the event, and do not look
// for more without a pause.
func TestACopyOfAnEventInHandIsNotLookedForAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, release := &readLog{Store: outboxtest.NewStore()}, make(chan struct{})
		var c calls
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}}, func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			<-release
			return nil
		})
		e.write(said("e"))
		synctest.Wait()
		row, _ := store.Row("e")
		require.NotEmpty(t, row.LockedBy)
		row.LockedBy, row.LockedAt = "", time.Time{}
		require.True(t, store.SetRow("e", row.RawRow))
		e.Wake()
		time.Sleep(time.Minute)
		store.mu.Lock()
		require.LessOrEqual(t, len(store.queries), 60)
		store.mu.Unlock()
		_, deliveries := c.total()
		require.Equal(t, 1, deliveries, "while the event is in hand")
		close(release)
		time.Sleep(time.Minute)
		row, _ = store.Row("e")
		require.Equal(t, outbox.StatusDone, row.Status)
	})
}
