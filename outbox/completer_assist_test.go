package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// busy is a store that counts the statements with outcomes that are under way.
type busy struct {
	*outboxtest.Store
	// answer is what a statement waits for, and whether it fails. beside: it has half a
	// batch or more, and began while another was under way.
	answer func(beside bool) error

	mu             sync.Mutex
	underWay, most int
}

func (s *busy) memory() *outboxtest.Store { return s.Store }

func (s *busy) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if err := s.work(len(marks)); err != nil {
		return nil, err
	}
	return s.Store.Mark(ctx, db, kind, marks)
}

func (s *busy) Split(ctx context.Context, db outbox.DB, outcome outbox.Outcome, splits []outbox.Split) (map[string]outbox.RowState, error) {
	if err := s.work(len(splits)); err != nil {
		return nil, err
	}
	return s.Store.Split(ctx, db, outcome, splits)
}

func (s *busy) work(events int) error {
	s.mu.Lock()
	s.underWay++
	s.most = max(s.most, s.underWay)
	beside := s.underWay > 1 && events >= 500
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.underWay--
		s.mu.Unlock()
	}()
	return s.answer(beside)
}

func (s *busy) mostAtOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// inTenMilliseconds lets each statement take as long as many others need to gather.
func inTenMilliseconds(bool) error {
	time.Sleep(10 * time.Millisecond)
	return nil
}

func TestABacklogHasTwoStatementsUnderWayUnlessTheirOrderMatters(t *testing.T) {
	t.Parallel()
	for most, modes := range map[int][]outbox.Mode{2: {outbox.SingleNode{}, outbox.MultiNode{}}, 1: {outbox.Ordered{}, outbox.OrderedByKey{}}} {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("%T", mode), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { drainSlowly(t, mode, most) })
			})
		}
	}
}

func drainSlowly(t *testing.T, mode outbox.Mode, most int) {
	store := &busy{Store: written(t, named("e", 5000)...), answer: inTenMilliseconds}
	e := start(t, outbox.Config{Store: store, Mode: mode}, handled)
	time.Sleep(time.Minute)
	require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 5000}, statuses(store.Store))
	require.Equal(t, most, store.mostAtOnce())
	require.NoError(t, e.Close(context.Background()))
}

func TestTwoStatementsSplitEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		store := &busy{Store: written(t, named("e", 3000)...), answer: inTenMilliseconds}
		e := startNamed(t, outbox.Config{Store: store, RetryPolicy: afterAMinute}, h.on("search", succeeds), h.on("mail", failsTimes(1)))
		time.Sleep(time.Second)
		require.Equal(t, 2, store.mostAtOnce())
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 3000, outbox.StatusRetry: 3000}, statuses(store.Store))
		time.Sleep(time.Hour)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 6000}, statuses(store.Store))
		require.Len(t, h.all(), 9000)
		require.NoError(t, e.Close(context.Background()))
	})
}

func TestOutcomesThatFillNoBatchWaitForTheStatementUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &busy{Store: outboxtest.NewStore(), answer: inTenMilliseconds}
		e := start(t, outbox.Config{Store: store}, handled)
		for i := range 2000 {
			e.write(said(fmt.Sprint("e", i)))
			time.Sleep(time.Millisecond / 10)
		}
		time.Sleep(time.Second)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 2000}, statuses(store.Store))
		require.Equal(t, 1, store.mostAtOnce())
		require.NoError(t, e.Close(context.Background()))
	})
}

// oftenDead is a listener's answer that makes a tenth of the events DEAD.
func (c *calls) oftenDead(_ context.Context, env outbox.Envelope) error {
	c.add(env.EventID)
	if strings.HasSuffix(env.EventID, "0") {
		return outbox.Dead(errors.New("every tenth"))
	}
	return nil
}

func TestWhatTheSecondStatementCannotStoreIsStoredAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var failures atomic.Int32
		store := &busy{Store: written(t, named("e", 6000)...), answer: func(beside bool) error {
			time.Sleep(10 * time.Millisecond)
			if beside {
				failures.Add(1)
				return errors.New("the connection broke")
			}
			return nil
		}}
		var c calls
		e := start(t, outbox.Config{Store: store}, c.oftenDead)
		time.Sleep(time.Minute)
		require.NotZero(t, failures.Load())
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 5400, outbox.StatusDead: 600}, statuses(store.Store))
		events, deliveries := c.total()
		require.Equal(t, []int{6000, 6000}, []int{events, deliveries}, "no event is delivered again")
		require.NoError(t, e.Close(context.Background()))
	})
}

