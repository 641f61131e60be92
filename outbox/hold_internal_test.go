package outbox

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// holds asks for the hold and compares the answer.
func (l *rangeList) holds(t *testing.T, table *heldTable, owner string, died bool) {
	t.Helper()
	gotOwner, gotDied, err := table.Hold(t.Context(), time.Second)
	require.NoError(t, err)
	require.Equal(t, owner, gotOwner)
	require.Equal(t, died, gotDied)
}

func TestTheHoldIsTheRightToAllRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &rangeList{}
		a, b := &heldTable{store: l, owner: "a"}, &heldTable{store: l, owner: "b"}
		require.NoError(t, a.Release(t.Context()), "nothing is held")
		l.holds(t, a, "a", false)
		l.holds(t, b, "a", false)
		require.NoError(t, b.Release(t.Context()), "only the holder gives the hold up")
		l.holds(t, b, "a", false)
		require.Equal(t, "a", Ranges{Now: time.Now(), Ranges: l.list.Ranges}.Holder())

		time.Sleep(2 * time.Second)
		require.Empty(t, Ranges{Now: time.Now(), Ranges: l.list.Ranges}.Holder())
		l.holds(t, a, "a", false) // the hold expired, and no other process took the table
		time.Sleep(2 * time.Second)
		l.holds(t, b, "b", true)
		l.holds(t, b, "b", false) // reported once
		l.holds(t, a, "b", false)
		require.NoError(t, b.Release(t.Context()))
		require.Empty(t, l.list.Ranges)
		l.holds(t, a, "a", false) // b did not die
	})
}

// A hold was taken over without an answer. The next answer says that a process died.
func TestADeathIsReportedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &rangeList{}
		a, b := &heldTable{store: l, owner: "a"}, &heldTable{store: l, owner: "b"}
		l.holds(t, a, "a", false)
		time.Sleep(2 * time.Second)
		lost := errors.New("the answer was lost")
		l.lose = lost
		_, _, err := b.Hold(t.Context(), time.Second)
		require.ErrorIs(t, err, lost)
		l.holds(t, b, "b", true)
		l.holds(t, b, "b", false)
	})
}

// A range that ends in years was not set by a process, and keeps no process away.
func TestARightThatEndsInYearsHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &rangeList{}
		l.list.Ranges = []Range{{Name: "spoilt", Until: time.Now().AddDate(10, 0, 0)}}
		l.holds(t, &heldTable{store: l, owner: "a"}, "a", true)
	})
}

// A process of SingleNode and the nodes of MultiNode do not deliver from the table at once.
func TestTheHoldAndRangesKeepEachOtherAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &rangeList{}
		table, r := &heldTable{store: l, owner: "a"}, l.process("b")
		taken := r.takes(t, Cursor{}, at(10))
		l.holds(t, table, taken.Name, false)
		r.track.readEnded(taken)
		_, err := r.tidy(t.Context())
		require.NoError(t, err)
		l.holds(t, table, "a", false)
		r = l.process("c")
		for _, place := range []Cursor{{}, at(5)} {
			g, err := r.gap(t.Context(), place)
			require.NoError(t, err)
			require.True(t, g.held)
		}
		require.False(t, r.hasExpired())

		time.Sleep(2 * time.Second)
		require.True(t, r.hasExpired())
		expired, err := r.takeExpired(t.Context())
		require.NoError(t, err)
		require.Nil(t, expired, "no row of another mode is a suspect")
		require.False(t, r.hasExpired())
		require.NotNil(t, r.takes(t, at(5), at(10)))
	})
}
