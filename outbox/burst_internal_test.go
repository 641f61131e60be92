package outbox

import (
	"context"
	"log/slog"
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
	const rounds, adders, each = 200, 4, 3
	var handler counter
	for range rounds {
		all := bursts{log: slog.New(&handler), single: 1, byCause: map[string]*burst{}}
		for i := range causesApart {
			cause := strconv.Itoa(i)
			all.byCause[cause] = &burst{log: all.log}
		}
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range adders {
			wg.Go(func() {
				<-begin
				for range each {
					all.add("0")
				}
			})
		}
		wg.Go(func() {
			<-begin
			all.add("new")
		})
		close(begin)
		wg.Wait()
		all.flush()
	}
	require.EqualValues(t, rounds*(adders*each+1), handler.sum.Load())
}
