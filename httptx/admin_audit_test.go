package httptx_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// unrecorded is a store that takes no entry of the audit log.
type unrecorded struct{ *outboxtest.Store }

func (unrecorded) RecordChange(context.Context, outbox.DB, outbox.AuditEntry, time.Duration) error {
	return errors.New("10.1.2.3:5432: the disk is full")
}

// shopOf is an outbox with four dead letters.
func shopOf(t *testing.T, store outbox.Store, memory *outboxtest.Store) *outbox.Outbox {
	t.Helper()
	ob, err := outbox.New(outbox.Config{DB: memory.DB(), Store: store, Logger: slog.New(slog.DiscardHandler), Purge: &outbox.PurgeOptions{}})
	require.NoError(t, err)
	for _, id := range []string{"a", "b", "c", "d"} {
		_, err := ob.Writer().WriteUnmanaged(t.Context(), memory.DB(), []outbox.Envelope{{EventID: id, EventType: "T", Payload: outbox.JSON(1)}})
		require.NoError(t, err)
		row, _ := memory.Row(id)
		row.Status, row.DoneAt = outbox.StatusDead, time.Now().UTC().Add(-time.Hour)
		require.True(t, memory.SetRow(id, row.RawRow))
	}
	return ob
}

func TestAChangeThatIsNotRecordedIsAnsweredAsDone(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	var log bytes.Buffer
	admin := httptx.Admin(shopOf(t, unrecorded{store}, store), httptx.Access{Authorize: operator, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	const warning = `"warning":"the change is done, but it is not recorded in the audit log; the log of this service has the reason"}`
	for _, test := range []struct{ request, want, count string }{
		{"POST /dead-letters/a/replay", `{"replayed":1,` + warning, "count=1"},
		{"DELETE /dead-letters/b?final=true", `{"deleted":1,` + warning, "count=1"},
		{"POST /dead-letters/replay?event_type=T", `{"replayed":2,` + warning, "count=2"},
		{"POST /pause?event_type=T", "{" + warning, "count=0"},
		{"POST /resume?event_type=T", "{" + warning, "count=0"},
		{"POST /purge", `{"deleted":0,` + warning, "count=0"},
	} {
		log.Reset()
		method, path, _ := strings.Cut(test.request, " ")
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		require.Equal(t, http.StatusOK, w.Code, test.request)
		require.Equal(t, test.want, strings.TrimSpace(w.Body.String()), test.request)
		require.Contains(t, log.String(), "the disk is full", test.request)
		require.Contains(t, log.String(), test.count, test.request)
	}
}

func TestAnEntryHasTheAddressWithoutThePort(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := shopOf(t, store, store)
	admin := httptx.Admin(ob, httptx.Access{Authorize: operator, Logger: slog.New(slog.DiscardHandler)})
	for address, want := range map[string]string{"10.0.0.7:4711": "10.0.0.7", "[2001:db8::1]:4711": "2001:db8::1", "@": "@"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/resume?event_type=T", nil)
		r.RemoteAddr = address
		admin.ServeHTTP(httptest.NewRecorder(), r)
		page, err := ob.Audit(t.Context(), outbox.AuditQuery{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, want, page.Rows[0].From)
	}
}
