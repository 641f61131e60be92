package outbox

import (
	"cmp"
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
	// Kinds are the deliveries of kinds, for at most 50 kinds with the most deliveries whose names have
	// room in 4 KiB. Kinds whose listeners are not in a [Registry] are left out.
	Kinds []KindTotals
}

// KindTotals are the deliveries of a kind that a process has counted since it started.
type KindTotals struct {
	Kind              EventKind
	Delivered, Failed int64 // as in [Totals]
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
	kinds                      atomic.Pointer[kindCounts] // nil until the start
}

// kindCounts are the counts of the kinds in a registry, by their places. A delivery knows the place of
// the kind from the look-up of the listener, so counting needs no other.
type kindCounts struct {
	kinds             []EventKind
	delivered, failed []atomic.Int64
}

func newKindCounts(kinds []EventKind) *kindCounts {
	return &kindCounts{kinds: kinds, delivered: make([]atomic.Int64, len(kinds)), failed: make([]atomic.Int64, len(kinds))}
}

// ofKinds are the counts of kinds, or nil.
func (c *counts) ofKinds() *kindCounts {
	if c == nil {
		return nil
	}
	return c.kinds.Load()
}

// count counts a delivery for the kind at a place, which is 1 for the first kind.
func (c *kindCounts) count(place int32, failed bool) {
	switch i := int(place) - 1; {
	case c == nil || i < 0 || i >= len(c.kinds):
	case failed:
		c.failed[i].Add(1)
	default:
		c.delivered[i].Add(1)
	}
}

// Bounds of the kinds in a report.
const (
	maxKindTotals     = 50
	maxKindTotalNames = 4 << 10 // bytes
)

// totals are the kinds with the most deliveries.
func (c *kindCounts) totals() (list []KindTotals) {
	if c == nil {
		return nil
	}
	for i, kind := range c.kinds {
		if t := (KindTotals{kind, c.delivered[i].Load(), c.failed[i].Load()}); t.Delivered+t.Failed > 0 {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b KindTotals) int {
		return cmp.Or(cmp.Compare(b.Delivered+b.Failed, a.Delivered+a.Failed), cmp.Compare(a.Kind.String(), b.Kind.String()))
	})
	size := 0
	for i := range list {
		if size += sizeOf([]EventKind{list[i].Kind}); i == maxKindTotals || size > maxKindTotalNames {
			return list[:i]
		}
	}
	return list
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
	t := &Totals{Written: c.written.Load(), Delivered: c.delivered.Load(), Failed: c.failed.Load(), Kinds: c.kinds.Load().totals()}
	for i := range c.latencies {
		if n := c.latencies[i].Load(); n > 0 {
			t.Latencies = append(t.Latencies, make([]int64, i+1-len(t.Latencies))...)
			t.Latencies[i] = n
		}
	}
	return t
}

// sizeOf is the number of bytes of the names of kinds.
func sizeOf(kinds []EventKind) (n int) {
	for _, kind := range kinds {
		n += len(kind.AggregateType) + len(kind.EventType)
	}
	return n
}
