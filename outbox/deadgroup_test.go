package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// cemetery is a store with dead letters, one a millisecond.
type cemetery struct {
	*outboxtest.Store
	t      *testing.T
	letter *outbox.DeadLetters
	n      int
	died   time.Time
}

func newCemetery(t *testing.T) *cemetery {
	t.Helper()
	c := &cemetery{Store: outboxtest.NewStore(), t: t, died: time.Now().UTC().Add(-time.Hour).Truncate(time.Millisecond)}
	letters, err := outbox.NewDeadLetters(c.DB(), c)
	require.NoError(t, err)
	c.letter = letters
	return c
}

// bury adds n dead letters, with an error for each, and returns their ids.
func (c *cemetery) bury(n int, kind outbox.EventType, listener string, text func(i int) string) []string {
	c.t.Helper()
	envs := make([]outbox.Envelope, n)
	ids := make([]string, n)
	for i := range envs {
		c.n++
		ids[i] = fmt.Sprintf("e%06d", c.n)
		envs[i] = outbox.Envelope{EventID: ids[i], EventType: kind, AggregateType: "Order", Payload: outbox.RawJSON(`{"n":1}`), OccurredAt: c.died, AvailableAt: c.died}
		if listener != "" {
			envs[i].Headers = map[string]string{outbox.HeaderListener: listener, outbox.HeaderEventID: "original"}
		}
	}
	require.NoError(c.t, c.Insert(c.t.Context(), nil, envs, "", time.Time{}))
	for i, id := range ids {
		c.died = c.died.Add(time.Millisecond)
		require.True(c.t, c.SetRow(id, outboxtest.RawRow{Status: outbox.StatusDead, CreatedAt: c.died, AvailableAt: c.died, DoneAt: c.died, LastError: text(i)}))
	}
	return ids
}

func texts(text string) func(i int) string {
	return func(i int) string { return strings.ReplaceAll(text, "%d", strconv.Itoa(i)) }
}

func lettersOf(letters []outbox.DeadLetter) []string {
	ids := make([]string, len(letters))
	for i := range letters {
		ids[i] = letters[i].EventID
	}
	return ids
}

func TestDeadLettersAreGroupedByKindListenerAndReason(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newCemetery(t)
	empty, more, err := c.letter.Groups(ctx, outbox.DeadFilter{})
	require.NoError(t, err)
	require.Empty(t, empty)
	require.False(t, more)

	timeouts := c.bury(3, "Placed", "", texts("timeout after %d ms"))
	c.bury(2, "Paid", "", texts("timeout after %d ms"))
	c.bury(1, "Placed", "mail", texts("timeout after %d ms"))
	timeouts = append(timeouts, c.bury(1, "Placed", "", texts("timeout after 9%d ms"))...)
	c.bury(2, "Placed", "", texts("refused"))
	all, more, err := c.letter.Groups(ctx, outbox.DeadFilter{})
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, all, 4)
	first := all[0]
	page, err := c.letter.Find(ctx, outbox.DeadQuery{DeadFilter: outbox.DeadFilter{EventIDs: timeouts}})
	require.NoError(t, err)
	require.Len(t, first.ID, 16)
	first.ID = ""
	require.Equal(t, outbox.DeadGroup{
		Kind: outbox.EventKind{AggregateType: "Order", EventType: "Placed"}, Reason: "timeout after # ms", Count: 4,
		First: page.Rows[0].DiedAt, Last: page.Rows[3].DiedAt, Example: timeouts[3],
	}, first)
	listeners := 0
	for _, g := range all {
		if g.Kind.Listener == "mail" {
			listeners++
		}
	}
	require.Equal(t, 1, listeners)
	paid, _, err := c.letter.Groups(ctx, outbox.DeadFilter{EventType: "Paid"})
	require.NoError(t, err)
	require.Len(t, paid, 1)
	require.Equal(t, 2, paid[0].Count)
}

