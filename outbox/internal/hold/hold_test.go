package hold_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/hold"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// row is a row in a database that says who holds the table.
type row struct {
	mu    sync.Mutex
	owner string
	until time.Time
}

// table is the table as one process sees it.
type table struct {
	*row
	name string
	hold *hold.Hold
	log  strings.Builder

	mu     sync.Mutex
	err    error
	takes  time.Duration // a statement, before it is carried out
	slow   time.Duration // the answer to Hold, after that
	deaf   chan struct{} // if not nil, a statement ends when it is closed, whatever its context
	gained []bool        // died, of each call
	begun  int
}

func (t *table) wait(ctx context.Context) error {
	t.mu.Lock()
	takes, deaf, err := t.takes, t.deaf, t.err
	t.mu.Unlock()
	if deaf != nil {
		<-deaf
	}
	if takes > 0 {
		wait.Sleep(ctx, takes)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (t *table) Hold(ctx context.Context, d time.Duration) (owner string, died bool, err error) {
	if err := t.wait(ctx); err != nil {
		return "", false, err
	}
	t.row.mu.Lock()
	defer t.row.mu.Unlock()
	if t.owner != "" && t.owner != t.name && time.Now().Before(t.until) {
		return t.owner, false, nil
	}
	died = t.owner != "" && t.owner != t.name
	t.owner, t.until = t.name, time.Now().Add(d)
	if t.slow > 0 {
		wait.Sleep(ctx, t.slow)
	}
	return t.owner, died, ctx.Err()
}

func (t *table) Release(ctx context.Context) error {
	if err := t.wait(ctx); err != nil {
		return err
	}
	t.row.mu.Lock()
	defer t.row.mu.Unlock()
	if t.owner == t.name {
		t.owner = ""
	}
	return nil
}

func (t *table) Gained(died bool) {
	if t.hold.Holds() {
		panic("the hold began before Gained")
	}
	t.gained = append(t.gained, died)
}

func (t *table) Begin() {
	if !t.hold.Holds() {
		panic("Begin before the hold began")
	}
	t.begun++
}

// sleep waits until everything that is due by then has happened, too.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// set changes how statements end.
func (t *table) set(err error, takes time.Duration, deaf chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err, t.takes, t.deaf = err, takes, deaf
}

// process is a process that has tried once and goes on trying.
func (r *row) process(t *testing.T, name string) *table {
	t.Helper()
	p := &table{row: r, name: name}
	p.hold = hold.New(name, p, slog.New(slog.NewTextHandler(&p.log, nil)))
	require.False(t, p.hold.Holds())
	require.NoError(t, p.hold.Try(t.Context()))
	p.hold.Start()
	return p
}

func TestOneProcessHoldsTheTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r row
		a := r.process(t, "a")
		require.True(t, a.hold.Holds(), "a process that is alone works at once")
		require.EqualValues(t, 1, a.hold.Term())
		b := r.process(t, "b")
		for range 100 {
			sleep(500 * time.Millisecond)
			require.True(t, a.hold.Holds())
			require.False(t, a.hold.Standby())
			require.False(t, b.hold.Holds())
			require.True(t, b.hold.Standby())
		}
		require.Equal(t, []bool{false}, a.gained)
		require.Equal(t, 1, a.begun)
		require.EqualValues(t, 1, a.hold.Term(), "a renewal begins no term")
		require.Equal(t, 1, strings.Count(b.log.String(), "waits as a standby"))

		require.NoError(t, a.hold.Close())
		require.False(t, a.hold.Holds())
		sleep(time.Second)
		require.True(t, b.hold.Holds(), "the standby takes over at once")
		require.False(t, b.hold.Standby())
		require.Equal(t, []bool{false}, b.gained)
		require.Contains(t, b.log.String(), "this process delivers from the table now\" owner=b holder=a died=false")
		require.NoError(t, b.hold.Close())
		require.Empty(t, r.owner)
	})
}

// The holder's own clock ends the hold before the database's clock lets another process have it.
func TestAHoldThatCannotBeRenewedEnds(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		err   error
		takes time.Duration
	}{
		"refused": {err: errors.New("away")},
		"silent":  {takes: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var r row
				a, b := r.process(t, "a"), r.process(t, "b")
				a.set(fault.err, fault.takes, nil)
				for begin := time.Now(); !b.hold.Holds(); sleep(100 * time.Millisecond) {
					require.Less(t, time.Since(begin), 11*time.Second, "a standby waits for ten seconds at the most")
				}
				require.False(t, a.hold.Holds())
				require.Equal(t, []bool{true}, b.gained, "a did not give the table up")
				sleep(time.Minute)
				a.set(nil, 0, nil)
				sleep(5 * time.Second)
				require.True(t, a.hold.Standby())
				require.NoError(t, b.hold.Close())
				sleep(2 * time.Second)
				require.True(t, a.hold.Holds())
				require.EqualValues(t, 2, a.hold.Term(), "b may have worked between")
				require.Contains(t, a.log.String(), "could not be renewed")
				require.Contains(t, a.log.String(), "is renewed again")
				require.NoError(t, a.hold.Close())
			})
		})
	}
}

// A short fault costs nothing.
func TestAHoldOutlivesAFaultThatIsShorter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r row
		a, b := r.process(t, "a"), r.process(t, "b")
		for range 10 {
			a.set(errors.New("away"), 0, nil)
			sleep(4 * time.Second)
			require.True(t, a.hold.Holds())
			a.set(nil, 0, nil)
			sleep(3 * time.Second)
			require.True(t, a.hold.Holds())
			require.False(t, b.hold.Holds())
		}
		require.EqualValues(t, 1, a.hold.Term())
		a.hold.NewTerm()
		require.EqualValues(t, 2, a.hold.Term())
		require.NoError(t, a.hold.Close())
		require.NoError(t, b.hold.Close())
	})
}

// A hold lasts from the beginning of the statement on, however late the answer comes: never
// longer than the database keeps it.
func TestAHoldEndsByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r row
		a := &table{row: &r, name: "a", slow: 1500 * time.Millisecond}
		a.hold = hold.New("a", a, slog.Default())
		require.NoError(t, a.hold.Try(t.Context()))
		require.True(t, a.hold.Holds())
		time.Sleep(time.Until(r.until))
		require.False(t, a.hold.Holds())
	})
}

func TestCloseSaysThatTheTableWasNotGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r row
		unstarted := hold.New("c", &table{row: &r, name: "c"}, slog.Default())
		require.NoError(t, unstarted.Close())

		a := r.process(t, "a")
		a.set(errors.New("away"), 0, nil)
		require.EqualError(t, a.hold.Close(), "away")
		require.False(t, a.hold.Holds())
		require.Equal(t, "a", r.owner)

		a = r.process(t, "a")
		deaf := make(chan struct{})
		a.set(nil, 0, deaf)
		sleep(3 * time.Second)
		begin := time.Now()
		require.ErrorIs(t, a.hold.Close(), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(begin), "a driver ignores the end of the context")
		require.False(t, a.hold.Holds())
		close(deaf)
	})
}
