package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALedgerTellsWhatWentWrong(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		wrote error
		done  int
		want  []string
	}{
		{"delivered", nil, 1, nil},
		{"lost", nil, 0, []string{"1 events were not delivered"}},
		{"repeated", nil, 2, []string{"1 events were delivered again after a success"}},
		{"refused", errFirst, 0, []string{"1 events could not be written"}},
		{"delivered without a commit", errFirst, 1, []string{"1 events were delivered although their transaction failed", "1 events could not be written"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var l ledger
			n := l.next()
			l.wrote(n, tc.wrote)
			for range tc.done {
				l.done(n)
			}
			require.Equal(t, tc.want, l.problems())
		})
	}
}

func TestSettleReportsWhatIsMissing(t *testing.T) {
	t.Parallel()
	var l ledger
	l.wrote(l.next(), nil)
	require.ErrorContains(t, l.settle(t.Context(), time.Millisecond), "1 of 1 events are not delivered")
	l.done(0)
	require.NoError(t, l.settle(t.Context(), time.Millisecond))
}

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
}

func TestTheSamplesAreLines(t *testing.T) {
	t.Parallel()
	text, err := made(100).JSON()
	require.NoError(t, err)
	require.Equal(t, 61, strings.Count(string(text), "\n"))
}