func TestWhatTheSecondStatementCannotStoreDoesNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		store := &busy{Store: outboxtest.NewStore(), answer: func(bool) error {
			if fails.Swap(false) {
				return errors.New("the connection broke")
			}
			return nil
		}}
		e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MarkInterval: time.Hour}}}, handled)
		e.write(said("at once"))
		synctest.Wait()
		e.write(said("waits for the interval"))
		synctest.Wait()
		fails.Store(true) // for the second statement: its goroutine waited first for the batch to be full
		for _, id := range named("e", 999) {
			e.write(said(id))
		}
		time.Sleep(time.Second)
		require.False(t, fails.Load())
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 1000, outbox.StatusNew: 1}, statuses(store.Store))
	})
}

func TestWhatTheSecondStatementCannotStoreWhileClosingIsStoredAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store := &busy{Store: written(t, named("e", 6000)...), answer: func(beside bool) error {
			time.Sleep(10 * time.Millisecond)
			if !beside {
				return nil
			}
			<-gate
			return errors.New("the connection broke")
		}}
		var c calls
		e := start(t, outbox.Config{Store: store}, c.oftenDead)
		time.Sleep(20 * time.Millisecond)
		time.AfterFunc(time.Second, func() { close(gate) })
		require.NoError(t, e.Close(context.Background()))
		events, deliveries := c.total()
		require.Equal(t, events, deliveries)
		require.Equal(t, events, 6000-statuses(store.Store)[outbox.StatusNew])
	})
}

// locked is a store with a row that somebody locked: the first one of the first full
// statement that begins beside another.
type locked struct {
	*busy
	row string
}

func (s *locked) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.mu.Lock()
	if s.row == "" && s.underWay > 0 && len(marks) > 900 {
		s.row = marks[0].EventID
	}
	waits := slices.ContainsFunc(marks, func(m outbox.Mark) bool { return m.EventID == s.row })
	s.mu.Unlock()
	if waits {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.busy.Mark(ctx, db, kind, marks)
}

func TestALockedRowHoldsUpTheSecondStatementNoLongerThanTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		store := &locked{busy: &busy{Store: written(t, named("e", 5000)...), answer: inTenMilliseconds}}
		e := start(t, outbox.Config{Store: store, Logger: slog.New(book)}, handled)
		time.Sleep(5 * time.Second) // 2 s all, 1 s a part, 1 s the row alone, 10 ms each of the rest
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 4999, outbox.StatusNew: 1}, statuses(store.Store))
		lines := book.about("outcomes could not be stored")
		require.Len(t, lines, 1)
		require.Greater(t, lines[0].attrs["count"].Int64(), int64(900), "the whole batch failed first")
		require.Error(t, e.Close(context.Background()))
	})
}

// unrenewed is a store that renews no lease.
type unrenewed struct{ *busy }

func (unrenewed) Renew(context.Context, outbox.DB, []outbox.Lease) error { return errGone }

func TestWhatIsClaimedAnewDuringTheSecondStatementIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Of the first two statements, the smaller may be the second; the next two are full.
		const lease, events = 100 * time.Millisecond, 4400
		var late atomic.Bool
		store := unrenewed{&busy{Store: written(t, named("e", events)...), answer: func(beside bool) error {
			time.Sleep(10 * time.Millisecond)
			if beside && late.CompareAndSwap(false, true) {
				time.Sleep(2 * lease)
			}
			return nil
		}}}
		var c calls
		e := start(t, outbox.Config{
			Store: store, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{LeaseDuration: lease, TenantsInTurn: true}, Poll: outbox.PollOptions{Interval: lease}},
		}, func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		})
		time.Sleep(time.Second)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: events}, statuses(store.Store))
		var again int
		for _, row := range store.Rows() {
			again += row.Attempts
		}
		require.Greater(t, again, 400, "rows that were claimed anew")
		delivered, deliveries := c.total()
		require.Equal(t, []int{events, events}, []int{delivered, deliveries})
		require.NoError(t, e.Close(context.Background()))
	})
}

func TestCloseDoesNotWaitForASecondStatementThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var hangs atomic.Bool
		store := &busy{Store: written(t, named("e", 5000)...), answer: func(beside bool) error {
			time.Sleep(10 * time.Millisecond)
			if beside && hangs.CompareAndSwap(false, true) {
				<-gate // a driver that ignores its context
			}
			return nil
		}}
		mode := outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: time.Second}}
		e := start(t, outbox.Config{Store: store, Mode: mode}, handled)
		time.Sleep(time.Minute)
		defer func() {
			close(gate)
			time.Sleep(time.Minute)
		}()
		began := time.Now()
		err := e.Close(context.Background())
		require.Regexp(t, `[1-9]\d{2,3} outcomes could not be stored`, err)
		require.Less(t, time.Since(began), 11*time.Second, "4 × DrainTimeout + 7 s")
	})
}
