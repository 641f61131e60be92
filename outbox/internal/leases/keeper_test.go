package leases_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/leases"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

const lease = 5 * time.Minute

// kept are leases that are numbers.
type kept struct {
	mu      sync.Mutex
	held    []int
	locked  func(leases []int) bool // a statement with these ends at its limit
	deaf    chan struct{}           // if not nil, a statement ends when it is closed, whatever its context
	sizes   []int                   // of the statements
	renewed map[int]time.Time
}

func (k *kept) Leases() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.held)
}

func (k *kept) Renew(ctx context.Context, leases []int) error {
	k.mu.Lock()
	locked := k.locked != nil && k.locked(leases)
	k.sizes = append(k.sizes, len(leases))
	k.mu.Unlock()
	if k.deaf != nil {
		<-k.deaf
	}
	if locked {
		<-ctx.Done()
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range leases {
		k.renewed[l] = time.Now()
	}
	return nil
}

// statements are the numbers of leases in each statement.
func (k *kept) statements() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.sizes)
}

// oldest is the time since the lease was renewed that waits for the longest time, without one.
func (k *kept) oldest(without int) (age time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.held {
		if l != without {
			age = max(age, time.Since(k.renewed[l]))
		}
	}
	return age
}

// sleep waits until everything that is due by then has happened, too.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// set changes what happens.
func (k *kept) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

const noLease = -1

func keep(n int) *kept {
	k := &kept{renewed: map[int]time.Time{}}
	for l := range n {
		k.held = append(k.held, l)
		k.renewed[l] = time.Now()
	}
	return k
}

// lines are a log: the messages, and the leases that they count.
type lines struct {
	mu     sync.Mutex
	lines  []string
	counts []int
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "count":
			l.counts = append(l.counts, int(a.Value.Int64()))
		case "owner":
			line = a.Value.String() + ": " + line
		case "error":
			line += ": " + a.Value.String()
		}
		return true
	})
	l.lines = append(l.lines, line)
	return nil
}

// has reports whether a line has the text.
func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool { return strings.Contains(line, text) })
}

// counted are the leases that all lines count.
func (l *lines) counted() (sum int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, count := range l.counts {
		sum += count
	}
	return sum
}

// keepsUp is a keeper that runs.
func keepsUp(k *kept) (*leases.Keeper[int], *lines) {
	log := &lines{}
	keeper := leases.NewKeeper("web-1", lease, k, slog.New(log))
	keeper.Start()
	return keeper, log
}

func TestLeasesAreRenewedInAThirdOfTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := keep(1200)
		keeper, log := keepsUp(k)
		sleep(lease/3 - time.Second)
		require.Empty(t, k.statements())
		sleep(2 * time.Second)
		require.Equal(t, []int{500, 500, 200}, k.statements())
		for range 100 {
			sleep(time.Minute)
			require.LessOrEqual(t, k.oldest(noLease), lease/3)
		}
		k.set(func() { k.held, k.sizes = nil, nil })
		sleep(time.Hour)
		keeper.Close()
		require.Empty(t, k.statements(), "no lease, no statement")
		require.Empty(t, log.lines)
	})
}

func TestALockedRowCostsNoOtherLease(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 300, 1200} {
		synctest.Test(t, func(t *testing.T) {
			k := keep(n)
			keeper, log := keepsUp(k)
			locked := n / 3
			k.set(func() { k.locked = func(leases []int) bool { return slices.Contains(leases, locked) } })
			for range 40 {
				sleep(30 * time.Second)
				require.Less(t, k.oldest(locked), lease*3/4)
			}
			require.True(t, log.has("web-1: outbox: leases could not be renewed; trying again: context deadline exceeded"))
			require.Greater(t, log.counted(), 1)
			require.Less(t, log.counted(), 300, "one lease in each try")
			require.False(t, log.has("renewed again"))
			k.set(func() { k.locked = nil })
			sleep(time.Minute)
			require.Less(t, k.oldest(noLease), 2*time.Minute, "soon after the row is free")
			require.True(t, log.has("renewed again"))
			keeper.Close()
		})
	}
}

// A database that is away gets three statements, each at most a quarter of a lease, and then a
// pause.
func TestAnOutageThatIsShorterThanALeaseCostsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := keep(5000)
		keeper, log := keepsUp(k)
		sleep(lease / 3)
		k.set(func() { k.locked = func([]int) bool { return true }; k.sizes = nil })
		sleep(lease/3 + 95*time.Second)
		k.set(func() { k.locked = nil })
		require.Less(t, len(k.statements()), 40, "statements while the database was away")
		require.Equal(t, 5000, log.counts[0], "all leases are counted")
		sleep(40 * time.Second)
		require.Less(t, k.oldest(noLease), time.Minute)
		require.True(t, log.has("renewed again"))
		keeper.Close()
	})
}

func TestCloseDoesNotWaitForAStatementThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := keep(1)
		k.deaf = make(chan struct{})
		keeper, _ := keepsUp(k)
		sleep(lease / 2)
		began := time.Now()
		keeper.Close()
		require.Equal(t, wait.Grace, time.Since(began))
		close(k.deaf)

		k = keep(1)
		k.locked = func([]int) bool { return true }
		keeper, log := keepsUp(k)
		sleep(lease / 3)
		began = time.Now()
		keeper.Close()
		require.Zero(t, time.Since(began), "a statement that heeds its context ends")
		require.Empty(t, log.lines, "a close is no failure")
	})
}

func TestNamesAreNotGivenTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		before := leases.NewNames("web-1")
		seen := map[string]bool{}
		for range 1000 {
			seen[before.Next()] = true
		}
		sleep(time.Second) // a process that ran before had another number of the first lease
		after := leases.NewNames("web-1")
		for range 1000 {
			name := after.Next()
			require.False(t, seen[name])
			require.Regexp(t, `^web-1/[0-9a-z]+$`, name)
			seen[name] = true
		}
		require.Len(t, seen, 2000)
	})
	require.NotEqual(t, leases.NewOwner(), leases.NewOwner())
	require.LessOrEqual(t, len(leases.NewOwner()), leases.MaxOwner)
}
