package echomw_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var stores = map[testdb.Kind]func(...sqlstore.Option) *sqlstore.Store{
	testdb.Postgres: sqlstore.Postgres, testdb.MySQL: sqlstore.MySQL, testdb.SQLite: sqlstore.SQLite,
}

// everything is the access of an operator who may do all.
var everything = echomw.Access{Authorize: func(*http.Request) (string, echomw.Role) {
	return "ada", echomw.ReadPayloads | echomw.Operate
}}

// newGraveyard is an app whose outbox has given these events up, and which
// administers it under /admin.
func newGraveyard(t *testing.T, db *testdb.DB, envs []outbox.Envelope, role ...echomw.Role) (*app, *outbox.Outbox) {
	t.Helper()
	store := stores[db.Kind]()
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	ob := newOutbox(t, outbox.Config{DB: db.DB, Store: store})
	// Another outbox, with another listener, lets them die.
	gravedigger := newOutbox(t, outbox.Config{DB: db.DB, Store: store, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1}}})
	fail := outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
		return errors.New("the carrier is closed")
	})
	kinds := map[[2]string]bool{}
	for _, env := range envs {
		kind := [2]string{string(env.AggregateType), string(env.EventType)}
		if !kinds[kind] {
			require.NoError(t, gravedigger.Register(outbox.On(env.AggregateType, env.EventType, fail)))
		}
		kinds[kind] = true
	}
	require.NoError(t, gravedigger.Start(t.Context()))
	for _, env := range envs { // one by one, so that they die in order
		before, err := ob.DeadLetters().Count(t.Context(), outbox.DeadFilter{})
		require.NoError(t, err)
		require.NoError(t, outbox.InTx(t.Context(), adaptertest.Adapter(t, db.DB, gravedigger.Writer()), func(ctx context.Context) error {
			_, err := gravedigger.Writer().Write(ctx, env)
			return err
		}))
		require.Eventually(t, func() bool {
			n, err := ob.DeadLetters().Count(t.Context(), outbox.DeadFilter{})
			return err == nil && n == before+1
		}, 20*time.Second, time.Millisecond)
	}
	require.NoError(t, gravedigger.Close(t.Context()))
	a := newAppOn(t, &app{db: db.DB})
	access := everything
	if len(role) > 0 {
		access.Authorize = func(*http.Request) (string, echomw.Role) { return "ada", role[0] }
	}
	echomw.Admin(a.Group("/admin"), ob, access)
	return a, ob
}

func lost(id string, eventType outbox.EventType) outbox.Envelope {
	return outbox.Envelope{
		EventID: id, EventType: eventType, AggregateType: "Order", AggregateID: "o-" + id, TenantID: "acme",
		Headers: map[string]string{"source": "api"}, Payload: outbox.JSON(map[string]string{"secret": "of " + id}),
	}
}

// tree is an answer's JSON.
func (a *app) tree(got answer, status int) map[string]any {
	a.t.Helper()
	require.Equal(a.t, status, got.StatusCode, got.body)
	require.Contains(a.t, got.Header.Get("Content-Type"), "application/json")
	require.Equal(a.t, "no-store", got.Header.Get("Cache-Control"))
	var tree map[string]any
	require.NoError(a.t, json.Unmarshal([]byte(got.body), &tree), got.body)
	return tree
}

// ids are those of a listing.
func (a *app) ids(query string) (ids []string) {
	a.t.Helper()
	tree := a.tree(a.send("GET", "/admin/dead-letters"+query), 200)
	for _, letter := range tree["dead_letters"].([]any) {
		ids = append(ids, letter.(map[string]any)["event_id"].(string))
	}
	return ids
}