// idOf is the id of the group of a kind and a reason.
func (c *cemetery) idOf(kind outbox.EventType, reason string) string {
	c.t.Helper()
	all, _, err := c.letter.Groups(c.t.Context(), outbox.DeadFilter{})
	require.NoError(c.t, err)
	for _, g := range all {
		if g.Kind.EventType == kind && g.Reason == reason {
			return g.ID
		}
	}
	require.Fail(c.t, "there is no such group", "%s %q in %+v", kind, reason, all)
	return ""
}

func TestAGroupsLettersAreListedCountedReplayedAndDeleted(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newCemetery(t)
	var timeouts, refusals []string
	for range 5 {
		timeouts = append(timeouts, c.bury(300, "Placed", "", texts("timeout after %d ms"))...)
		refusals = append(refusals, c.bury(300, "Placed", "", texts("refused"))...)
	}
	f := outbox.DeadFilter{Group: c.idOf("Placed", "timeout after # ms")}
	n, err := c.letter.Count(ctx, f)
	require.NoError(t, err)
	require.EqualValues(t, len(timeouts), n)

	var listed []string
	query := outbox.DeadQuery{DeadFilter: f, Limit: 500}
	for {
		page, err := c.letter.Find(ctx, query)
		require.NoError(t, err)
		listed = append(listed, lettersOf(page.Rows)...)
		require.Positive(t, page.Rows[0].PayloadBytes)
		if query.After = page.Next; query.After == "" {
			break
		}
		require.Len(t, page.Rows, 500, "1500 letters are three pages, and no empty one follows")
	}
	require.Equal(t, timeouts, listed)

	var progress []int
	replayed, err := c.letter.ReplayAll(ctx, f, 1000, outbox.OnProgress(func(done int) { progress = append(progress, done) }))
	require.NoError(t, err)
	require.Equal(t, len(timeouts), replayed)
	require.Equal(t, []int{600, 1100, 1500}, progress, "of 1000 letters each, those of the group")
	n, err = c.letter.Count(ctx, outbox.DeadFilter{})
	require.NoError(t, err)
	require.EqualValues(t, len(refusals), n)

	deleted, err := c.letter.DeleteAll(ctx, outbox.DeadFilter{Group: c.idOf("Placed", "refused")}, 0)
	require.NoError(t, err)
	require.Equal(t, len(refusals), deleted.Count)
	_, err = c.letter.Get(ctx, refusals[0])
	require.ErrorIs(t, err, outbox.ErrNotFound)
	row, there := c.Row(timeouts[0])
	require.True(t, there)
	require.Equal(t, outbox.StatusNew, row.Status)
}

func TestDeleteAllDeletesWhatTheFilterChooses(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newCemetery(t)
	gone, kept := c.bury(7, "Placed", "", texts("%d")), c.bury(3, "Paid", "", texts("%d"))
	var progress []int
	d, err := c.letter.DeleteAll(ctx, outbox.DeadFilter{EventType: "Placed"}, 3, outbox.OnProgress(func(done int) { progress = append(progress, done) }))
	require.NoError(t, err)
	require.Equal(t, len(gone), d.Count)
	require.Equal(t, []int{3, 6, 7}, progress)
	left, err := c.letter.Find(ctx, outbox.DeadQuery{})
	require.NoError(t, err)
	require.Equal(t, kept, lettersOf(left.Rows))
	_, err = c.letter.DeleteAll(ctx, outbox.DeadFilter{}, -1)
	require.EqualError(t, err, "outbox: DeadLetters.DeleteAll batch is -1; it must be positive, or zero for 500")

	ended, cancel := context.WithCancel(ctx)
	d, err = c.letter.DeleteAll(ended, outbox.DeadFilter{}, 1, outbox.OnProgress(func(int) { cancel() }))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, d.Count, "also with an error")
	n, err := c.letter.Restore(ctx, d.ID)
	require.NoError(t, err)
	require.Equal(t, 1, n, "an incomplete deletion is undone")
}

