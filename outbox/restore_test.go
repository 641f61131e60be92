package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestADeletionIsUndone(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newCemetery(t)
	placed, paid := c.bury(1234, "Placed", "", texts("%d")), c.bury(3, "Paid", "", texts("%d"))
	c.SetRow(paid[0], outboxtest.RawRow{Status: outbox.StatusDead, Attempts: 2, LastError: "no", CreatedAt: time.Unix(1000, 0).UTC()})
	before := c.Rows()
	deletions := make([]outbox.Deletion, 2)
	for i, kind := range []outbox.EventType{"Placed", "Paid"} {
		var err error
		deletions[i], err = c.letter.DeleteAll(ctx, outbox.DeadFilter{EventType: kind}, 1)
		require.NoError(t, err)
		require.Len(t, deletions[i].ID, 26)
	}
	require.Equal(t, []int{len(placed), len(paid)}, []int{deletions[0].Count, deletions[1].Count})
	none, err := c.letter.DeleteAll(ctx, outbox.DeadFilter{}, 0)
	require.NoError(t, err)
	require.Zero(t, none, "a deletion of nothing has no id")
	for limit, want := range map[int]int64{0: 1234, 1: 1, 2000: 1234} {
		left, err := c.letter.Restorable(ctx, deletions[0].ID, limit)
		require.NoError(t, err)
		require.Equal(t, want, left)
	}
	var progress []int
	n, err := c.letter.Restore(ctx, deletions[0].ID, outbox.OnProgress(func(done int) { progress = append(progress, done) }))
	require.NoError(t, err)
	require.Equal(t, len(placed), n)
	require.Equal(t, []int{500, 1000, 1234}, progress)
	left, err := c.letter.Count(ctx, outbox.DeadFilter{})
	require.NoError(t, err)
	require.EqualValues(t, len(placed), left, "the other deletion stays")
	n, err = c.letter.Restore(ctx, deletions[1].ID)
	require.NoError(t, err)
	require.Equal(t, len(paid), n)
	require.Equal(t, before, c.Rows())
	_, err = c.letter.Restorable(ctx, deletions[0].ID, -1)
	require.EqualError(t, err, "outbox: DeadLetters.Restorable limit is -1; it must be positive, or zero for 100000")
	for _, id := range []string{deletions[0].ID, deletions[1].ID, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "x"} {
		_, err = c.letter.Restore(ctx, id)
		require.EqualError(t, err, fmt.Sprintf("outbox: restoring deletion %q: outbox: not found", id))
		require.ErrorIs(t, err, outbox.ErrNotFound)
		left, err := c.letter.Restorable(ctx, id, 0)
		require.NoError(t, err)
		require.Zero(t, left)
	}
}

func TestAFinalDeletionLeavesNoRow(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newCemetery(t)
	ids := c.bury(3, "Placed", "", texts("%d"))
	d, err := c.letter.DeleteAll(ctx, outbox.DeadFilter{EventIDs: ids[:2]}, 0, outbox.Final())
	require.NoError(t, err)
	require.Equal(t, outbox.Deletion{Count: 2}, d)
	require.Len(t, c.Rows(), 1)
	_, err = c.letter.ReplayAll(ctx, outbox.DeadFilter{}, 0, outbox.Final())
	require.EqualError(t, err, "outbox: DeadLetters.ReplayAll options have Final, which is for DeleteAll")
	_, err = c.letter.Restore(ctx, "01ARZ3NDEKTSV4RRFFQ69G5FAV", outbox.Final())
	require.EqualError(t, err, "outbox: DeadLetters.Restore options have Final, which is for DeleteAll")
}

// Two restorations of the same deletion at once: each letter is counted once, and the second restoration
// says that nothing was left.
func TestRestorationsAtOnceCountEachLetterOnce(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), newCemetery(t)
	c.bury(2000, "Placed", "", texts("%d"))
	d, err := c.letter.DeleteAll(ctx, outbox.DeadFilter{}, 7)
	require.NoError(t, err)
	var counts [4]int
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			n, err := c.letter.Restore(ctx, d.ID)
			if counts[i] = n; n == 0 && !errors.Is(err, outbox.ErrNotFound) || n > 0 && err != nil {
				t.Errorf("restored %d: %v", n, err)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	require.Equal(t, 2000, total)
}

