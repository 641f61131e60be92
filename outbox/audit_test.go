package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// unrecorded is a store that takes no entry of the audit log.
type unrecorded struct{ *outboxtest.Store }

func (unrecorded) RecordChange(context.Context, outbox.DB, outbox.AuditEntry, time.Duration) error {
	return errors.New("the disk is full")
}

func audited(t *testing.T, ob *outbox.Outbox) (list []string) {
	t.Helper()
	page, err := ob.Audit(t.Context(), outbox.AuditQuery{})
	require.NoError(t, err)
	for _, e := range page.Rows {
		require.WithinDuration(t, time.Now(), e.At, time.Minute)
		list = append(list, fmt.Sprint(e.Name, " ", e.From, " ", e.Action, " ", e.Target, " ", e.Count, " ", e.Reason))
	}
	return list
}

// auditedOutbox is an outbox with three dead letters.
func auditedOutbox(t *testing.T, store outbox.Store, memory *outboxtest.Store) *outbox.Outbox {
	t.Helper()
	ob, err := outbox.New(outbox.Config{DB: memory.DB(), Store: store, Mode: outbox.WriterOnly{}, Logger: quiet, Purge: &outbox.PurgeOptions{}})
	require.NoError(t, err)
	for _, id := range []string{"a", "b", "c"} {
		env := outbox.Envelope{EventID: id, EventType: "T", TenantID: "secret", Payload: outbox.JSON(1)}
		_, err := ob.Writer().WriteUnmanaged(t.Context(), memory.DB(), []outbox.Envelope{env})
		require.NoError(t, err)
		row, _ := memory.Row(id)
		row.Status, row.DoneAt = outbox.StatusDead, time.Now().UTC().Add(-time.Hour)
		require.True(t, memory.SetRow(id, row.RawRow))
	}
	return ob
}

func TestChangesOfOperatorsAreRecorded(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := auditedOutbox(t, store, store)
	kind := outbox.EventKind{EventType: "T"}
	letters := ob.DeadLetters()
	require.NoError(t, ob.Pause(t.Context(), outbox.Pause{Kind: kind}))
	require.Empty(t, audited(t, ob), "no operator")
	ctx := outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna\n", From: "10.0.0.7"})
	require.NoError(t, ob.Pause(ctx, outbox.Pause{Kind: kind, Reason: "down"}))
	until := time.Now().Add(time.Hour)
	require.NoError(t, ob.Pause(ctx, outbox.Pause{Kind: kind, Until: until}))
	require.NoError(t, ob.Resume(ctx, kind))
	require.NoError(t, letters.Replay(ctx, "a"))
	require.ErrorIs(t, letters.Replay(ctx, "a"), outbox.ErrNotFound)
	_, err := letters.ReplayAll(ctx, outbox.DeadFilter{EventIDs: []string{"b"}, TenantID: "secret"}, 0)
	require.NoError(t, err)
	_, err = letters.Delete(ctx, "c")
	require.NoError(t, err)
	_, err = letters.DeleteAll(ctx, outbox.DeadFilter{}, 0)
	require.NoError(t, err)
	_, err = ob.Purge(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{
		"anna  10.0.0.7 purge old rows 0 ", "anna  10.0.0.7 delete event_id=c 1 ",
		"anna  10.0.0.7 replay tenant_id=…&event_id=b 1 ", "anna  10.0.0.7 replay event_id=a 1 ",
		"anna  10.0.0.7 resume __GLOBAL__/T 0 ", "anna  10.0.0.7 pause __GLOBAL__/T until=" + until.UTC().Format(time.RFC3339) + " 0 ", "anna  10.0.0.7 pause __GLOBAL__/T 0 down",
	}, audited(t, ob))
	page, err := ob.Audit(ctx, outbox.AuditQuery{Limit: 2})
	require.NoError(t, err)
	require.Len(t, page.Rows, 2)
	page, err = ob.Audit(ctx, outbox.AuditQuery{Limit: 5, After: page.Next})
	require.NoError(t, err)
	require.Len(t, page.Rows, 5)
	require.Empty(t, page.Next)
}

// The id of a group says nothing to who reads the audit log later.
func TestAChangeOfAGroupIsRecordedWithItsKindAndReason(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := auditedOutbox(t, store, store)
	ctx := outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna"})
	groups, _, err := ob.DeadLetters().Groups(ctx, outbox.DeadFilter{})
	require.NoError(t, err)
	group := outbox.DeadFilter{Group: groups[0].ID}
	_, err = ob.DeadLetters().DeleteAll(ctx, group, 1)
	require.NoError(t, err)
	page, err := ob.Audit(ctx, outbox.AuditQuery{})
	require.NoError(t, err)
	require.Equal(t, "group="+groups[0].ID, page.Rows[0].Target)
	require.Equal(t, groups[0].Kind.String()+": "+groups[0].Reason, page.Rows[0].Reason)
}