func TestAFilterThatNoTableCanHoldIsRefused(t *testing.T) {
	t.Parallel()
	c := newCemetery(t)
	for _, f := range []outbox.DeadFilter{
		{AggregateID: "a\x00"}, {TenantID: strings.Repeat("x", 65)}, {EventIDs: []string{"\xff"}}, {EventIDs: make([]string, outbox.GroupLimit+1)},
	} {
		_, err := c.letter.Find(t.Context(), outbox.DeadQuery{DeadFilter: f})
		field := (*outbox.FieldError)(nil)
		require.ErrorAs(t, err, &field)
		require.Contains(t, field.Field, "DeadFilter.")
	}
}

// Beyond GroupLimit letters, Groups says that there are more, and a page of a group ends.
func TestGroupsReadABoundedNumberOfLetters(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newCemetery(t)
	c.bury(outbox.GroupLimit, "Placed", "", texts("timeout after %d ms"))
	began := time.Now()
	all, more, err := c.letter.Groups(ctx, outbox.DeadFilter{})
	require.NoError(t, err)
	t.Logf("grouping %d letters took %s", outbox.GroupLimit, time.Since(began))
	require.False(t, more)
	require.Equal(t, outbox.GroupLimit, all[0].Count)
	late := c.bury(1, "Late", "", texts("late %d"))
	all, more, err = c.letter.Groups(ctx, outbox.DeadFilter{})
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, all, 1)
	none, more, err := c.letter.Groups(ctx, outbox.DeadFilter{EventType: "Late"})
	require.NoError(t, err)
	require.Empty(t, none, "the letter is behind those that Groups reads")
	require.True(t, more)
	named, more, err := c.letter.Groups(ctx, outbox.DeadFilter{EventIDs: late})
	require.NoError(t, err)
	require.False(t, more)
	id := named[0].ID
	query := outbox.DeadQuery{DeadFilter: outbox.DeadFilter{Group: id}, Limit: 10}
	page, err := c.letter.Find(ctx, query)
	require.NoError(t, err)
	require.Empty(t, page.Rows, "it is behind the letters that one page looks at")
	require.NotEmpty(t, page.Next, "the next page goes on behind them")
	query.After = page.Next
	page, err = c.letter.Find(ctx, query)
	require.NoError(t, err)
	require.Equal(t, late, lettersOf(page.Rows))
	require.Empty(t, page.Next, "there are no more")
	d, err := c.letter.DeleteAll(ctx, outbox.DeadFilter{Group: id}, 0)
	require.NoError(t, err)
	require.Equal(t, 1, d.Count)
}

func BenchmarkGroups(b *testing.B) {
	list := make([]string, outbox.GroupLimit)
	for i := range list {
		list[i] = fmt.Sprintf(`POST https://api.example.com/orders/%d: dial tcp 10.0.0.%d:443: connect: connection refused (request "%x", after %d ms)`, i, i%250, i*7919, i)
	}
	for b.Loop() {
		for _, text := range list {
			outbox.ReasonOf(text)
		}
	}
}

var errSilent = errors.New("no answer")

// unread is a store that cannot list dead letters.
type unread struct{ *outboxtest.Store }

func (unread) QueryDead(context.Context, outbox.DB, outbox.DeadRowsQuery) ([]outbox.DeadLetter, error) {
	return nil, errSilent
}

func TestErrorsOfGroupsSayWhatFailed(t *testing.T) {
	t.Parallel()
	store := unread{outboxtest.NewStore()}
	letters, err := outbox.NewDeadLetters(store.DB(), store)
	require.NoError(t, err)
	ctx, f := t.Context(), outbox.DeadFilter{Group: "g"}
	_, _, err = letters.Groups(ctx, f)
	require.EqualError(t, err, "outbox: grouping dead letters: no answer")
	_, err = letters.Count(ctx, f)
	require.EqualError(t, err, "no answer")
	_, err = letters.Find(ctx, outbox.DeadQuery{DeadFilter: f})
	require.EqualError(t, err, "no answer")
	_, err = letters.DeleteAll(ctx, f, 0)
	require.EqualError(t, err, "outbox: deleting dead letters: no answer")
}