func TestADeletedLetterSaysSo(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := auditedOutbox(t, store, store)
	ctx := outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna"})
	before, err := ob.FindEvent(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "DEAD", before.State())
	d, err := ob.DeadLetters().Delete(ctx, "a")
	require.NoError(t, err)
	final, err := ob.DeadLetters().DeleteAll(ctx, outbox.DeadFilter{EventIDs: []string{"b"}}, 0, outbox.Final())
	require.NoError(t, err)
	require.Equal(t, 1, final.Count)
	row, err := ob.FindEvent(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "DELETED", row.State())
	require.Equal(t, []string{d.ID, "", before.LastError}, []string{row.DeletionID, row.Lease, row.LastError})
	require.Equal(t, before.EndedAt, row.DiedAt)
	require.Zero(t, row.LeasedAt)
	require.WithinDuration(t, time.Now(), row.EndedAt, time.Minute)
	page, err := ob.FindEvents(ctx, outbox.EventQuery{EventFilter: outbox.EventFilter{DeletionID: d.ID}})
	require.NoError(t, err)
	require.Len(t, page.Rows, 1)
	require.Equal(t, d.ID, page.Rows[0].DeletionID)
	_, err = ob.FindEvents(ctx, outbox.EventQuery{EventFilter: outbox.EventFilter{DeletionID: "x"}})
	require.EqualError(t, err, "outbox: EventFilter.DeletionID (1 bytes) is no id of a deletion; DeleteAll and the audit log have the ids of deletions")
	n, err := ob.DeadLetters().Restore(ctx, d.ID)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	entries, err := ob.Audit(ctx, outbox.AuditQuery{})
	require.NoError(t, err)
	var recorded []string
	for _, e := range entries.Rows {
		recorded = append(recorded, fmt.Sprint(e.Action, " ", e.Target, " ", e.DeletionID, " ", e.Count))
	}
	require.Equal(t, []string{"restore deletion=" + d.ID + " " + d.ID + " 1", "delete event_id=b  1", "delete event_id=a " + d.ID + " 1"}, recorded)
}

// The row of a deleted letter has done_at of the deletion, so it is kept as long as a delivered row.
func TestADeletionIsUndoneUntilAPurge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, c := t.Context(), newCemetery(t)
		ids := c.bury(2, "Placed", "", texts("%d"))
		ob := build(t, outbox.Config{Store: c.Store, Purge: &outbox.PurgeOptions{Retention: 24 * time.Hour}}, nil)
		retention, purges := ob.Retention()
		require.True(t, purges)
		require.Equal(t, 24*time.Hour, retention)
		d, err := c.letter.Delete(ctx, ids[0])
		require.NoError(t, err)
		time.Sleep(time.Hour)
		later, err := c.letter.Delete(ctx, ids[1])
		require.NoError(t, err)
		time.Sleep(23*time.Hour + time.Minute)
		n, err := ob.Purge(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		_, err = c.letter.Restore(ctx, d.ID)
		require.ErrorIs(t, err, outbox.ErrNotFound)
		n, err = c.letter.Restore(ctx, later.ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

// A letter that is restored holds its key back again.
func TestARestoredLetterBlocksItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var d diary
		broken := true
		e := start(t, byKey(outbox.OrderedByKey{}), d.listen(func(env outbox.Envelope) error {
			if env.EventID == "a-00000" && broken {
				return outbox.Dead(errors.New("broken"))
			}
			return nil
		}))
		all := numbered("a", 3)
		e.write(all[:2]...)
		time.Sleep(time.Second)
		deletion, err := e.DeadLetters().Delete(ctx, "a-00000")
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, idsOf(all[:2]), d.of("a"))
		_, err = e.DeadLetters().Restore(ctx, deletion.ID)
		require.NoError(t, err)
		e.write(all[2])
		time.Sleep(time.Second)
		require.Equal(t, idsOf(all[:2]), d.of("a"), "the key waits again")
		broken = false
		require.NoError(t, e.DeadLetters().Replay(ctx, "a-00000"))
		time.Sleep(time.Second)
		require.Equal(t, append(idsOf(all[:2]), "a-00000", "a-00002"), d.of("a"))
	})
}