func TestAdminOnEveryDatabase(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		a, ob := newGraveyard(t, db, []outbox.Envelope{lost("1", "Placed"), lost("2", "Shipped"), lost("3", "Placed")})
		stats := a.tree(a.send("GET", "/admin/stats"), 200)
		require.Equal(t, 3.0, stats["dead"])
		require.Equal(t, 0.0, stats["pending"])
		require.Equal(t, 5.0, stats["poll_interval_seconds"])
		require.Nil(t, stats["last_poll"])

		require.Equal(t, []string{"1", "2", "3"}, a.ids(""))
		require.Equal(t, []string{"1", "3"}, a.ids("?event_type=Placed&aggregate_type=Order"))
		require.Empty(t, a.ids("?aggregate_type=Parcel"))
		all, err := ob.DeadLetters().Find(t.Context(), outbox.DeadQuery{})
		require.NoError(t, err)
		second := url.QueryEscape(all.Rows[1].DiedAt.Format(time.RFC3339Nano))
		require.Equal(t, []string{"2", "3"}, a.ids("?since="+second))
		require.Equal(t, []string{"1"}, a.ids("?until="+second))

		cut := a.tree(a.send("GET", "/admin/dead-letters?limit=2"), 200)
		require.Len(t, cut["dead_letters"], 2)
		require.Equal(t, true, cut["more"])
		whole := a.tree(a.send("GET", "/admin/dead-letters?limit=3"), 200)
		require.Equal(t, false, whole["more"])
		require.NotContains(t, whole, "next")
		require.Equal(t, []string{"3"}, a.ids("?limit=2&after="+url.QueryEscape(cut["next"].(string))))
		require.Empty(t, a.ids("?event_type=Shipped&after="+url.QueryEscape(cut["next"].(string))))

		one := a.tree(a.send("GET", "/admin/dead-letters/2"), 200)
		require.Equal(t, map[string]any{"secret": "of 2"}, one["payload"])
		require.Equal(t, map[string]any{"source": "api"}, one["headers"])
		for name, value := range map[string]any{
			"event_id": "2", "event_type": "Shipped", "aggregate_type": "Order", "aggregate_id": "o-2", "tenant_id": "acme",
			"attempts": 1.0, "last_error": "the carrier is closed",
		} {
			require.Equal(t, value, one[name], name)
		}
		require.WithinDuration(t, time.Now(), all.Rows[1].DiedAt, time.Minute)
		require.Equal(t, all.Rows[1].DiedAt.UTC().Format(time.RFC3339Nano), one["died_at"])

		require.Equal(t, map[string]any{"replayed": 1.0}, a.tree(a.post("/admin/dead-letters/1/replay"), 200))
		require.Equal(t, []string{"2", "3"}, a.ids(""))
		got := a.send("DELETE", "/admin/dead-letters/2?final=true")
		a.wantAnswer(got, 200, `{"deleted":1}`)
		require.Equal(t, []string{"3"}, a.ids(""))
		require.Equal(t, map[string]any{"replayed": 0.0}, a.tree(a.post("/admin/dead-letters/replay?event_type=Shipped"), 200))
		require.Equal(t, map[string]any{"replayed": 1.0}, a.tree(a.post("/admin/dead-letters/replay?event_type=Placed"), 200))
		require.Empty(t, a.ids(""))
		st, err := ob.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2), st.Due, "those that were replayed")

		for _, gone := range []answer{
			a.send("GET", "/admin/dead-letters/1"), a.post("/admin/dead-letters/1/replay"), a.send("DELETE", "/admin/dead-letters/2"),
			a.send("GET", "/admin/dead-letters/"+strings.Repeat("x", 37)), a.send("GET", "/admin/dead-letters/%00"), a.send("GET", "/admin/dead-letters/%FF"),
		} {
			require.Equal(t, map[string]any{"error": "outbox: not found"}, a.tree(gone, 404))
		}
	})
}

