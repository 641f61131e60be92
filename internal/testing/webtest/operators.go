package webtest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func newOutbox(t *testing.T, db *testdb.DB) *outbox.Outbox {
	t.Helper()
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	ob, err := outbox.New(outbox.Config{
		DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler),
		Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ob.Close(context.Background()) }) //nolint:usetesting // t.Context has ended by then.
	return ob
}

// The health check and the endpoints commit the request's transaction before they run: a pool of a
// single connection would keep them waiting.
func operators(t *testing.T, fw Framework) {
	db := testdb.Open(t, sqlite())
	db.SetMaxOpenConns(1)
	ob := newOutbox(t, db)
	config := httptx.TransactionConfig{Transactor: adaptertest.Adapter(t, db.DB, ob.Writer()), ReadOnlyMethods: []string{}}
	server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Outbox: ob, Access: everything}))
	got := server.send(http.MethodGet, "/healthz")
	require.Equal(t, 503, got.StatusCode, got.body)
	require.Contains(t, got.body, "the poller has not read the table yet")
	require.NotContains(t, got.body, "verdict")
	require.Equal(t, "application/json", got.Header.Get("Content-Type"))
	got = server.send(http.MethodGet, "/healthz?verbose")
	require.Equal(t, 503, got.StatusCode, got.body)
	require.Contains(t, got.body, `"verdict":{"level":"well","summary":"Well: no event is due.","reasons":[{"subject":"backlog","text":"no event is due"}]}`)
	server.post("/admin/dead-letters/replay").is(t, 200, `{"replayed":0}`)
	server.post("/admin/dead-letters/replay?event_typ=x").is(t, 400,
		`{"error":"parameter \"event_typ\" is unknown; known are event_type, aggregate_type, aggregate_id, tenant_id, group, since, until, pretty","parameter":"event_typ"}`)
	server.send(http.MethodGet, "/admin/dead-letters").is(t, 200, `{"dead_letters":[],"more":false}`)
	server.send(http.MethodDelete, "/admin/dead-letters/1").is(t, 404, `{"error":"outbox: not found"}`)
	server.send(http.MethodDelete, "/admin/dead-letters/1?final=true").is(t, 404, `{"error":"outbox: not found"}`)
	server.send(http.MethodDelete, "/admin/dead-letters/1?final=yes").is(t, 400, `{"error":"parameter \"final\" must be true or false","parameter":"final"}`)
	server.post("/admin/deletions/01ARZ3NDEKTSV4RRFFQ69G5FAV/restore").is(t, 404, `{"error":"outbox: not found"}`)
	require.Equal(t, "no-store", server.send(http.MethodGet, "/admin/stats").Header.Get("Cache-Control"))
	pauses(t, server)
	server.send(http.MethodGet, "/admin/shares").is(t, 200, `{"kinds":[]}`)
	entries := server.send(http.MethodGet, "/admin/audit?limit=2").body
	require.Regexp(t, `^{"entries":\[{"id":"[^"]+","at":"20[^"]+","by":"[^"]+","from":"[^"]+","action":"resume","target":"Order/Paid","count":0},`, entries)
	require.Contains(t, entries, `"next":"`)
	require.Equal(t, 400, server.send(http.MethodGet, "/admin/audit?after="+strings.Repeat("a", 40)).StatusCode)
}

