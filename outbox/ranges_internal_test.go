package outbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/leases"
)

// rangeList is the row of a control table that lists ranges.
type rangeList struct {
	Store
	mu   sync.Mutex
	list Ranges
	lose error // of the next set, which is carried out
	skip bool  // sets, as a trigger does
	sets int
}

func (l *rangeList) Ranges(context.Context, DB) (Ranges, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Ranges{Version: l.list.Version, Now: time.Now(), Ranges: slices.Clone(l.list.Ranges)}, nil
}

func (l *rangeList) SetRanges(_ context.Context, _ DB, was string, by time.Time, next Ranges) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sets++
	if l.list.Version != was || time.Now().After(by) || l.skip {
		return false, nil
	}
	l.list = Ranges{Version: next.Version, Ranges: slices.Clone(next.Ranges)}
	err := l.lose
	l.lose = nil
	return err == nil, err
}

// process is a process that shares the list.
func (l *rangeList) process(owner string) *rights {
	return newRights(&tableLeases{
		store: l, names: leases.NewNames(owner), lasts: time.Minute, track: newTracker(func() {}), freed: func() {},
	}, slog.New(slog.DiscardHandler))
}

// at is a place in the table.
func at(second int) Cursor {
	t := time.Unix(int64(second), 0).UTC()
	return Cursor{AvailableAt: t, CreatedAt: t, EventID: "e"}
}

// takes takes the first gap behind a place, up to another place.
func (r *rights) takes(t *testing.T, place, upto Cursor) *right {
	t.Helper()
	g, err := r.gap(t.Context(), place)
	require.NoError(t, err)
	require.Nil(t, g.own)
	taken, err := r.take(t.Context(), g, upto)
	require.NoError(t, err)
	return taken
}

func (l *rangeList) names() (names []string) {
	for _, r := range l.list.Ranges {
		names = append(names, r.Name)
	}
	return names
}

func TestAGapIsBetweenTheRanges(t *testing.T) {
	t.Parallel()
	tie := at(20)
	tie.EventID = "another case, which the database may order differently"
	for name, tc := range map[string]struct{ place, after, upto Cursor }{
		"from the start":                {Cursor{}, Cursor{}, at(10)},
		"up to the next range":          {at(5), at(5), at(10)},
		"behind the range at the place": {at(10), at(30), at(40)},
		"within a range":                {at(15), at(30), at(40)},
		"at the end of a range":         {at(20), at(30), at(40)},
		"at the end of the next range":  {at(30), at(30), at(40)},
		"perhaps within a range":        {tie, at(30), at(40)},
		"between ranges":                {at(35), at(35), at(40)},
		"behind all":                    {at(60), at(60), Cursor{}},
		"behind the last":               {at(50), at(50), Cursor{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l rangeList
			until := time.Now().Add(time.Hour)
			l.list = Ranges{Version: "v", Ranges: []Range{{"a", at(10), at(20), until}, {"b", at(20), at(30), until}, {"c", at(40), at(50), until}}}
			g, err := l.process("p").gap(t.Context(), tc.place)
			require.NoError(t, err)
			require.Equal(t, tc.after, g.after)
			require.Equal(t, tc.upto, g.upto)
		})
	}
}

// Events of a transaction are due at the same time, so the list alone says which of their ranges is
// the first.
func TestAWalkOverTheGapsOfEventsWithOneTimeEnds(t *testing.T) {
	t.Parallel()
	var l rangeList
	until := time.Now().Add(time.Hour)
	tie := func(id string) Cursor {
		c := at(10)
		c.EventID = id
		return c
	}
	l.list = Ranges{Version: "v", Ranges: []Range{{"a", tie("f"), tie("e"), until}, {"b", tie("d"), tie("c"), until}, {"c", tie("b"), tie("a"), until}}}
	p := l.process("p")
	var gaps []string
	for place := (Cursor{}); len(gaps) < 10; {
		g, err := p.gap(t.Context(), place)
		require.NoError(t, err)
		gaps = append(gaps, g.after.EventID+"-"+g.upto.EventID)
		if place = g.upto; place.IsZero() {
			break
		}
	}
	require.Equal(t, []string{"-f", "e-d", "c-b", "a-"}, gaps)
}

