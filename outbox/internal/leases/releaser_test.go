package leases_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/leases"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// table has rows with leases that are numbers.
type table struct {
	mu     sync.Mutex
	rows   map[int]bool
	locked map[int]bool // a statement with one of these ends at its limit
	claims map[string][]int
	err    error
	takes  time.Duration // a statement
	deaf   chan struct{} // if not nil, a statement ends when it is closed, whatever its context

	began time.Time
	tries []time.Duration // of Release, since began
	sizes []int           // and its leases
	asked []time.Duration // of Leased
}

func newTable(rows ...int) *table {
	t := &table{rows: map[int]bool{}, locked: map[int]bool{}, claims: map[string][]int{}, began: time.Now()}
	for _, row := range rows {
		t.rows[row] = true
	}
	return t
}

func (t *table) Release(ctx context.Context, given []int) (n int, err error) {
	t.mu.Lock()
	t.tries, t.sizes = append(t.tries, time.Since(t.began)), append(t.sizes, len(given))
	locked := slices.ContainsFunc(given, func(l int) bool { return t.locked[l] })
	t.mu.Unlock()
	if t.deaf != nil {
		<-t.deaf
	}
	if t.takes > 0 {
		time.Sleep(t.takes)
	}
	if locked {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return 0, t.err
	}
	for _, l := range given {
		if t.rows[l] {
			n++
			delete(t.rows, l)
		}
	}
	return n, ctx.Err()
}

func (t *table) Leased(_ context.Context, claims []string) (map[string][]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = append(t.asked, time.Since(t.began))
	if t.err != nil {
		return nil, t.err
	}
	found := map[string][]int{}
	for _, claim := range claims {
		found[claim] = t.claims[claim]
	}
	return found, nil
}

func (t *table) set(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
}

func (t *table) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows)
}

func numbers(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// givesBack is a releaser that runs.
func givesBack(table *table) (*leases.Releaser[int], *lines) {
	log := &lines{}
	r := leases.NewReleaser("web-1", lease, table, slog.New(log))
	r.Start()
	return r, log
}

var errAway = errors.New("the database is away")

const ms = time.Millisecond

func TestLeasesAreGivenBackTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		given := numbers(1700)
		table := newTable(given...)
		table.takes = ms // the others gather meanwhile
		r, log := givesBack(table)
		synctest.Wait()
		r.Release(given[:1200])
		for _, l := range given[1200:] {
			r.Release([]int{l})
		}
		sleep(time.Second)
		require.Zero(t, table.left())
		require.LessOrEqual(t, len(table.sizes), 6)
		require.LessOrEqual(t, slices.Max(table.sizes), 500)
		require.Less(t, slices.Max(table.tries), 10*ms, "none waits for a second try")
		require.Zero(t, r.Close(time.Second))
		require.Empty(t, log.lines)
	})
}

// The row of a transaction in doubt comes late, or never.
func TestLeasesInDoubtAreTriedUntilThatTakesEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		r, log := givesBack(table)
		r.Doubt(nil, time.Now())
		r.Doubt([]int{1, 2}, time.Now())
		time.AfterFunc(500*ms, func() { table.set(func() { table.rows[1] = true }) })
		sleep(10 * lease)
		require.Equal(t, []time.Duration{0, 10 * ms, 110 * ms, 1110 * ms}, table.tries)

		table.set(func() { table.tries, table.began = nil, time.Now() })
		r.Doubt([]int{3}, time.Now())
		sleep(10 * lease)
		require.Greater(t, slices.Max(table.tries), lease/4)
		require.Less(t, slices.Max(table.tries), lease)
		require.Empty(t, log.lines, "a transaction that was rolled back has no rows")

		table.set(func() { table.err = errAway })
		r.Doubt([]int{4, 5}, time.Now())
		sleep(10 * lease)
		require.Equal(t, 2, log.counted())
		require.Equal(t, []string{"web-1: outbox: leases could not be given back; other nodes deliver their events when the leases expire: the database is away"}, log.lines)
		require.Zero(t, r.Close(time.Second))
	})
}

