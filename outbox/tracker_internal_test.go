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
		require.True(t, isNew(tr.acquire(d)))
		return d
	}
	before := came("before", began)
	tr.beginRead(began)
	for range 1000 {
		tr.release(came("since", began.Add(time.Microsecond)))
	}
	tr.release(before)
	require.Len(t, tr.left, 1)
	require.False(t, isNew(tr.acquire(before)), "the read may have seen its row before the outcome")
	tr.endRead()
	require.Empty(t, tr.left)
	require.True(t, isNew(tr.acquire(before)), "the next read did not")
}

// A takeover whose retry took effect is claimed again before its answer came: the
// new delivery takes its place among those in hand.
func TestATakeoverThatIsReplacedMakesRoom(t *testing.T) {
	t.Parallel()
	tr, at := newTracker(func() {}), time.Now()
	first := &delivery{env: &Envelope{EventID: "e", Attempts: 1}, lease: "me/1", takeover: true}
	require.True(t, isNew(tr.acquire(first)))
	first.outcome, first.next = OutcomeDeferred, at
	marks := tr.storing([]*delivery{first})
	again := &delivery{env: &Envelope{EventID: "e", Attempts: 1, AvailableAt: at}, lease: "me/2"}
	require.True(t, isNew(tr.acquire(again)))
	refused, back := tr.settle(OutcomeDone, []*delivery{first}, marks, nil)
	require.Empty(t, refused)
	require.Empty(t, back)
	require.True(t, tr.holds("e"))
	require.Equal(t, []Lease{{"e", "me/2"}}, tr.release(again))
	require.False(t, tr.holds("e"))
	room, _ := tr.takeoverRoom(1, true)
	require.Equal(t, 1, room)
}

// The delivery in hand begins with the attempts that the last claim of the row counted.
func TestAClaimOfAnEventInHandTellsItsAttempts(t *testing.T) {
	t.Parallel()
	tr := newTracker(func() {})
	held := &delivery{env: &Envelope{EventID: "e", Attempts: 1}, right: &right{until: time.Now().Add(-time.Hour)}}
	require.True(t, isNew(tr.acquire(held)))
	require.False(t, tr.leased(held))
	require.False(t, isNew(tr.acquire(&delivery{env: &Envelope{EventID: "e", Attempts: 2}, lease: "me/1", counted: true})))
	require.True(t, tr.leased(held), "the delivery goes on under the lease of the claim")
	require.Equal(t, 2, held.env.Attempts)
	require.True(t, held.counted)
}

// A claim of a suspect moves the row, also if the retry in hand took effect before.
func TestAMovedRowWhoseRetryTookEffectIsANewDelivery(t *testing.T) {
	t.Parallel()
	for moved, copied := range map[time.Duration]bool{0: false, time.Microsecond: false, time.Second: true} {
		tr, at := newTracker(func() {}), time.Now()
		held := &delivery{env: &Envelope{EventID: "e"}, outcome: OutcomeRetry, next: at}
		require.True(t, isNew(tr.acquire(held)))
		tr.storing([]*delivery{held})
		acquired, _ := tr.acquire(&delivery{env: &Envelope{EventID: "e", AvailableAt: at.Add(moved)}, lease: "me/1"})
		require.Equal(t, !copied, acquired, moved)
	}
}

// isNew is the first answer of acquire.
func isNew(acquired, _ bool) bool { return acquired }

func TestACopySaysWhetherTheEventComesAgain(t *testing.T) {
	t.Parallel()
	tr, began := newTracker(func() {}), time.Now()
	of := func(term int64) *delivery {
		return &delivery{env: &Envelope{EventID: "e", AvailableAt: began}, term: term}
	}
	comes := func(term int64) bool {
		acquired, comes := tr.acquire(of(term))
		require.False(t, acquired)
		return comes
	}
	held := of(1)
	require.True(t, isNew(tr.acquire(held)))
	require.False(t, comes(1), "it is queued in front")
	require.True(t, comes(2), "a worker will give it back")
	tr.beginRead(began)
	tr.release(held)
	require.True(t, comes(2), "a worker gave it back while the rows were read")
	tr.endRead()

	held = of(2)
	require.True(t, isNew(tr.acquire(held)))
	tr.beginRead(began)
	marks := tr.storing([]*delivery{held})
	require.False(t, comes(3), "the outcome is being stored")
	tr.settle(OutcomeDone, []*delivery{held}, marks, nil)
	require.False(t, comes(3))
	tr.endRead()

	held = of(3)
	require.True(t, isNew(tr.acquire(held)))
	tr.beginRead(began)
	held.completed = true
	tr.release(held)
	require.False(t, comes(4), "the listener stored the outcome")
}