func TestProcessesTakeDifferentRanges(t *testing.T) {
	t.Parallel()
	var l rangeList
	a, b := l.process("a"), l.process("b")
	g, err := a.gap(t.Context(), Cursor{})
	require.NoError(t, err)
	require.NotNil(t, b.takes(t, Cursor{}, at(10)))
	taken, err := a.take(t.Context(), g, at(20))
	require.NoError(t, err)
	require.Nil(t, taken, "b was faster")
	first := a.takes(t, Cursor{}, at(20))
	require.Equal(t, at(10), first.After)
	second := a.takes(t, at(20), at(30))
	require.Equal(t, at(20), second.After)
	require.Len(t, l.list.Ranges, 3)
	require.True(t, slices.IsSortedFunc(l.list.Ranges, func(x, y Range) int { return x.Upto.AvailableAt.Compare(y.Upto.AvailableAt) }))

	a.track.readEnded(first)
	third := a.takes(t, at(30), at(40))
	require.NotContains(t, l.names(), first.Name, "a set leaves out ranges that are finished")
	require.Contains(t, l.names(), second.Name)

	// A range of the process is read again, and is kept meanwhile.
	a.track.readEnded(second)
	a.track.readEnded(third)
	dl := delivery{env: &Envelope{EventID: "1"}, right: second}
	require.True(t, isNew(a.track.acquire(&dl)))
	g, err = a.gap(t.Context(), at(10))
	require.NoError(t, err)
	require.Equal(t, gap{after: at(10), upto: at(20), at: 1, version: l.list.Version}, g)
	g, err = a.gap(t.Context(), at(20))
	require.NoError(t, err)
	require.Same(t, second, g.own)
	a.track.release(&dl)
	left, err := a.tidy(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, left)
	a.track.readEnded(second)
	left, err = a.tidy(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
	require.Len(t, l.list.Ranges, 1, "b's")
}

func TestARangeThatWasGivenUpIsNotReadAgain(t *testing.T) {
	t.Parallel()
	var l rangeList
	p := l.process("p")
	held := p.takes(t, Cursor{}, at(10))
	p.track.readEnded(held)
	again, err := p.readAgain(t.Context(), held)
	require.NoError(t, err)
	require.True(t, again)
	p.track.readEnded(held)
	_, err = p.tidy(t.Context())
	require.NoError(t, err)
	require.Empty(t, l.list.Ranges)
	again, err = p.readAgain(t.Context(), held)
	require.NoError(t, err)
	require.False(t, again, "another process may have the range")
}

func TestARightIsRenewedUntilItExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l rangeList
		a, b := l.process("a"), l.process("b")
		held := a.takes(t, Cursor{}, at(10))
		a.Start()
		b.Start()
		defer func() { require.NoError(t, b.Close(time.Second)) }()
		for range 100 {
			time.Sleep(time.Second)
			require.True(t, a.lasts(held))
			synctest.Wait()
		}
		b.takes(t, at(10), at(20))
		require.False(t, b.hasExpired())
		a.cancel() // the process is stopped
		for begin := time.Now(); !b.hasExpired(); time.Sleep(100 * time.Millisecond) {
			require.Less(t, time.Since(begin), rangeLasts+time.Second)
			require.NoError(t, b.reload(t.Context()))
		}
		require.False(t, a.lasts(held))
		_, err := a.tidy(t.Context())
		require.NoError(t, err)
		require.True(t, b.hasExpired(), "a right that is over is not renewed")
		g, err := b.gap(t.Context(), Cursor{})
		require.NoError(t, err)
		require.Equal(t, at(10), g.after, "an expired range is no gap")
		b.track.readEnded(g.own)

		over, err := b.takeExpired(t.Context())
		require.NoError(t, err)
		require.Equal(t, []Cursor{{}, at(10)}, []Cursor{over.After, over.Upto})
		require.False(t, b.hasExpired())
		again, err := l.process("c").takeExpired(t.Context())
		require.NoError(t, err)
		require.Nil(t, again, "one process at a time takes a range over")
		g, err = b.gap(t.Context(), Cursor{})
		require.NoError(t, err)
		require.NotSame(t, over, g.own, "the rows of the range are suspects")
		b.track.readEnded(g.own)
		b.track.readEnded(over)
		b.takes(t, at(20), at(30))
		require.Len(t, l.list.Ranges, 2)
		require.NoError(t, a.reload(t.Context()))
		require.Empty(t, a.held)
	})
}

func TestARangeWhoseAnswerIsLostIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l rangeList
		a := l.process("a")
		g, err := a.gap(t.Context(), Cursor{})
		require.NoError(t, err)
		lost := errors.New("the answer is lost")
		l.lose = lost
		_, err = a.take(t.Context(), g, at(10))
		require.ErrorIs(t, err, lost)
		require.Len(t, l.list.Ranges, 1)
		a.Start()
		time.Sleep(rangeLasts / 2)
		synctest.Wait()
		require.Empty(t, l.list.Ranges)
		require.NoError(t, a.Close(time.Second))
	})
}