func TestListingsHoldNoPayloads(t *testing.T) {
	t.Parallel()
	a, _ := newGraveyard(t, testdb.Open(t, sqliteTarget()), []outbox.Envelope{lost("1", "Placed")})
	got := a.send("GET", "/admin/dead-letters")
	require.NotContains(t, got.body, "secret")
	require.NotContains(t, got.body, "api")
	letter := a.tree(got, 200)["dead_letters"].([]any)[0].(map[string]any)
	require.Equal(t, float64(len(`{"secret":"of 1"}`)), letter["payload_bytes"])
	require.Contains(t, a.send("GET", "/admin/dead-letters/1").body, "secret")

	a, _ = newGraveyard(t, testdb.Open(t, sqliteTarget()), []outbox.Envelope{lost("1", "Placed")}, echomw.Operate)
	got = a.send("GET", "/admin/dead-letters/1")
	require.Equal(t, 200, got.StatusCode)
	require.NotContains(t, got.body, "secret")
	require.NotContains(t, got.body, "api")
}

func TestEventIDsOfEveryForm(t *testing.T) {
	t.Parallel()
	ids := []string{"replay", "a/b", "a%2Fb", "50% off?", "ein schöner Tag", "..", "a;b&c=d+e"}
	var envs []outbox.Envelope
	for _, id := range ids {
		envs = append(envs, lost(id, "Placed"))
	}
	a, _ := newGraveyard(t, testdb.Open(t, sqliteTarget()), envs)
	for _, id := range ids {
		path := "/admin/dead-letters/" + strings.ReplaceAll(url.PathEscape(id), "..", "%2E%2E")
		require.Equal(t, id, a.tree(a.send("GET", path), 200)["event_id"])
		require.Equal(t, map[string]any{"replayed": 1.0}, a.tree(a.post(path+"/replay"), 200), id)
	}
}

func TestBadParametersAreNamed(t *testing.T) {
	t.Parallel()
	a, _ := newGraveyard(t, testdb.Open(t, sqliteTarget()), []outbox.Envelope{lost("1", "Placed")})
	for _, tc := range []struct{ method, path, parameter, problem string }{
		{"GET", "/dead-letters?limit=0", "limit", "must be a number from 1 to 200"},
		{"GET", "/dead-letters?limit=201", "limit", "must be a number from 1 to 200"},
		{"GET", "/dead-letters?limit=ten", "limit", "must be a number from 1 to 200"},
		{"GET", "/dead-letters?limit=99999999999999999999", "limit", "must be a number from 1 to 200"},
		{"GET", "/dead-letters?limit=1&limit=2", "limit", "more than once"},
		{"GET", "/dead-letters?after=1", "after", "field next"},
		{"GET", "/dead-letters?after=2026-01-01T00:00:00Z,", "after", "field next"},
		{"POST", "/dead-letters/replay?after=2026-01-01T00:00:00Z,1", "after", "unknown"},
		{"GET", "/dead-letters?since=yesterday", "since", "must be a time like"},
		{"GET", "/dead-letters?since=2026-01-01T00:00:00+01:00", "since", "%2B"},
		{"GET", "/dead-letters?until=0001-01-01T00:00:00Z", "until", "year"},
		{"GET", "/dead-letters?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "until", "not after since"},
		{"GET", "/dead-letters?event_type=%00", "event_type", "NUL"},
		{"GET", "/dead-letters?event_type=%FF", "event_type", "UTF-8"},
		{"GET", "/dead-letters?event_type=%zz", "query", "malformed"},
		{"GET", "/dead-letters/1?x=1", "x", "unknown"},
		{"GET", "/stats?limit=1", "limit", "unknown"},
		{"GET", "/dead-letters?tenant_id=" + strings.Repeat("x", 65), "tenant_id", "65 characters long"},
		{"GET", "/events?aggregate_id=" + strings.Repeat("x", 129), "aggregate_id", "129 characters long"},
		{"GET", "/events?status=OLD", "status", "must be NEW"},
		{"GET", "/events?status=DUE,NEW", "status", "one of DUE, DELAYED and LEASED"},
		{"GET", "/events?id_prefix=" + strings.Repeat("x", 37), "id_prefix", "37 characters long"},
		{"GET", "/events?error_text=%00", "error_text", "NUL"},
		{"GET", "/events?after=x", "after", ""},
		{"GET", "/dead-letters/groups?limit=1", "limit", "unknown"},
		{"DELETE", "/dead-letters", "event_type", "or another filter is required"},
		{"POST", "/dead-letters/replay?event_typ=Placed", "event_typ", "known are event_type, aggregate_type, aggregate_id, tenant_id, group, since, until, pretty"},
		{"POST", "/dead-letters/replay?limit=1", "limit", "unknown"},
		{"POST", "/dead-letters/replay?event_type=", "event_type", "is empty"},
		{"POST", "/dead-letters/1/replay?all=true", "all", "unknown"},
		{"DELETE", "/dead-letters/1?force", "force", "unknown"},
	} {
		tree := a.tree(a.send(tc.method, "/admin"+tc.path), 400)
		require.Equal(t, tc.parameter, tree["parameter"], tc.path)
		require.Contains(t, tree["error"], tc.problem, tc.path)
		require.Contains(t, tree["error"], `parameter "`+tc.parameter+`" `, "quoted once")
	}
	a.start()
	for _, body := range []io.Reader{strings.NewReader(`{"event_type":"Shipped"}`), io.MultiReader(strings.NewReader("event_type=Shipped"))} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.server.URL+"/admin/dead-letters/replay", body)
		require.NoError(t, err)
		response, err := a.client.Do(request)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, 400, response.StatusCode)
		require.Contains(t, string(text), "parameters go into the query")
	}
	require.Equal(t, []string{"1"}, a.ids("?pretty"), "nothing was replayed or deleted")
}

