package agenda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/agenda"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

const ms = time.Millisecond

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func tokens(c <-chan struct{}) (n int) {
	for {
		select {
		case <-c:
			n++
		default:
			return n
		}
	}
}

func TestTheEarliestTimeIsKept(t *testing.T) {
	t.Parallel()
	a := agenda.New()
	require.Equal(t, wait.Never, a.Next(start))
	a.DueAt(start.Add(time.Hour))
	require.Equal(t, 1, tokens(a.Changed))
	a.DueAt(start.Add(2 * time.Hour))
	require.Zero(t, tokens(a.Changed), "a later time changes nothing")
	require.True(t, a.Note(start.Add(time.Minute)))
	require.Zero(t, tokens(a.Changed), "a note sets no timer")
	require.False(t, a.Note(start.Add(time.Minute)))
	require.Equal(t, time.Minute, a.Next(start))
	require.Zero(t, a.Next(start.Add(time.Hour)), "a time that has passed is now")

	a.Begin(start.Add(time.Minute - 1))
	require.Equal(t, time.Minute, a.Next(start), "it is not due yet")
	a.Begin(start.Add(time.Minute))
	require.Equal(t, wait.Never, a.Next(start))

	a.Wake()
	a.Wake()
	require.Equal(t, 1, tokens(a.Woken))
}

// Calls of LookAgain share their looks, and the last call has all of its own.
func TestLooksAreShared(t *testing.T) {
	t.Parallel()
	a := agenda.New()
	begin := start
	var looks []time.Duration
	run := func(until time.Time) {
		for {
			at := start.Add(a.Next(start))
			if a.Next(start) == wait.Never || at.After(until) {
				return
			}
			looks = append(looks, at.Sub(begin))
			a.Begin(at)
		}
	}
	a.LookAgain(start)
	require.Equal(t, 1, tokens(a.Changed))
	run(start.Add(time.Hour))
	require.Equal(t, []time.Duration{10 * ms, 100 * ms, time.Second}, looks)

	// A thousand calls, one in a millisecond.
	a, looks = agenda.New(), nil
	for i := range 1000 {
		now := start.Add(time.Duration(i) * ms)
		run(now)
		a.LookAgain(now)
	}
	last := start.Add(999 * ms)
	run(last.Add(time.Hour))
	require.Less(t, len(looks), 130)
	for _, delay := range []time.Duration{10 * ms, 100 * ms, time.Second} {
		require.Contains(t, looks, last.Add(delay).Sub(begin))
	}
}
