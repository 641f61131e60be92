package outbox

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Totals are the numbers of events that a process has counted since it started.
type Totals struct {
	// Written is how many events the process wrote in transactions that were committed, and in
	// transactions whose end the outbox does not see.
	Written int64
	// Delivered is how many events the process delivered; see [Metrics].Delivered.
	Delivered int64
	// Failed is how many deliveries failed: RETRY or DEAD was stored.
	Failed int64
	// Latencies counts the delivered events by the time from OccurredAt to the delivery. Latencies[i] is
	// the number of events that took at most [LatencyBound](i), and longer than the bound before it. Zeros
	// at the end are left out.
	Latencies []int64
}

// latencyCounts is the number of counts of Totals.Latencies: the last bound is 26 hours.
const latencyCounts = 54

var latencyBounds = func() (bounds [latencyCounts]time.Duration) {
	for i := range bounds {
		bounds[i] = time.Duration(float64(time.Millisecond) * math.Pow(2, float64(i)/2))
	}
	bounds[latencyCounts-1] = math.MaxInt64
	return bounds
}()

// LatencyBound is the longest time that [Totals].Latencies[i] counts: 1 ms for 0, and from there on √2
// times the bound before. The last count, with index 53, has no bound.
func LatencyBound(i int) time.Duration {
	return latencyBounds[min(max(i, 0), latencyCounts-1)]
}

// counts are the metrics of an outbox, and count for the report of the node what passes.
type counts struct {
	Metrics                    // of the user
	written, delivered, failed atomic.Int64
	latencies                  [latencyCounts]atomic.Int64
}

// Delivered implements [Metrics].
func (c *counts) Delivered(kind EventKind, latency time.Duration) {
	c.delivered.Add(1)
	i, _ := slices.BinarySearch(latencyBounds[:], latency)
	c.latencies[i].Add(1)
	c.Metrics.Delivered(kind, latency)
}

// Failed implements [Metrics].
func (c *counts) Failed(kind EventKind) {
	c.failed.Add(1)
	c.Metrics.Failed(kind)
}

// Died implements [Metrics].
func (c *counts) Died(kind EventKind) {
	c.failed.Add(1)
	c.Metrics.Died(kind)
}

// totals are the numbers until now.
func (c *counts) totals() *Totals {
	t := &Totals{Written: c.written.Load(), Delivered: c.delivered.Load(), Failed: c.failed.Load()}
	for i := range c.latencies {
		if n := c.latencies[i].Load(); n > 0 {
			t.Latencies = append(t.Latencies, make([]int64, i+1-len(t.Latencies))...)
			t.Latencies[i] = n
		}
	}
	return t
}