// A statement that waits too long for the row begins no right: its end was reckoned from an old time.
func TestALateSetBeginsNoRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l rangeList
		a := l.process("a")
		a.takes(t, Cursor{}, at(10))
		time.Sleep(time.Hour) // the list that a has is still the latest
		held := a.takes(t, at(10), at(20))
		require.NotNil(t, held)
		g, err := a.gap(t.Context(), at(20))
		require.NoError(t, err)
		a.readAt = a.readAt.Add(time.Minute) // as if the process had been suspended
		taken, err := a.take(t.Context(), g, at(30))
		require.NoError(t, err)
		require.Nil(t, taken)
	})
}

// reload reads the list.
func (r *rights) reload(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.end()
	return r.load(ctx)
}

// A range of which nothing is in hand is given up with the next set, so a gap goes over it. A read
// from a place within the range begins at the place.
func TestAGapGoesOverFinishedRanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &rangeList{}
		r, other := l.process("a"), l.process("b")
		others := other.takes(t, at(30), at(40))
		finished := r.takes(t, Cursor{}, at(10))
		inHand := r.takes(t, at(10), at(20))
		r.track.readEnded(finished)
		for place, want := range map[Cursor]gap{
			{}:     {after: Cursor{}, upto: at(10)},
			at(5):  {after: at(5), upto: at(10)},
			at(10): {after: at(10), upto: at(20), own: inHand},
			at(15): {after: at(15), upto: at(20), own: inHand},
			at(20): {after: at(20), upto: at(30)},
			at(35): {after: at(40)},
		} {
			g, err := r.gap(t.Context(), place)
			require.NoError(t, err)
			require.Equal(t, want, gap{after: g.after, upto: g.upto, own: g.own}, place)
			r.track.readEnded(g.own)
		}
		r.track.readEnded(inHand)
		g, err := r.gap(t.Context(), at(5))
		require.NoError(t, err)
		require.Equal(t, gap{after: at(5), upto: at(30)}, gap{after: g.after, upto: g.upto, own: g.own}, "both are finished")
		taken, err := r.take(t.Context(), g, at(25))
		require.NoError(t, err)
		require.Equal(t, []string{taken.Name, others.Name}, l.names())
	})
}

// While a node looks at a gap, it gives up ranges. It takes the gap all the same, unless another
// process took a part of it.
func TestAGapIsTakenAlthoughThisProcessGaveRangesUp(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, other *rights) bool{
		"nothing else": func(*testing.T, *rights) bool { return true },
		"another process took a part": func(t *testing.T, other *rights) bool {
			require.NotNil(t, other.takes(t, at(30), at(40)))
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &rangeList{}
				r, other := l.process("a"), l.process("b")
				behind := r.takes(t, at(50), at(60))
				finished := r.takes(t, Cursor{}, at(10))
				g, err := r.gap(t.Context(), at(10))
				require.NoError(t, err)
				r.track.readEnded(finished)
				_, err = r.tidy(t.Context())
				require.NoError(t, err)
				free := meanwhile(t, other)
				if !free {
					_, err = r.tidy(t.Context())
					require.NoError(t, err)
					r.track.readEnded(behind)
					_, err = r.tidy(t.Context())
					require.NoError(t, err)
				}
				taken, err := r.take(t.Context(), g, at(45))
				require.NoError(t, err)
				require.Equal(t, free, taken != nil)
			})
		})
	}
}

// A trigger skips the update of the list. The process says so, and does not try again at once.
func TestAListThatStaysIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &rangeList{}
		held := &heldTable{store: l, owner: "a"}
		l.holds(t, held, "a", false)
		require.NoError(t, held.Release(t.Context()))
		r := l.process("b")
		for range 2 {
			l.skip, l.sets = true, 0
			_, _, err := held.Hold(t.Context(), time.Second)
			require.ErrorIs(t, err, errRangesStay)
			require.Nil(t, r.takes(t, Cursor{}, at(10)))
			_, err = r.gap(t.Context(), Cursor{})
			require.ErrorIs(t, err, errRangesStay)
			require.Equal(t, 2, l.sets)
		}
		l.skip = false
		require.NotNil(t, r.takes(t, Cursor{}, at(10)))
	})
}
