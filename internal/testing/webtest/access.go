package webtest

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// everything is the access of an operator who may do everything.
var everything = httptx.Access{
	Logger:    slog.New(slog.DiscardHandler),
	Authorize: func(*http.Request) (string, httptx.Role) { return "ada", httptx.ReadPayloads | httptx.Operate },
}

// entries collects the entries that Access.Audit gets.
type entries struct {
	mu   sync.Mutex
	list []httptx.AuditEntry
}

func (e *entries) add(_ context.Context, entry httptx.AuditEntry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, entry)
}

func (e *entries) take() []httptx.AuditEntry {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	return list
}

// The role of each request decides; changes are recorded; another site's page changes nothing.
func roles(t *testing.T, fw Framework) {
	db := testdb.Open(t, sqlite())
	ob := newOutbox(t, db)
	var log bytes.Buffer
	var audited entries
	access := httptx.Access{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Audit: audited.add,
		Authorize: func(r *http.Request) (string, httptx.Role) {
			role := map[string]httptx.Role{"view": httptx.View, "read": httptx.ReadPayloads, "operate": httptx.Operate}[r.Header.Get("Role")]
			return "ada", role
		},
	}
	server := serve(t, "HTTP1", fw.New(t, App{Outbox: ob, Access: access}))
	changes := []string{"POST /dead-letters/replay", "POST /dead-letters/1/replay", "DELETE /dead-letters/1", "DELETE /dead-letters?event_type=x", "POST /pause?event_type=x", "POST /resume?event_type=x", "POST /purge", "POST /wake"}
	send := func(method, path, role string, header ...string) answer {
		request := server.request(method, "/admin"+path, nil)
		request.Header.Set("Role", role)
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		return server.do(request)
	}
	require.Equal(t, 403, send("GET", "/stats", "none").StatusCode)
	require.Equal(t, 200, send("GET", "/stats", "operate").StatusCode)
	for _, change := range changes {
		method, path, _ := strings.Cut(change, " ")
		for _, role := range []string{"none", "view", "read"} {
			require.Equal(t, 403, send(method, path, role).StatusCode, "%s as %s", change, role)
		}
		for _, site := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://elsewhere.example"}} {
			got := send(method, path, "operate", site...)
			require.Equal(t, 403, got.StatusCode, change)
			require.Contains(t, got.body, "another site")
		}
	}
	require.Empty(t, audited.take(), "nothing was changed")
	require.Empty(t, log.String())

	require.Equal(t, 204, send("POST", "/pause?event_type=y", "operate", "Sec-Fetch-Site", "same-origin").StatusCode)
	require.Equal(t, 204, send("POST", "/wake", "operate").StatusCode)
	for _, got := range []answer{send("GET", "/stats", "view"), send("GET", "/stats", "none"), send("POST", "/wake", "operate")} {
		require.Equal(t, "nosniff", got.Header.Get("X-Content-Type-Options"))
		audited.take()
	}
	log.Reset()
	require.Equal(t, 204, send("POST", "/pause?event_type=x", "operate").StatusCode)
	require.Equal(t, 204, send("POST", "/wake", "operate").StatusCode)
	for _, long := range []string{"?" + strings.Repeat("x", 10_000) + "=1", "?limit=" + strings.Repeat("x", 10_000), "?after=" + strings.Repeat("x", 10_000), "?since=" + strings.Repeat("x", 10_000)} {
		got := send("GET", "/dead-letters"+long, "view")
		require.Equal(t, 400, got.StatusCode)
		require.Less(t, len(got.body), 600, "an answer echoes little")
	}
	require.Equal(t, 200, send("POST", "/dead-letters/replay?tenant_id=secret-tenant&aggregate_id=a%20b", "operate").StatusCode)
	require.Equal(t, 404, send("DELETE", "/dead-letters/none", "operate").StatusCode)
	require.Equal(t, 409, send("POST", "/purge", "operate").StatusCode, "there is no Config.Purge")
	got := audited.take()
	require.Len(t, got, 5)
	require.Equal(t, httptx.AuditEntry{User: "ada", Action: "pause", Target: "__GLOBAL__/x"}, got[0])
	require.Equal(t, httptx.AuditEntry{User: "ada", Action: "wake", Target: "the poller"}, got[1])
	require.Equal(t, httptx.AuditEntry{User: "ada", Action: "replay", Target: "aggregate_id=a+b&tenant_id=…"}, got[2])
	require.Equal(t, "event_id=none", got[3].Target)
	require.ErrorIs(t, got[3].Err, outbox.ErrNotFound)
	require.ErrorContains(t, got[4].Err, "Config.Purge")
	require.Equal(t, 5, bytes.Count(log.Bytes(), []byte("\n")), "one line for each change")
	require.Contains(t, log.String(), "level=INFO msg=\"outbox: an operator's change\" user=ada action=pause target=__GLOBAL__/x count=0")
	require.NotContains(t, log.String(), "secret-tenant")
	missing := send("DELETE", "/dead-letters", "operate")
	require.Equal(t, 400, missing.StatusCode, "a deletion of all needs a filter")
	long := send("POST", "/dead-letters/replay?tenant_id="+strings.Repeat("x", 65), "operate")
	require.Equal(t, 400, long.StatusCode)
	require.Empty(t, audited.take(), "a filter that is refused is no change")

	plain := serve(t, "HTTP1", fw.New(t, App{Outbox: ob}))
	for _, path := range []string{"/stats", "/nodes", "/events", "/events/1", "/dead-letters", "/dead-letters/1", "/dead-letters/groups", "/pauses"} {
		plain.send(http.MethodGet, "/admin"+path).is(t, 403, `{"error":"Access.Authorize is not set, so no user has a role"}`)
	}
	require.Equal(t, 403, plain.post("/admin/dead-letters/replay").StatusCode)
}
