package shares_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/shares"
)

// database has the row. Its clock is another than that of the processes.
type database struct {
	mu     sync.Mutex
	row    shares.Row
	away   bool
	faults *rand.Rand // not nil: statements are slow, late, and lose their answers
	calls  atomic.Int64
}

var errAway = errors.New("the database is away")

const clockAhead = 42 * time.Minute

// statement takes its time, and reports whether the answer is lost.
func (d *database) statement(ctx context.Context) (lost bool, err error) {
	d.calls.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away {
		return false, errAway
	}
	if d.faults == nil {
		return false, ctx.Err()
	}
	takes := time.Duration(d.faults.IntN(20)) * time.Millisecond
	if d.faults.IntN(20) == 0 {
		takes = time.Duration(d.faults.IntN(15_000)) * time.Millisecond
	}
	lost = d.faults.IntN(20) == 0
	d.mu.Unlock()
	time.Sleep(takes) // whatever becomes of the caller
	d.mu.Lock()
	return lost, nil
}

// late runs a statement that may be carried out after its caller gave up.
func late[T any](ctx context.Context, d *database, run func() T) (got T, err error) {
	type answer struct {
		got T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		lost, err := d.statement(ctx)
		if err != nil {
			answers <- answer{err: err}
			return
		}
		d.mu.Lock()
		got := run()
		d.mu.Unlock()
		if lost {
			err = errAway
		}
		answers <- answer{got, err}
	}()
	select {
	case a := <-answers:
		return a.got, a.err
	case <-ctx.Done():
		return got, ctx.Err()
	}
}

func (d *database) Read(ctx context.Context) (shares.Row, error) {
	return late(ctx, d, func() shares.Row {
		row := d.row
		row.Now = time.Now().Add(clockAhead).Truncate(time.Microsecond)
		return row
	})
}

func (d *database) Replace(ctx context.Context, was string, next shares.Row) (bool, error) {
	return late(ctx, d, func() bool {
		if d.row.Version != was {
			return false
		}
		d.row = next
		return true
	})
}

func (d *database) set(away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = away
}

// process is a process of the fleet: its workers work while there is work.
type process struct {
	*shares.Share
	busy   atomic.Bool
	begun  atomic.Int64
	stop   chan struct{}
	ends   sync.WaitGroup
	parts  atomic.Int64
	frozen atomic.Bool // its workers begin nothing: a process that was killed
}

// fleet counts what the processes do together.
type fleet struct {
	t       *testing.T
	db      *database
	limits  shares.Limits
	takes   atomic.Int64 // a piece of work, in nanoseconds
	running atomic.Int64
	most    int64
	mu      sync.Mutex
	at      []time.Time // when work began
	last    int
}

// join adds a process with so many workers, which has work.
func (f *fleet) join(workers int) *process {
	f.last++
	p := &process{stop: make(chan struct{})}
	p.busy.Store(true)
	p.Share = shares.New(shares.Options{
		Limits: f.limits, Table: f.db, Name: fmt.Sprint("process ", f.last), Log: slog.New(slog.DiscardHandler),
		Wants:   func() bool { return p.busy.Load() && !p.frozen.Load() },
		Resized: func(parts int) { p.parts.Store(int64(parts)) },
	})
	p.Start()
	for range workers {
		p.ends.Go(func() { f.work(p) })
	}
	return p
}

func (f *fleet) work(p *process) {
	for {
		changed := p.Changed()
		var retry time.Duration
		ok := false
		if !p.frozen.Load() && p.busy.Load() {
			retry, ok = p.Begin()
		} else {
			retry = 10 * time.Millisecond
		}
		if !ok {
			timer := time.NewTimer(retry)
			select {
			case <-p.stop:
				return
			case <-changed:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		p.begun.Add(1)
		f.begin()
		time.Sleep(time.Duration(f.takes.Load()))
		f.running.Add(-1)
		p.End()
		select {
		case <-p.stop:
			return
		default:
		}
	}
}

func (f *fleet) begin() {
	now := f.running.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most = max(f.most, now)
	f.at = append(f.at, time.Now())
}

// leave ends a process that gives its share up.
func (f *fleet) leave(p *process) error {
	close(p.stop)
	p.ends.Wait()
	return p.Close(time.Minute)
}

// kill ends a process without a word: what it did ends with it.
func (f *fleet) kill(p *process) {
	p.frozen.Store(true)
	close(p.stop)
	p.ends.Wait()
	p.Abandon()
}

// exceeds returns by how many the fleet began more in a window than the rate and the burst allow.
func (f *fleet) exceeds() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	worst, least := -1e9, 1e9 // of what began by now, beyond the rate: the most after the least
	for i, at := range f.at {
		beyond := at.Sub(f.at[0]).Seconds() * f.limits.Rate
		least = min(least, float64(i)-beyond)
		worst = max(worst, float64(i+1)-beyond-least)
	}
	return worst - float64(f.limits.Burst)
}

func newFleet(t *testing.T, limits shares.Limits, takes time.Duration) *fleet {
	f := &fleet{t: t, db: &database{}, limits: limits}
	f.takes.Store(int64(takes))
	return f
}

func TestAProcessAloneHasTheLimitsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, shares.Limits{Concurrency: 4, Rate: 100, Burst: 10}, 20*time.Millisecond)
		p := f.join(8)
		time.Sleep(10 * time.Second)
		require.InDelta(t, 1000, p.begun.Load(), 12)
		require.NoError(t, f.leave(p))
		require.EqualValues(t, 4, f.most)
		require.LessOrEqual(t, f.exceeds(), 1e-3)
		require.NotContains(t, f.db.row.Value, "process")
	})
}

func TestProcessesThatHaveWorkDivideTheLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, shares.Limits{Concurrency: 7, Rate: 1000, Burst: 100}, time.Millisecond)
		a, b := f.join(8), f.join(8)
		time.Sleep(5 * time.Second)
		require.ElementsMatch(t, []int64{4, 3}, []int64{a.parts.Load(), b.parts.Load()})
		c := f.join(8)
		time.Sleep(5 * time.Second)
		require.ElementsMatch(t, []int64{3, 2, 2}, []int64{a.parts.Load(), b.parts.Load(), c.parts.Load()})
		b.busy.Store(false)
		time.Sleep(5 * time.Second)
		require.ElementsMatch(t, []int64{4, 0, 3}, []int64{a.parts.Load(), b.parts.Load(), c.parts.Load()})
		b.busy.Store(true)
		b.Ask()
		time.Sleep(5 * time.Second)
		require.Positive(t, b.parts.Load())
		for _, p := range []*process{a, b, c} {
			require.NoError(t, f.leave(p))
		}
		require.LessOrEqual(t, f.most, int64(7))
		require.LessOrEqual(t, f.exceeds(), 1e-3)
		require.Greater(t, len(f.at), 19_000, "20 seconds at 1000 a second")
	})
}

// With fewer parts than processes, each has a turn.
func TestEachProcessHasATurn(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]shares.Limits{
		"concurrency": {Concurrency: 1}, "rate": {Rate: 50, Burst: 1}, "slow": {Rate: 0.5, Burst: 1}, "two of five": {Concurrency: 2, Rate: 20, Burst: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, limits, time.Millisecond)
				var all []*process
				for range 5 {
					all = append(all, f.join(2))
				}
				time.Sleep(10 * time.Minute)
				for _, p := range all {
					require.Positive(t, p.begun.Load())
					require.NoError(t, f.leave(p))
				}
				require.LessOrEqual(t, f.most, int64(max(limits.Concurrency, limits.Burst)))
				if limits.Rate > 0 {
					require.LessOrEqual(t, f.exceeds(), 1e-3)
					require.Greater(t, float64(len(f.at)), 0.85*600*limits.Rate, "turns cost little")
				}
			})
		})
	}
}

// A process that always works gives parts up too: bounds of a key do not bound how much it runs.
func TestAProcessWithBoundsOfKeysGivesPartsUp(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]shares.Limits{
		"key": {KeyConcurrency: 2}, "key and concurrency": {KeyConcurrency: 2, Concurrency: 9}, "key and rate": {KeyConcurrency: 2, Rate: 500, Burst: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, limits, 50*time.Millisecond)
				first := f.join(7)
				time.Sleep(10 * time.Second)
				second := f.join(7)
				time.Sleep(10 * time.Second)
				require.Equal(t, []int{1, 1}, []int{first.Parts(), second.Parts()})
				begun := []int64{first.begun.Load(), second.begun.Load()}
				time.Sleep(10 * time.Second)
				require.Greater(t, first.begun.Load()-begun[0], int64(100), "work goes on with fewer parts")
				require.Greater(t, second.begun.Load()-begun[1], int64(100))
				require.NoError(t, f.leave(first))
				require.NoError(t, f.leave(second))
			})
		})
	}
}

