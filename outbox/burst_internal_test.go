package outbox

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

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
		if a.Key == logKeyCount {
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
		all := bursts{log: slog.New(&handler), single: 1, byCause: map[string]*burst{}}
		for i := range causesApart {
			all.byCause[strconv.Itoa(i)] = &burst{log: all.log}
		}
		found := all.byCause["0"]
		found.mu.Lock()
		var wg sync.WaitGroup
		for range adders {
			wg.Go(func() { all.add("0") })
		}
		for range 100 { // until they wait for found
			runtime.Gosched()
		}
		found.mu.Unlock()
		all.add("new")
		wg.Wait()
		all.flush()
	}
	require.EqualValues(t, rounds*(adders+1), handler.sum.Load())
}
