package groupcommit_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/groupcommit"
)

// table is a target that keeps what it stores. Items are numbers, and even and odd numbers
// are two kinds.
type table struct {
	takes time.Duration // one statement

	mu      sync.Mutex
	locked  map[int]bool // a statement with one of these ends at its limit
	refused map[int]bool
	away    bool // nothing answers
	later   func(item int) bool
	pages   [][]int
	at      []time.Time // when a page was stored
	under   int         // statements under way, and the most at once
	most    int
	failed  int
	well    int
}

func (t *table) Store(within groupcommit.Within, _ bool, group []int) (again, refused []int, err error) {
	for _, item := range group {
		if t.isRefused(item) {
			refused = append(refused, item)
		}
	}
	group = slices.DeleteFunc(slices.Clone(group), func(item int) bool {
		if t.later != nil && t.later(item) {
			again = append(again, item)
			return true
		}
		return slices.Contains(refused, item)
	})
	if len(group) == 0 {
		return again, refused, nil
	}
	err = within(func(ctx context.Context) error { return t.statement(ctx, group) })
	if err != nil {
		return append(again, group...), refused, err
	}
	return again, refused, nil
}

func (t *table) isRefused(item int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused[item]
}

func (t *table) statement(ctx context.Context, group []int) error {
	t.mu.Lock()
	takes := t.takes
	if t.away || slices.ContainsFunc(group, func(item int) bool { return t.locked[item] }) {
		takes = time.Hour
	}
	t.under++
	t.most = max(t.most, t.under)
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.under--
	}()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pages, t.at = append(t.pages, group), append(t.at, time.Now())
	return nil
}

func (t *table) Ping(ctx context.Context) error {
	t.mu.Lock()
	away := t.away
	t.mu.Unlock()
	if away {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (t *table) Failed(_ bool, _ int, err error) {
	if err == nil {
		panic("no error")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
}

func (t *table) Recovered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.well++
}

// set changes the table.
func (t *table) set(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
}

// stored are the stored items in their order.
func (t *table) stored() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Concat(t.pages...)
}

type committer = *groupcommit.Committer[int, bool]

func start(to *table, configure ...func(*groupcommit.Config[int, bool])) committer {
	cfg := groupcommit.Config[int, bool]{
		Interval: 10 * time.Millisecond,
		Kinds:    []bool{true, false},
		Kind:     func(item int) bool { return item%2 == 0 },
	}
	for _, c := range configure {
		c(&cfg)
	}
	return groupcommit.Start(cfg, to)
}

func end(t *testing.T, c committer) {
	t.Helper()
	c.Refuse()
	require.False(t, c.Submit(0))
	c.Close(time.Minute)
}

func numbers(from, to int) (all []int) {
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all
}

func TestItemsGatherWhileTheIntervalLasts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &table{takes: time.Millisecond}
		c := start(to)
		for _, n := range numbers(0, 7) {
			require.True(t, c.Submit(n))
			synctest.Wait()
		}
		time.Sleep(time.Second)
		end(t, c)
		require.Equal(t, [][]int{{0}, {2, 4, 6}, {1, 3, 5}}, to.pages, "the first at once, the others in one statement for each kind")
		require.Equal(t, 10*time.Millisecond, to.at[1].Sub(to.at[0]))
	})
}

func TestStoreNowDoesNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &table{takes: time.Millisecond}
		c := start(to, func(cfg *groupcommit.Config[int, bool]) { cfg.OneByOne, cfg.Interval = true, time.Hour })
		c.Submit(0)
		time.Sleep(time.Second)
		c.Submit(2)
		synctest.Wait()
		require.Len(t, to.stored(), 1)
		c.StoreNow()
		time.Sleep(2 * time.Millisecond)
		require.Len(t, to.stored(), 2)
		end(t, c)
	})
}

// The token that a batch is full may outlive the batch.
func TestTheSecondStatementLeavesWhatFillsNoBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &table{takes: time.Second}
		c := start(to)
		c.Submit(0)
		synctest.Wait() // the first statement is under way
		for n := range 5 {
			c.Submit(2 * n)
		}
		c.StoreNow()
		time.Sleep(time.Second / 2)
		to.set(func() { require.Equal(t, 1, to.most) })
		end(t, c)
	})
}

