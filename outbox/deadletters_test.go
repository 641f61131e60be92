package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// dying is a store that waits, after a replay, until all its events are dead
// again.
type dying struct {
	*outboxtest.Store
	events int64
}

func (d *dying) memory() *outboxtest.Store { return d.Store }

func (d *dying) ReplayDead(ctx context.Context, db outbox.DB, ids []string, now time.Time, to outbox.Status) (int, error) {
	n, err := d.Store.ReplayDead(ctx, db, ids, now, to)
	for dead := int64(0); err == nil && dead < d.events; {
		dead, err = d.CountDead(ctx, db, outbox.DeadFilter{})
	}
	return n, err
}

func TestReplayAllReplaysEachDeadEventOnceAlsoWhenItDiesAgain(t *testing.T) {
	t.Parallel()
	var c calls
	const n = 30
	e := start(t, outbox.Config{Store: &dying{Store: outboxtest.NewStore(), events: n}, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1}, Poll: outbox.PollOptions{Interval: time.Millisecond}}},
		func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return errors.New("always")
		})
	for i := range n {
		e.write(said(fmt.Sprintf("e%02d", i)))
	}
	dl := e.DeadLetters()
	require.Eventually(t, func() bool { dead, err := dl.Count(t.Context(), outbox.DeadFilter{}); return err == nil && dead == n }, 20*time.Second, time.Millisecond)
	replayed, err := dl.ReplayAll(t.Context(), outbox.DeadFilter{EventType: "Said"}, 4)
	require.NoError(t, err)
	require.Equal(t, n, replayed)
	require.Eventually(t, func() bool { _, deliveries := c.total(); return deliveries == 2*n }, 20*time.Second, time.Millisecond)
	require.NoError(t, e.Close(t.Context()))
	_, deliveries := c.total()
	require.Equal(t, 2*n, deliveries)
	none, err := dl.ReplayAll(t.Context(), outbox.DeadFilter{EventType: "Other"}, 0)
	require.NoError(t, err)
	require.Zero(t, none)
}

// Many die in the same instant, such as those of one statement, and some are
// replayed between two pages.
func TestDeadLettersPageByPage(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), outboxtest.NewStore()
	e := build(t, outbox.Config{Store: store}, nil)
	const n = 25
	marks := make([]outbox.Mark, n)
	for i := range marks {
		marks[i].EventID = fmt.Sprintf("e%02d", i)
		e.write(said(marks[i].EventID))
	}
	_, err := store.Mark(ctx, store.DB(), outbox.OutcomeDead, marks)
	require.NoError(t, err)
	dl := e.DeadLetters()
	var got []string
	query := outbox.DeadQuery{Limit: 10}
	for {
		page, err := dl.Find(ctx, query)
		require.NoError(t, err)
		for i := range page.Rows {
			got = append(got, page.Rows[i].EventID)
		}
		if query.After = page.Next; query.After == "" {
			break
		}
		require.NoError(t, dl.Replay(ctx, got[len(got)-1]))
	}
	require.Len(t, got, n)
	require.IsIncreasing(t, got)
}

// A filter that chooses few letters, or none, must not read all of them for a page.
func TestAPageOfDeadLettersLooksAtABoundedNumber(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newCemetery(t)
	c.bury(outbox.GroupLimit+5, "Placed", "", texts("%d"))
	few := c.bury(3, "Late", "", texts("%d"))
	for _, f := range []outbox.DeadFilter{{EventType: "Late"}, {EventType: "Late", AggregateType: "Order"}, {TenantID: "none"}, {AggregateID: "none"}} {
		page, err := c.letter.Find(ctx, outbox.DeadQuery{DeadFilter: f, Limit: 2})
		require.NoError(t, err)
		require.Empty(t, page.Rows, "%+v", f)
		require.NotEmpty(t, page.Next, "the next page goes on behind them")
		var found []string
		for page.Next != "" {
			page, err = c.letter.Find(ctx, outbox.DeadQuery{DeadFilter: f, After: page.Next, Limit: 2})
			require.NoError(t, err)
			found = append(found, lettersOf(page.Rows)...)
		}
		if f.EventType != "" {
			require.Equal(t, few, found, "%+v", f)
		} else {
			require.Empty(t, found)
		}
	}
}

