package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// made is a run of a minute in which reading costs pages while the transaction is held,
// and as many as after are left afterwards.
func made(after int64) Result {
	r := Result{Options: Options{Time: time.Minute, Held: 20 * time.Second}.withDefaults()}
	for at := range 60 {
		s := Sample{At: time.Duration(at) * time.Second, Pages: 100, Written: 500, Delivered: 499, Table: 5 << 20}
		switch {
		case at >= 10 && at < 30:
			s.Held, s.Pages = true, 50_000
		case at >= 30:
			s.Pages = after
		}
		r.Samples = append(r.Samples, s)
	}
	return r
}

func TestARunThatDoesNotRecover(t *testing.T) {
	t.Parallel()
	require.Empty(t, made(few).unrecovered())
	require.Len(t, made(40_000).unrecovered(), 1)
	require.Contains(t, made(100).String(), "| the same, pages | 100 | 50000 | 100 |")
}

func TestOptionsThatNoRunCanDo(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Options{Time: time.Minute, Held: time.Hour}, nil)
	require.ErrorContains(t, err, "cannot be held for 1h0m0s")
	_, err = Run(t.Context(), Options{Rate: -1}, nil)
	require.ErrorContains(t, err, "negative")
	_, err = Run(t.Context(), Options{Database: "sqlite"}, nil)
	require.ErrorContains(t, err, "postgres and mysql are possible")
	_, err = Run(t.Context(), Options{Database: "mysql", Events: 1}, nil)
	require.ErrorContains(t, err, "needs COPY and partitions of postgres")
	_, err = Run(t.Context(), Options{Events: 1, Time: time.Minute}, nil)
	require.ErrorContains(t, err, "takes no Time")
	_, err = Run(t.Context(), Options{Pending: 1}, nil)
	require.ErrorContains(t, err, "need Events")
}

func TestTheSummaryOfARunByEventsComparesThirds(t *testing.T) {
	t.Parallel()
	r := Result{Options: Options{Events: 1000}.withDefaults(), Took: 20 * time.Second, Written: 1000, Delivered: 1000}
	for at := range 20 {
		r.Samples = append(r.Samples, Sample{Delivered: float64(at), Span: 2 * time.Second, WAL: int64(2 * at * 700)})
	}
	text := r.String()
	require.Contains(t, text, "1000 events by 2 nodes in 20s, 50 a second")
	require.Contains(t, text, "| median of the samples | first third | second third | last third |")
	require.Contains(t, text, "| events delivered a second | 5 | 11 | 17 |")
	require.Contains(t, text, "| write-ahead log for an event, bytes | 700 | 700 | 700 |")
	require.NotContains(t, text, "hot path", "there are no such figures")
	require.Contains(t, text, "\nok\n")
}

func TestTheSamplesAreLines(t *testing.T) {
	t.Parallel()
	text, err := made(100).JSON()
	require.NoError(t, err)
	require.Equal(t, 61, strings.Count(string(text), "\n"))
}
