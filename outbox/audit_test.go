package outbox_test

import (
	"context"
	"errors"
	"fmt"
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
	require.NoError(t, ob.Resume(ctx, kind))
	require.NoError(t, letters.Replay(ctx, "a"))
	require.ErrorIs(t, letters.Replay(ctx, "a"), outbox.ErrNotFound)
	_, err := letters.ReplayAll(ctx, outbox.DeadFilter{EventIDs: []string{"b"}, TenantID: "secret"}, 0)
	require.NoError(t, err)
	require.NoError(t, letters.Delete(ctx, "c"))
	_, err = letters.DeleteAll(ctx, outbox.DeadFilter{}, 0)
	require.NoError(t, err)
	_, err = ob.Purge(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{
		"anna  10.0.0.7 purge old rows 0 ", "anna  10.0.0.7 delete event_id=c 1 ",
		"anna  10.0.0.7 replay tenant_id=…&event_id=b 1 ", "anna  10.0.0.7 replay event_id=a 1 ",
		"anna  10.0.0.7 resume __GLOBAL__/T 0 ", "anna  10.0.0.7 pause __GLOBAL__/T 0 down",
	}, audited(t, ob))
	page, err := ob.Audit(ctx, outbox.AuditQuery{Limit: 2})
	require.NoError(t, err)
	require.Len(t, page.Rows, 2)
	page, err = ob.Audit(ctx, outbox.AuditQuery{Limit: 5, After: page.Next})
	require.NoError(t, err)
	require.Len(t, page.Rows, 4)
	require.Empty(t, page.Next)
}

func TestAChangeThatCannotBeRecordedSaysSo(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := auditedOutbox(t, unrecorded{store}, store)
	ctx := outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna"})
	n, err := ob.DeadLetters().ReplayAll(ctx, outbox.DeadFilter{}, 0)
	require.ErrorIs(t, err, outbox.ErrNotRecorded)
	require.ErrorContains(t, err, "the disk is full")
	require.Equal(t, 3, n)
	require.ErrorIs(t, ob.Pause(ctx, outbox.Pause{Kind: outbox.EventKind{EventType: "T"}}), outbox.ErrNotRecorded)
	list, err := ob.Paused(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
}