// The place of another list, or of no list, is refused: such a page would begin anywhere.
func TestFindRefusesAPlaceThatNoPageOfDeadLettersHad(t *testing.T) {
	t.Parallel()
	c := newCemetery(t)
	c.bury(2, "Placed", "", texts("%d"))
	events := outbox.ByEndTime.Next(outbox.Cursor{AvailableAt: time.Now(), EventID: "e"})
	page, err := c.letter.Find(t.Context(), outbox.DeadQuery{Limit: 1})
	require.NoError(t, err)
	require.NotEmpty(t, page.Next)
	for _, after := range []string{"abc", events, page.Rows[0].EventID} {
		_, err := c.letter.Find(t.Context(), outbox.DeadQuery{After: after})
		field := (*outbox.FieldError)(nil)
		require.ErrorAs(t, err, &field)
		require.Equal(t, "DeadQuery.After", field.Field)
		require.Contains(t, field.Problem, "is no place in this list")
	}
	_, err = outbox.ByEndTime.After(page.Next)
	require.ErrorContains(t, err, "EventQuery.After", "nor is the place of a letter the place of an event")
}

func TestDeadLettersOneByOne(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	e := start(t, outbox.Config{}, func(context.Context, outbox.Envelope) error { return outbox.Dead(errors.New("no")) })
	e.write(said("a"), said("b"))
	e.await("a", outbox.StatusDead)
	e.await("b", outbox.StatusDead)
	require.NoError(t, e.Close(ctx))
	dl := e.DeadLetters()
	page, err := dl.Find(ctx, outbox.DeadQuery{})
	require.NoError(t, err)
	require.Len(t, page.Rows, 2)
	require.Equal(t, "no", page.Rows[0].LastError)
	require.NoError(t, dl.Replay(ctx, "a"))
	row, _ := e.store.Row("a")
	require.Equal(t, outbox.StatusNew, row.Status)
	require.Empty(t, row.LastError)
	require.True(t, row.DoneAt.IsZero())
	require.ErrorIs(t, dl.Replay(ctx, "a"), outbox.ErrNotFound, "it is not dead any more")
	_, err = dl.Delete(ctx, "b")
	require.NoError(t, err)
	_, err = dl.Delete(ctx, "b")
	require.ErrorIs(t, err, outbox.ErrNotFound)
	_, err = dl.Get(ctx, "b")
	require.ErrorIs(t, err, outbox.ErrNotFound)
	_, err = dl.Find(ctx, outbox.DeadQuery{Limit: -1})
	require.ErrorContains(t, err, "DeadQuery.Limit is -1")
	_, err = dl.ReplayAll(ctx, outbox.DeadFilter{}, -1)
	require.ErrorContains(t, err, "batch is -1")
}

func TestAPurgeDeletesUndeliveredRowsOnlyIfItIsTold(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	old := said("old")
	old.OccurredAt = time.Now().Add(-time.Hour)
	purge := outbox.PurgeOptions{Retention: 30 * time.Minute, BatchSize: 1}
	all := purge
	all.Undelivered = true
	for _, mode := range []outbox.Mode{nil, outbox.MultiNode{}, outbox.OrderedByKey{}, outbox.Ordered{}} {
		store := outboxtest.NewStore()
		_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: mode, Purge: &all})
		require.ErrorContains(t, err, "Config.Purge.Undelivered is set, but this process delivers")
	}

	api := build(t, outbox.Config{Mode: outbox.WriterOnly{}, Purge: &purge}, nil) // beside workers
	api.write(old)
	deleted, err := api.Purge(ctx)
	require.NoError(t, err)
	require.Zero(t, deleted, "a worker delivers it")

	writerOnly := build(t, outbox.Config{Store: api.store, Mode: outbox.WriterOnly{}, Purge: &all}, nil)
	writerOnly.write(said("young"))
	require.NoError(t, writerOnly.Start(ctx))
	require.Eventually(t, func() bool { return len(writerOnly.store.Rows()) == 1 }, 20*time.Second, time.Millisecond)
	_, found := writerOnly.store.Row("young")
	require.True(t, found)

	store := outboxtest.NewStore()
	job := build(t, outbox.Config{Store: store, Purge: &outbox.PurgeOptions{Retention: outbox.NoRetention, BatchSize: 2}}, nil)
	e := build(t, outbox.Config{Store: store}, func(context.Context, outbox.Envelope) error { return nil })
	e.write(said("1"), said("2"), said("3"), said("4"), said("5"))
	n, err := job.Purge(ctx)
	require.NoError(t, err)
	require.Zero(t, n, "what is pending is never purged")
	require.NoError(t, e.Start(ctx))
	for i := range 5 {
		e.await(fmt.Sprint(i+1), outbox.StatusDone)
	}
	n, err = job.Purge(ctx)
	require.NoError(t, err)
	require.Equal(t, 5, n)
}