func TestAChangeThatCannotBeRecordedSaysSo(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := auditedOutbox(t, unrecorded{store}, store)
	ctx := outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna"})
	const text = "outbox: the change is done, but it is not recorded in the audit log: the disk is full"
	require.EqualError(t, ob.DeadLetters().Replay(ctx, "a"), text)
	_, err := ob.DeadLetters().Delete(ctx, "b")
	require.EqualError(t, err, text)
	n, err := ob.DeadLetters().ReplayAll(ctx, outbox.DeadFilter{}, 0)
	require.ErrorIs(t, err, outbox.ErrNotRecorded)
	require.EqualError(t, err, text)
	require.Equal(t, 1, n)
	_, err = ob.Purge(ctx)
	require.EqualError(t, err, text)
	require.ErrorIs(t, ob.Pause(ctx, outbox.Pause{Kind: outbox.EventKind{EventType: "T"}}), outbox.ErrNotRecorded)
	list, err := ob.Paused(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// forgetful is a store that cannot read pauses, or dead letters behind the first.
type forgetful struct {
	unrecorded
	takes bool
}

func (f forgetful) RecordChange(ctx context.Context, db outbox.DB, e outbox.AuditEntry, keep time.Duration) error {
	if f.takes {
		return f.Store.RecordChange(ctx, db, e, keep)
	}
	return f.unrecorded.RecordChange(ctx, db, e, keep)
}

func (forgetful) Paused(context.Context, outbox.DB) ([]outbox.Pause, error) {
	return nil, errors.New("the database is away")
}

func (f forgetful) QueryDead(ctx context.Context, db outbox.DB, q outbox.DeadRowsQuery) ([]outbox.DeadLetter, error) {
	if q.AfterEventID != "" {
		return nil, errors.New("the database is away")
	}
	return f.Store.QueryDead(ctx, db, q)
}

func TestAnIncompleteChangeIsRecordedAsIncomplete(t *testing.T) {
	t.Parallel()
	for _, takes := range []bool{true, false} {
		store := outboxtest.NewStore()
		auditedOutbox(t, store, store)
		ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: forgetful{unrecorded{store}, takes}, Logger: quiet})
		require.NoError(t, err)
		ctx := outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna"})
		failures := []error{ob.Pause(ctx, outbox.Pause{Kind: outbox.EventKind{EventType: "T"}}), nil}
		var n int
		n, failures[1] = ob.DeadLetters().ReplayAll(ctx, outbox.DeadFilter{}, 2)
		require.Equal(t, 2, n)
		for _, err := range failures {
			require.ErrorContains(t, err, "the database is away")
			require.NotErrorIs(t, err, outbox.ErrNotRecorded, "the change is not complete")
			require.Equal(t, !takes, strings.Contains(err.Error(), "; the audit log has no entry of it: the disk is full"))
		}
		page, err := ob.Audit(ctx, outbox.AuditQuery{})
		require.NoError(t, err)
		if !takes {
			require.Empty(t, page.Rows)
			continue
		}
		require.Len(t, page.Rows, 2)
		require.True(t, page.Rows[0].Incomplete)
		require.Equal(t, "replay", page.Rows[0].Action)
		require.True(t, page.Rows[1].Incomplete, "the pause is stored, although this process could not read it")
		require.Equal(t, "pause", page.Rows[1].Action)
	}
}

func TestAPurgeKeepsTheNewestEntries(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := auditedOutbox(t, store, store)
	const surplus = 1200
	for i := range outbox.AuditLimit + surplus {
		require.NoError(t, store.RecordChange(t.Context(), store.DB(), outbox.AuditEntry{ID: fmt.Sprintf("%06d", i), Action: "pause"}, time.Hour))
	}
	count := func() (n int) {
		rows, err := store.Audit(t.Context(), store.DB(), "", 2*outbox.AuditLimit)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%06d", outbox.AuditLimit+surplus-1), rows[0].ID)
		return len(rows)
	}
	require.Equal(t, outbox.AuditLimit+surplus, count(), "a write deletes no entries")
	_, err := ob.Purge(t.Context())
	require.NoError(t, err)
	require.Equal(t, outbox.AuditLimit, count())
}

func TestAChangeByOtherMeansIsRecordedForAnOperator(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := auditedOutbox(t, store, store)
	entry := outbox.AuditEntry{Action: "purge", Target: "old rows", Count: 7}
	require.NoError(t, ob.RecordChange(t.Context(), entry))
	require.Empty(t, audited(t, ob))
	require.NoError(t, ob.RecordChange(outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna"}), entry))
	require.Equal(t, []string{"anna  purge old rows 7 "}, audited(t, ob))
}