func TestTheLeasesOfAFailedClaimAreLookedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newTable(numbers(1000)...)
		r, log := givesBack(table)
		r.DoubtClaim("a")
		r.DoubtClaim("b")
		time.AfterFunc(50*ms, func() { table.set(func() { table.claims["b"] = numbers(700) }) })
		sleep(10 * lease)
		require.Equal(t, []time.Duration{0, 10 * ms, 110 * ms}, table.asked[:3], "both are asked for together")
		require.Equal(t, 300, table.left())
		require.Equal(t, []time.Duration{110 * ms}, table.tries)
		require.Zero(t, r.Close(time.Second))
		require.Empty(t, log.lines)
	})
}

// Once its rows are known, a failed claim is in doubt no more: closing tries until they are free.
func TestCloseGivesTheRowsOfAFailedClaimBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newTable(1)
		table.locked[1], table.claims["a"] = true, []int{1}
		r, _ := givesBack(table)
		r.DoubtClaim("a")
		sleep(5 * time.Second)
		time.AfterFunc(3*time.Second, func() { table.set(func() { table.locked = nil }) })
		require.Zero(t, r.Close(10*time.Second))
		require.Zero(t, table.left())
	})
}

func TestALockedRowHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newTable(numbers(400)...)
		table.locked[7] = true
		r, _ := givesBack(table)
		for l := range 400 {
			r.Release([]int{l})
		}
		sleep(10 * time.Second)
		require.Equal(t, 1, table.left())
		table.set(func() { table.locked = nil })
		sleep(time.Minute)
		require.Zero(t, table.left())
		require.Zero(t, r.Close(time.Second))
	})
}

func TestCloseGivesTheRestBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newTable(1, 2, 3)
		table.err = errAway
		r, log := givesBack(table)
		r.Release([]int{1})
		r.Doubt([]int{4}, time.Now()) // was rolled back
		sleep(time.Minute)
		time.AfterFunc(200*ms, func() { table.set(func() { table.err = nil }) })
		r.Release([]int{2})
		began := time.Now()
		require.Zero(t, r.Close(10*time.Second))
		require.Less(t, time.Since(began), 300*ms)
		require.Equal(t, 1, table.left())

		// After the close there is one try.
		r.Release([]int{3})
		synctest.Wait()
		require.Zero(t, table.left())
		require.Equal(t, 1, log.counted(), "the lease in doubt, which had one more try")
		table.set(func() { table.err = errAway })
		r.Release([]int{5, 6})
		synctest.Wait()
		require.Equal(t, 3, log.counted())
		table.set(func() { table.err = nil; table.claims["c"] = []int{8}; table.rows[8] = true })
		r.DoubtClaim("c")
		synctest.Wait()
		require.Zero(t, table.left())
	})
}

func TestCloseCountsTheLeasesThatItCouldNotGiveBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newTable(1, 2, 3)
		table.locked = map[int]bool{1: true, 2: true}
		r, _ := givesBack(table)
		r.Release([]int{1})
		r.Release([]int{2})
		r.Release([]int{3})
		sleep(time.Minute)
		began := time.Now()
		require.Equal(t, 2, r.Close(10*time.Second))
		require.Equal(t, 10*time.Second, time.Since(began))

		table = newTable(1)
		table.deaf = make(chan struct{})
		r, _ = givesBack(table)
		r.Release([]int{1})
		synctest.Wait()
		began = time.Now()
		require.Equal(t, 1, r.Close(10*time.Second))
		require.Equal(t, 10*time.Second+wait.Grace, time.Since(began), "a driver ignores the end of the context")
		close(table.deaf)
	})
}

func TestTheLeasesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newTable()
		table.err = errAway
		r, log := givesBack(table)
		given := numbers(120_000)
		r.Release(given)
		sleep(time.Second)
		require.True(t, log.has("too many leases are given back at once"))
		require.Equal(t, 100_000, r.Close(time.Second))
		require.Equal(t, 20_000, log.counted())
	})
}