func TestOnDoneDeleteKeepsNoRow(t *testing.T) {
	t.Parallel()
	e := start(t, outbox.Config{Purge: &outbox.PurgeOptions{OnDone: outbox.Delete}},
		func(context.Context, outbox.Envelope) error { return nil })
	e.write(said("gone"))
	require.Eventually(t, func() bool { return len(e.store.Rows()) == 0 }, 20*time.Second, time.Millisecond)
}

func TestStats(t *testing.T) {
	t.Parallel()
	e := build(t, outbox.Config{}, nil)
	late, old := said("late"), said("old")
	late.DeliverAfter = time.Hour
	old.OccurredAt = time.Now().Add(-time.Minute)
	e.write(late, old, said("now"))
	st, err := e.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(3), st.Pending)
	require.Equal(t, int64(2), st.Due)
	require.Equal(t, int64(1), st.Delayed)
	require.Zero(t, st.Dead)
	require.InDelta(t, time.Minute, st.OldestDueAge, float64(10*time.Second))
}

func TestStatsTellWhetherThePollerGetsThrough(t *testing.T) {
	t.Parallel()
	lastPoll := func(e *engine) time.Time {
		st, err := e.Stats(context.Background()) // Never may still ask when the test ends
		require.NoError(t, err)
		return st.LastPoll
	}
	store := &hiccup{Store: outboxtest.NewStore()}
	e := build(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: 5 * time.Millisecond}}}, handled)
	st, err := e.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, st.LastPoll, "it has not started")
	require.Equal(t, 5*time.Millisecond, st.PollInterval)

	store.failing.Store(true)
	require.NoError(t, e.Start(t.Context()))
	require.Eventually(t, func() bool { return store.failed.Load() > 2 }, 20*time.Second, time.Millisecond)
	require.Zero(t, lastPoll(e), "every poll has failed")
	store.failing.Store(false)
	require.Eventually(t, func() bool { return !lastPoll(e).IsZero() }, 20*time.Second, time.Millisecond)
	first := lastPoll(e)
	require.WithinDuration(t, time.Now(), first, 10*time.Second)
	require.Eventually(t, func() bool { return lastPoll(e).After(first) }, 20*time.Second, time.Millisecond, "an idle table is polled")
	require.NoError(t, e.Close(t.Context()))
	last := lastPoll(e)
	require.Never(t, func() bool { return lastPoll(e).After(last) }, 50*time.Millisecond, 10*time.Millisecond)

	none := build(t, outbox.Config{Mode: outbox.WriterOnly{}}, nil)
	st, err = none.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, st.LastPoll)
	require.Zero(t, st.PollInterval, "there is no poller")
}

// hiccup is a store whose polls can be made to fail.
type hiccup struct {
	*outboxtest.Store
	failing atomic.Bool
	failed  atomic.Int32
}

func (h *hiccup) memory() *outboxtest.Store { return h.Store }

func (h *hiccup) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if h.failing.Load() {
		h.failed.Add(1)
		return outbox.Batch{}, errors.New("a poll that the test lets fail")
	}
	return h.Store.Poll(ctx, db, q)
}
