package logburst

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// counter is a log handler that adds up the counts of all lines.
type counter struct {
	slog.Handler
	sum atomic.Int64
}

func (c *counter) Enabled(context.Context, slog.Level) bool { return true }

func (c *counter) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == keyCount {
			c.sum.Add(a.Value.Int64())
		}
		return true
	})
	return nil
}

// A cause that is idle makes room for a new one. Occurrences of the idle one at the same
// moment are in its lines, and in the last one when the outbox closes.
func TestOccurrencesOfACauseThatMakesRoomAreLogged(t *testing.T) {
	t.Parallel()
	const rounds, adders = 200, 4
	var handler counter
	for range rounds {
		all := ByCause{Log: slog.New(&handler), Single: 1, byCause: map[string]*Burst{}}
		for i := range apart {
			all.byCause[strconv.Itoa(i)] = &Burst{Log: all.Log}
		}
		found := all.byCause["0"]
		found.mu.Lock()
		var wg sync.WaitGroup
		for range adders {
			wg.Go(func() { all.Add("0") })
		}
		for range 100 { // until they wait for found
			runtime.Gosched()
		}
		found.mu.Unlock()
		all.Add("new")
		wg.Wait()
		all.Flush()
	}
	require.EqualValues(t, rounds*(adders+1), handler.sum.Load())
}

// lines is a log handler that keeps what it gets as text.
type lines struct {
	slog.Handler
	mu  sync.Mutex
	got []string
}

// take returns the lines since it was last called.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.got
	l.got = nil
	return got
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, line)
	return nil
}

func TestABurstIsAFewLinesWhoseCountsAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log lines
		b := Burst{Log: slog.New(&log), Level: slog.LevelWarn, Message: "lost", Ended: "found"}
		b.End() // nothing failed
		for i := range 1000 {
			b.Add(2, "id", i)
		}
		time.Sleep(3 * pause / 2)
		b.Add(1, "id", "later")
		time.Sleep(pause)
		b.End()
		b.End()
		b.Add(5, "id", "last")
		b.Flush()
		b.Flush()
		require.Equal(t, []string{
			"WARN lost count=2 id=0",
			"WARN lost count=1998 id=999",
			"WARN lost count=1 id=later",
			"INFO found lasted=2m30s",
			"WARN lost count=5 id=last",
		}, log.take())
	})
}

func TestEachCauseHasLinesOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log lines
		b := ByCause{Log: slog.New(&log), Level: slog.LevelError, Message: "dead", Single: 2}
		for i := range 5 {
			b.Add("a", "id", i)
			b.Add("b", "id", 10+i)
		}
		require.Equal(t, []string{
			"ERROR dead count=1 id=0", "ERROR dead count=1 id=10",
			"ERROR dead count=1 id=1", "ERROR dead count=1 id=11",
		}, log.take())
		log.got = nil
		b.Flush()
		require.ElementsMatch(t, []string{"ERROR dead count=3 id=4", "ERROR dead count=3 id=14"}, log.take())

		log.got = nil
		for i := range 10 * apart {
			b.Add(fmt.Sprint("cause ", i))
		}
		require.LessOrEqual(t, len(b.byCause), apart+1, "memory is bounded")
		b.Flush()
	})
}
