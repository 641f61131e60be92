package outbox

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Writers and the poller offer at the same time.
func TestALaneTakesNoMoreThanItsCapacityFromManyAtOnce(t *testing.T) {
	t.Parallel()
	for range 2_000 {
		l := newLane(Limit{Concurrency: 1}, 16, make(chan struct{}, 1))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range l.capacity {
					l.offer(&delivery{})
				}
			})
		}
		all.Wait()
		require.Len(t, l.queue, l.capacity)
	}
}
