package soak

import (
	"context"
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
		{"repeated", nil, 2, []string{"1 deliveries came after a success of the same event"}},
		{"refused", errFirst, 0, []string{"1 events could not be written"}},
		{"delivered without a commit", errFirst, 1, []string{"1 events were delivered although their transaction failed", "1 events could not be written"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(0)
			for _, number := range []int{0, 1, 2} { // the events beside it are good
				first, n := l.take(1)
				require.Equal(t, number, first)
				require.Equal(t, 1, n)
				wrote, done := error(nil), 1
				if number == 1 {
					wrote, done = tc.wrote, tc.done
				}
				l.wrote(number, 1, wrote)
				for range done {
					l.done(number)
				}
			}
			require.Equal(t, tc.want, l.problems())
		})
	}
}

func TestALedgerFindsEachOfManyEvents(t *testing.T) {
	t.Parallel()
	const events = 1000
	l := newLedger(events)
	first, n := l.take(700)
	require.Equal(t, []int{0, 700}, []int{first, n})
	first, n = l.take(700)
	require.Equal(t, []int{700, 300}, []int{first, n}, "the limit")
	_, n = l.take(1)
	require.Zero(t, n)
	l.wrote(0, events, nil)
	for number := range events {
		if number%64 != 63 {
			l.done(number)
		}
		if number%100 == 0 {
			l.done(number)
		}
	}
	require.Equal(t, []string{"15 events were not delivered", "10 deliveries came after a success of the same event"}, l.problems())
	require.Equal(t, totals{written: events, delivered: events - 15, repeated: 10}, l.sum())
	require.Equal(t, 15, l.sum().pending())
}

func TestADeadLetterIsDeliveredAfterAReplay(t *testing.T) {
	t.Parallel()
	l := newLedger(0)
	l.take(1)
	l.wrote(0, 1, nil)
	require.True(t, l.gaveUp(0))
	require.Equal(t, totals{written: 1, dead: 1}, l.sum())
	require.Equal(t, []string{"1 events were not delivered"}, l.problems())
	require.False(t, l.gaveUp(0), "the delivery after the replay succeeds")
	l.done(0)
	require.False(t, l.gaveUp(0), "a repeat after the success succeeds")
	require.Equal(t, totals{written: 1, delivered: 1}, l.sum())
	require.Empty(t, l.problems())
}

func TestALedgerWithALimitTakesNoMoreMemory(t *testing.T) {
	t.Parallel()
	const events = 1 << 20
	l := newLedger(events)
	written, delivered := cap(l.written), cap(l.delivered)
	require.LessOrEqual(t, 8*(written+delivered), events/4+1024, "two bits for an event")
	l.take(events)
	l.wrote(0, events, nil)
	for number := range events {
		l.done(number)
	}
	require.Equal(t, []int{written, delivered}, []int{cap(l.written), cap(l.delivered)})
	require.Empty(t, l.problems())
}

func TestSettleReportsWhatIsMissing(t *testing.T) {
	t.Parallel()
	l := newLedger(0)
	l.take(1)
	l.wrote(0, 1, nil)
	require.ErrorContains(t, l.settle(t.Context(), time.Millisecond), "1 of 1 events are not delivered, and no event was delivered for 1ms")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errFirst)
	require.ErrorIs(t, l.settle(ctx, time.Hour), errFirst)
	l.done(0)
	require.NoError(t, l.settle(t.Context(), time.Millisecond))
}