func TestAnOwnerDoesNotLookLikeADeletion(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: outbox.DeletedBy + "x"}}})
	require.ErrorContains(t, err, `Claim.Owner begins with "deleted ", which marks the rows of deleted dead letters; choose another name`)
}

// halting is a store that restores a page, and then fails.
type halting struct {
	*outboxtest.Store
	restored bool
}

func (f *halting) RestoreDead(ctx context.Context, db outbox.DB, q outbox.DeletedQuery) (outbox.Restored, error) {
	if f.restored {
		return outbox.Restored{}, errSilent
	}
	f.restored = true
	return f.Store.RestoreDead(ctx, db, q)
}

// motionless is a store in which a restoration finds rows and changes none.
type motionless struct{ *outboxtest.Store }

func (motionless) RestoreDead(_ context.Context, _ outbox.DB, q outbox.DeletedQuery) (outbox.Restored, error) {
	return outbox.Restored{Looked: q.Limit, Last: q.Since}, nil
}

func TestARestorationThatChangesNothingEnds(t *testing.T) {
	t.Parallel()
	store := motionless{outboxtest.NewStore()}
	letters, err := outbox.NewDeadLetters(store.DB(), store)
	require.NoError(t, err)
	_, err = letters.Restore(t.Context(), "01ARZ3NDEKTSV4RRFFQ69G5FAV")
	require.ErrorContains(t, err, "rows of the deletion do not change; does a trigger of the table skip the update?")
}

func TestAnIncompleteRestorationSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	c := newCemetery(t)
	c.bury(700, "Placed", "", texts("%d"))
	d, err := c.letter.DeleteAll(t.Context(), outbox.DeadFilter{}, 0)
	require.NoError(t, err)
	letters, err := outbox.NewDeadLetters(c.DB(), &halting{Store: c.Store})
	require.NoError(t, err)
	n, err := letters.Restore(t.Context(), d.ID)
	require.EqualError(t, err, fmt.Sprintf("outbox: restoring deletion %q: no answer", d.ID))
	require.Equal(t, 500, n)
	n, err = letters.Restore(t.Context(), d.ID)
	require.ErrorIs(t, err, errSilent)
	require.Zero(t, n)
	n, err = c.letter.Restore(t.Context(), d.ID)
	require.NoError(t, err)
	require.Equal(t, 200, n)
}

// behind is a store whose database's clock is behind the clock of this process.
type behind struct{ *outboxtest.Store }

func (b behind) Now(ctx context.Context, db outbox.DB) (time.Time, error) {
	now, err := b.Store.Now(ctx, db)
	return now.Add(-30 * time.Minute), err
}

// The time in the id is that of the database, whatever other ids this process has made.
func TestADeletionIsFoundWhateverTheClocksSay(t *testing.T) {
	t.Parallel()
	c := newCemetery(t)
	ids := c.bury(3, "Placed", "", texts("%d"))
	_, err := c.letter.Delete(t.Context(), ids[0])
	require.NoError(t, err)
	letters, err := outbox.NewDeadLetters(c.DB(), behind{c.Store})
	require.NoError(t, err)
	for range 2 {
		d, err := letters.DeleteAll(t.Context(), outbox.DeadFilter{}, 0)
		require.NoError(t, err)
		require.Equal(t, 2, d.Count)
		n, err := letters.Restore(t.Context(), d.ID)
		require.NoError(t, err)
		require.Equal(t, 2, n)
	}
}