func TestABacklogHasTwoStatementsUnderWay(t *testing.T) {
	t.Parallel()
	for oneByOne, most := range map[bool]int{false: 2, true: 1} {
		synctest.Test(t, func(t *testing.T) {
			to := &table{takes: time.Second}
			c := start(to, func(cfg *groupcommit.Config[int, bool]) { cfg.OneByOne = oneByOne })
			for n := range 5 * groupcommit.Batch {
				require.True(t, c.Submit(2*n))
			}
			end(t, c)
			require.Equal(t, most, to.most)
			require.Len(t, to.stored(), 5*groupcommit.Batch)
			for _, page := range to.pages {
				require.LessOrEqual(t, len(page), groupcommit.Batch)
			}
		})
	}
}

func TestAnItemThatCannotBeStoredIsSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &table{takes: time.Millisecond, locked: map[int]bool{100: true}}
		c := start(to)
		for _, n := range numbers(0, 200) {
			c.Submit(n)
		}
		time.Sleep(20 * time.Second)
		require.ElementsMatch(t, slices.DeleteFunc(numbers(0, 200), func(n int) bool { return n == 100 }), to.stored())
		to.set(func() { to.well = 0 })
		for _, n := range numbers(200, 400) {
			c.Submit(n)
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		require.Len(t, to.stored(), 399, "it does not hold up the rest")
		to.set(func() {
			require.Zero(t, to.well)
			to.locked = nil
		})
		time.Sleep(30 * time.Second)
		require.Equal(t, 100, to.stored()[399])
		end(t, c)
		require.Positive(t, to.well)
	})
}

func TestInOrderTheItemsBehindWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &table{takes: time.Millisecond, locked: map[int]bool{100: true}}
		c := start(to, func(cfg *groupcommit.Config[int, bool]) {
			cfg.OneByOne, cfg.InOrder = true, true
			cfg.Kinds, cfg.Kind = []bool{true}, func(int) bool { return true }
		})
		for _, n := range numbers(0, 200) {
			c.Submit(n)
		}
		time.Sleep(time.Minute)
		require.LessOrEqual(t, len(to.stored()), 100)
		to.set(func() { to.locked = nil })
		time.Sleep(time.Minute)
		require.Equal(t, numbers(0, 200), to.stored())
		end(t, c)
	})
}

func TestARefusedItemIsTriedEverMoreRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &table{takes: time.Millisecond, refused: map[int]bool{3: true, 4: true}}
		c := start(to)
		for _, n := range numbers(0, 10) {
			c.Submit(n)
		}
		time.Sleep(time.Hour)
		require.ElementsMatch(t, []int{0, 1, 2, 5, 6, 7, 8, 9}, to.stored())
		to.set(func() {
			require.Zero(t, to.failed, "the target says itself why an item is refused")
			to.refused = map[int]bool{4: true}
		})
		time.Sleep(6 * time.Minute)
		require.Contains(t, to.stored(), 3)
		c.Refuse()
		began := time.Now()
		c.Close(time.Minute)
		require.Less(t, time.Since(began), time.Second, "closing does not wait for what is refused")
	})
}

func TestItemsWhoseTurnHasNotComeAreStoredSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &table{takes: time.Millisecond}
		to.later = func(item int) bool { return item == 2 && !slices.Contains(to.stored(), 8) }
		c := start(to)
		c.Submit(2)
		time.Sleep(time.Second)
		require.Empty(t, to.stored())
		c.Submit(8)
		time.Sleep(time.Second)
		require.Equal(t, []int{8, 2}, to.stored())
		end(t, c)
		require.Zero(t, to.failed)
	})
}

func TestItemsAreStoredSoonAfterADatabaseIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &table{takes: time.Millisecond, away: true}
		c := start(to)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := range 3 * groupcommit.InHand {
				if !c.Submit(2 * n) {
					return
				}
			}
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		select {
		case <-done:
			require.Fail(t, "memory is not bounded")
		default:
		}
		back := time.Now()
		to.set(func() { to.away = false })
		<-done
		end(t, c)
		require.Less(t, time.Since(back), 5*time.Second)
		require.Len(t, to.stored(), 3*groupcommit.InHand)
	})
}

func TestCloseEndsWhenTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &table{away: true}
		c := start(to)
		for n := range groupcommit.Batch {
			c.Submit(2 * n)
		}
		c.Refuse()
		began := time.Now()
		c.Close(10 * time.Second)
		require.LessOrEqual(t, time.Since(began), 11*time.Second)
		require.Empty(t, to.stored())
	})
}
