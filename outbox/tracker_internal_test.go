package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a read cannot return needs no memory, however long the read takes.
func TestOnlyEventsThatWereDueWhenAReadBeganAreRememberedDuringIt(t *testing.T) {
	t.Parallel()
	tr, began := newTracker(func() {}), time.Now()
	came := func(id string, due time.Time) *delivery {
		d := &delivery{env: &Envelope{EventID: id, AvailableAt: due}}
		require.True(t, tr.acquire(d))
		return d
	}
	before := came("before", began)
	tr.beginRead(began)
	for range 1000 {
		tr.release(came("since", began.Add(time.Microsecond)))
	}
	tr.release(before)
	require.Len(t, tr.left, 1)
	require.False(t, tr.acquire(before), "the read may have seen its row before the outcome")
	tr.endRead()
	require.Empty(t, tr.left)
	require.True(t, tr.acquire(before), "the next read did not")
}

// A takeover whose retry took effect is claimed again before its answer came: the
// new delivery takes its place among those in hand.
func TestATakeoverThatIsReplacedMakesRoom(t *testing.T) {
	t.Parallel()
	tr, at := newTracker(func() {}), time.Now()
	first := &delivery{env: &Envelope{EventID: "e", Attempts: 1}, lease: "me/1", takeover: true}
	require.True(t, tr.acquire(first))
	first.outcome, first.next = OutcomeDeferred, at
	marks := tr.storing([]*delivery{first})
	again := &delivery{env: &Envelope{EventID: "e", Attempts: 1, AvailableAt: at}, lease: "me/2"}
	require.True(t, tr.acquire(again))
	refused, back := tr.settle(OutcomeDone, []*delivery{first}, marks, nil)
	require.Empty(t, refused)
	require.Empty(t, back)
	require.True(t, tr.holds("e"))
	require.Equal(t, []Lease{{"e", "me/2"}}, tr.release(again))
	require.False(t, tr.holds("e"))
	room, _ := tr.takeoverRoom(1, true)
	require.Equal(t, 1, room)
}
