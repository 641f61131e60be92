package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
	refused, back := tr.settle([]*delivery{first}, marks, nil)
	require.Empty(t, refused)
	require.Empty(t, back)
	require.True(t, tr.holds("e"))
	require.Equal(t, []Lease{{"e", "me/2"}}, tr.release(again))
	require.False(t, tr.holds("e"))
	room, _ := tr.takeoverRoom(1, true)
	require.Equal(t, 1, room)
}