func TestAdminBehindTheUsersAuthentication(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	ob := newOutbox(t, outbox.Config{DB: store.DB(), Store: store})
	a := newAppOn(t, &app{})
	echomw.Admin(a.Group("/admin", middleware.BasicAuth(func(_, password string, _ echo.Context) (bool, error) {
		return password == "right", nil
	})), ob, echomw.Access{Authorize: func(*http.Request) (string, echomw.Role) { return "ada", echomw.View }})
	for _, route := range a.Routes() {
		if !strings.HasPrefix(route.Path, "/admin/") || route.Method == echo.RouteNotFound {
			continue
		}
		path := strings.ReplaceAll(route.Path, ":id", "1")
		require.Equal(t, 401, a.send(route.Method, path).StatusCode, "%s %s", route.Method, path)
		require.NotEqual(t, 401, a.send(route.Method, path, "Authorization", "Basic OnJpZ2h0").StatusCode, path)
	}
}

// mourning is a store that fails.
type mourning struct{ *outboxtest.Store }

func (mourning) Stats(context.Context, outbox.DB, time.Time, []outbox.EventKind) (outbox.StoreStats, error) {
	return outbox.StoreStats{}, errTest
}

func (mourning) QueryDead(context.Context, outbox.DB, outbox.DeadRowsQuery) ([]outbox.DeadLetter, error) {
	return nil, errTest
}

func TestWhatTheDatabaseRefusesIsAnError(t *testing.T) {
	t.Parallel()
	store := mourning{outboxtest.NewStore()}
	ob := newOutbox(t, outbox.Config{DB: store.DB(), Store: store})
	a := newAppOn(t, &app{})
	echomw.Admin(a.Group("/admin"), ob, everything)
	for _, got := range []answer{a.send("GET", "/admin/stats"), a.send("GET", "/admin/dead-letters"), a.post("/admin/dead-letters/replay")} {
		text := fmt.Sprint(a.tree(got, 500)["error"])
		require.NotContains(t, text, errTest.Error())
		require.Contains(t, text, "the log of this service has its text, with the id ")
	}
	require.Panics(t, func() { echomw.Admin(nil, ob, echomw.Access{}) })
	require.Panics(t, func() { echomw.Admin(a.Group("/x"), nil, echomw.Access{}) })
}