// A process that gave up its share while it had no work finds the tokens that came meanwhile.
func TestAShareThatWasFreeHasItsTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, shares.Limits{Rate: 0.1, Burst: 2}, 0)
		a := f.join(1)
		time.Sleep(15 * time.Second)
		require.EqualValues(t, 3, a.begun.Load())
		a.busy.Store(false)
		time.Sleep(time.Hour)
		b := f.join(1)
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 2, b.begun.Load())
		require.NoError(t, f.leave(a))
		require.NoError(t, f.leave(b))
		require.LessOrEqual(t, f.exceeds(), 1e-3)
	})
}

func TestTheShareOfAProcessThatDiedEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, shares.Limits{Concurrency: 1}, time.Millisecond)
		a := f.join(1)
		time.Sleep(time.Second)
		f.kill(a)
		b := f.join(1)
		time.Sleep(shares.Lasts - 1500*time.Millisecond)
		require.Zero(t, b.begun.Load())
		time.Sleep(3 * time.Second)
		require.Positive(t, b.begun.Load())
		require.NoError(t, f.leave(b))
	})
}

func TestAProcessThatCannotRenewItsShareStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, shares.Limits{Concurrency: 1}, time.Millisecond)
		a := f.join(1)
		time.Sleep(5 * time.Second)
		f.db.set(true)
		time.Sleep(shares.Lasts - time.Second)
		begun := a.begun.Load()
		time.Sleep(time.Hour)
		require.Equal(t, begun, a.begun.Load())
		f.db.set(false)
		time.Sleep(5 * time.Second)
		require.Greater(t, a.begun.Load(), begun)
		require.NoError(t, f.leave(a))
	})
}

func TestAProcessWithoutWorkAsksNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, shares.Limits{Concurrency: 1}, time.Millisecond)
		a := f.join(1)
		time.Sleep(3 * time.Second)
		a.busy.Store(false)
		time.Sleep(5 * time.Second)
		calls := f.db.calls.Load()
		time.Sleep(time.Hour)
		require.Equal(t, calls, f.db.calls.Load())
		require.NoError(t, f.leave(a))
		require.Equal(t, calls, f.db.calls.Load())
	})
}

// Work that runs keeps its place until it ends.
func TestAPlaceIsGivenUpWhenItsWorkEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, shares.Limits{Concurrency: 3}, time.Minute)
		a := f.join(3)
		time.Sleep(time.Second)
		f.takes.Store(int64(time.Millisecond)) // of b
		b := f.join(3)
		time.Sleep(50 * time.Second)
		require.Zero(t, b.begun.Load())
		time.Sleep(20 * time.Second)
		require.Positive(t, b.begun.Load())
		require.NoError(t, f.leave(a))
		require.NoError(t, f.leave(b))
		require.EqualValues(t, 3, f.most)
	})
}

// Processes come and go, die, and lose answers, and statements are carried out late.
func TestTheLimitsHoldUnderFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				chance := rand.New(rand.NewPCG(seed, 1))
				limits := shares.Limits{Concurrency: 1 + chance.IntN(6), Rate: float64(chance.IntN(4) * 10), Burst: 1 + chance.IntN(8)}
				f := newFleet(t, limits, time.Duration(1+chance.IntN(200))*time.Millisecond)
				f.db.faults = rand.New(rand.NewPCG(seed, 2))
				var all []*process
				for range 80 {
					switch n := chance.IntN(10); {
					case n < 3 || len(all) == 0:
						if len(all) < 5 {
							all = append(all, f.join(3))
						}
					case n == 3:
						f.kill(all[0])
						all = all[1:]
					case n == 4:
						_ = f.leave(all[0])
						all = all[1:]
					case n < 7:
						p := all[chance.IntN(len(all))]
						p.busy.Store(!p.busy.Load())
						p.Ask()
					case n == 7:
						f.db.set(true)
						time.Sleep(time.Duration(chance.IntN(15_000)) * time.Millisecond)
						f.db.set(false)
					}
					time.Sleep(time.Duration(chance.IntN(3000)) * time.Millisecond)
				}
				for _, p := range all {
					p.busy.Store(true)
					p.Ask()
				}
				f.db.mu.Lock()
				f.db.faults = nil
				f.db.mu.Unlock()
				time.Sleep(2 * time.Minute)
				for _, p := range all {
					begun := p.begun.Load()
					require.Positive(t, begun)
					require.NoError(t, f.leave(p))
				}
				require.LessOrEqual(t, f.most, int64(limits.Concurrency))
				if limits.Rate > 0 {
					require.LessOrEqual(t, f.exceeds(), 1e-3)
				}
				time.Sleep(time.Minute) // late statements
			})
		})
	}
}