// pauses pauses kinds of events, lists them, and resumes a kind.
func pauses(t *testing.T, server *server) {
	t.Helper()
	server.send(http.MethodGet, "/admin/pauses").is(t, 200, `{"pauses":[]}`)
	server.post("/admin/pause?event_type=Paid&aggregate_type=Order").is(t, 204, "")
	server.post("/admin/pause?event_type=Paid&aggregate_type=Order").is(t, 204, "")
	server.post("/admin/pause?event_type=a%26b&for=90m&reason=provider+down").is(t, 204, "")
	for _, path := range []string{"/admin/pauses", "/admin/stats"} {
		got := server.send(http.MethodGet, path)
		require.Contains(t, got.body, `{"event_type":"Paid","aggregate_type":"Order","since":"20`, path)
		require.Contains(t, got.body, `{"event_type":"a\u0026b","aggregate_type":"__GLOBAL__","since":"20`, path)
	}
	require.Contains(t, server.send(http.MethodGet, "/admin/stats").body, `{"verdict":{"level":"attention","summary":"In time, but look: 2 kinds paused."`)
	paused := server.send(http.MethodGet, "/admin/pauses").body
	require.Contains(t, paused, `"reason":"provider down"`)
	require.Regexp(t, `"event_type":"a.u0026b"[^}]*"until":"20`, paused)
	server.post("/admin/resume?event_type=a%26b").is(t, 204, "")
	server.post("/admin/resume?event_type=a%26b").is(t, 204, "")
	require.NotContains(t, server.send(http.MethodGet, "/admin/pauses").body, "GLOBAL")
	server.post("/admin/resume?event_type=Paid&aggregate_type=Order").is(t, 204, "")
	server.send(http.MethodGet, "/admin/pauses").is(t, 200, `{"pauses":[]}`)

	server.post("/admin/pause").is(t, 400, `{"error":"parameter \"event_type\" is required","parameter":"event_type"}`)
	for _, blank := range []string{"event_type=%20", "event_type=Paid%20", "event_type=Paid&aggregate_type=%20"} {
		got := server.post("/admin/pause?" + blank)
		require.Equal(t, 400, got.StatusCode, blank)
		require.Contains(t, got.body, "is blank, or begins or ends with white space", blank)
	}
	server.send(http.MethodGet, "/admin/pauses").is(t, 200, `{"pauses":[]}`)
	server.post("/admin/pause?event_type=Paid&since=x").is(t, 400,
		`{"error":"parameter \"since\" is unknown; known are for, reason, aggregate_id, event_type, aggregate_type, pretty","parameter":"since"}`)
	for text, problem := range map[string]string{
		"for=500ms": "is \\\"500ms\\\"; it must be a duration from 1s", "for=-1h": "it must be a duration from 1s", "for=soon": "it must be a duration from 1s",
		"reason=a%0Ab": "holds the control character U+000A", "reason=" + strings.Repeat("a", 501): "is 501 characters long; the limit is 500",
	} {
		got := server.post("/admin/pause?event_type=Paid&" + text)
		require.Equal(t, 400, got.StatusCode, text)
		require.Contains(t, got.body, problem)
		name, _, _ := strings.Cut(text, "=")
		require.Contains(t, got.body, `"parameter":"`+name+`"`)
	}
	server.send(http.MethodGet, "/admin/pauses").is(t, 200, `{"pauses":[]}`)
	server.post("/admin/resume?event_type="+strings.Repeat("a", 129)).is(t, 400,
		`{"error":"parameter \"event_type\" is 129 characters long; the limit is 128","parameter":"event_type"}`)
}

// A dead letter of one of several listeners has the listener's name, and is replayed by its own id.
func deadListener(t *testing.T, fw Framework) {
	db := testdb.Open(t, sqlite())
	ob := newOutbox(t, db)
	fails := outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return errTest })
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", fails, outbox.Named("mail"))))
	adapter := adaptertest.Adapter(t, db.DB, ob.Writer())
	require.NoError(t, ob.Start(t.Context()))
	env := adaptertest.Event()
	env.EventID, env.Headers = "o-1", map[string]string{"k": "v"}
	require.NoError(t, outbox.InTx(t.Context(), adapter, func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, env)
		return err
	}))
	var letters outbox.Page[outbox.DeadLetter]
	require.Eventually(t, func() bool {
		var err error
		letters, err = ob.DeadLetters().Find(t.Context(), outbox.DeadQuery{})
		return err == nil && len(letters.Rows) == 1
	}, 20*time.Second, time.Millisecond)
	require.NoError(t, ob.Close(t.Context()))
	config := httptx.TransactionConfig{Transactor: adapter}
	server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Outbox: ob, Access: everything}))
	path := "/admin/dead-letters/" + letters.Rows[0].EventID
	var letter struct {
		Listener string            `json:"listener"`
		Original string            `json:"original_id"`
		Headers  map[string]string `json:"headers"`
	}
	got := server.send(http.MethodGet, path)
	require.NoError(t, json.Unmarshal([]byte(got.body), &letter), got.body)
	require.Equal(t, "mail", letter.Listener)
	require.Equal(t, "o-1", letter.Original)
	require.Equal(t, map[string]string{"k": "v"}, letter.Headers)
	restored(t, server, letters.Rows[0].EventID)
	server.post(path+"/replay").is(t, 200, `{"replayed":1}`)
}

// restored deletes a dead letter, and undoes the deletion.
func restored(t *testing.T, server *server, id string) {
	t.Helper()
	for _, path := range []string{"/admin/dead-letters/" + id, "/admin/dead-letters?event_type=OrderPlaced"} {
		got := server.send(http.MethodDelete, path)
		var answer struct {
			Deleted    int    `json:"deleted"`
			DeletionID string `json:"deletion_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(got.body), &answer), got.body)
		require.Equal(t, 1, answer.Deleted)
		event := server.send(http.MethodGet, "/admin/events/"+id).body
		require.Contains(t, event, `"status":"DELETED"`)
		require.Contains(t, event, `"deletion_id":"`+answer.DeletionID+`","died_at":"20`)
		require.Contains(t, server.send(http.MethodGet, "/admin/events?deletion_id="+answer.DeletionID).body, id)
		require.Contains(t, server.send(http.MethodGet, "/admin/audit?limit=1").body, `"deletion_id":"`+answer.DeletionID+`"`)
		restore := "/admin/deletions/" + answer.DeletionID + "/restore"
		server.post(restore).is(t, 200, `{"restored":1}`)
		server.post(restore).is(t, 404, `{"error":"outbox: not found"}`)
	}
	require.Equal(t, 400, server.send(http.MethodGet, "/admin/events?deletion_id=x").StatusCode)
}

// Every event id has a path.
func eventIDs(t *testing.T, fw Framework) {
	db := testdb.Open(t, sqlite())
	ob := newOutbox(t, db)
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return errTest }))))
	adapter := adaptertest.Adapter(t, db.DB, ob.Writer())
	ids := []string{"replay", "a/b", "a%2Fb", "50% off?", "ein schöner Tag", "..", "a;b&c=d+e"}
	require.NoError(t, ob.Start(t.Context()))
	for _, id := range ids {
		env := adaptertest.Event()
		env.EventID = id
		require.NoError(t, outbox.InTx(t.Context(), adapter, func(ctx context.Context) error {
			_, err := ob.Writer().Write(ctx, env)
			return err
		}))
	}
	require.Eventually(t, func() bool {
		n, err := ob.DeadLetters().Count(t.Context(), outbox.DeadFilter{})
		return err == nil && int(n) == len(ids)
	}, 20*time.Second, time.Millisecond)
	require.NoError(t, ob.Close(t.Context()))
	config := httptx.TransactionConfig{Transactor: adapter}
	server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Outbox: ob, Access: everything}))
	for _, id := range ids {
		path := "/admin/dead-letters/" + strings.ReplaceAll(url.PathEscape(id), "..", "%2E%2E")
		got := server.send(http.MethodGet, path)
		var letter struct {
			ID string `json:"event_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(got.body), &letter), got.body)
		require.Equal(t, id, letter.ID)
		server.post(path+"/replay").is(t, 200, `{"replayed":1}`)
		server.post(path+"/replay").is(t, 404, `{"error":"outbox: not found"}`)
	}
	request := server.request(http.MethodPost, "/admin/dead-letters/replay", io.MultiReader(strings.NewReader("event_type=x")))
	got := server.do(request)
	require.Equal(t, 400, got.StatusCode)
	require.Contains(t, got.body, "parameters go into the query")
}
