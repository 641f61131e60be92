package dashboard_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var everyPage = []string{"/shop/", "/shop/events", "/shop/event?id=refused-0", "/shop/dead", "/shop/letters", "/shop/steering"}

func TestEachPageShowsWhatItIsFor(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	require.NoError(t, s.outbox.Pause(t.Context(), outbox.Pause{Kind: outbox.EventKind{EventType: "OrderPaid", AggregateType: "Order"}}))

	unheard := make([]outbox.EventKind, 5)
	for i := range unheard {
		unheard[i] = outbox.EventKind{AggregateType: "Order", EventType: outbox.EventType(fmt.Sprintf("Lost<%d>", i))}
	}
	require.NoError(t, sqlstore.SQLite().Announce(t.Context(), s.db.DB, outbox.Node{Owner: "api-1", Mode: "multi-node", Unheard: unheard}, time.Hour))
	require.NoError(t, sqlstore.SQLite().Announce(t.Context(), s.db.DB, outbox.Node{Owner: "log-1", Mode: "log", LastPoll: time.Now(), Log: &outbox.LogLag{Behind: 12_345, Kept: 2e9, Left: -1}}, time.Hour))

	overview := s.get("/shop/")
	for _, want := range []string{
		`<dd data-text="due">1</dd>`, `<dd data-text="delayed">2</dd>`, `<dd data-text="dead" class="bad">5</dd>`, `<dd data-text="rate">30</dd>`,
		"Order / OrderPaid, since", "shop-2", `<a href="./">Reload</a>`, "has leases, but does not report (older version?)",
		`<div id="verdict" class="verdict" data-level="attention" data-summary="In time, but look: 5 kinds without a listener in any process, Order/OrderPaid paused, 5 events are dead."><strong>In time, but look:</strong> ` +
			`<ul><li><a href="#nodes">5 kinds without a listener in any process</a></li><li><a href="#paused">Order/OrderPaid paused</a></li><li><a href="dead">5 events are dead</a></li></ul></div>`,
		`<td data-label="Mode">log, 12.3 kB behind, keeps 2 GB</td>`,
		"without a listener here: Order / Lost&lt;0&gt;, Order / Lost&lt;1&gt;, Order / Lost&lt;2&gt;, 5 kinds in all",
	} {
		require.Contains(t, overview, want)
	}
	events := s.get("/shop/events?status=WAITING")
	require.Less(t, strings.Index(events, "waiting"), strings.Index(events, "delayed"), "by the time when they become due")
	require.NotContains(t, events, "refused-0")
	require.Contains(t, s.get("/shop/events?aggregate_id=1007&event_type=&tenant_id=acme"), "retried")
	require.Contains(t, s.get("/shop/events?tenant_id=nobody"), "There is no such event.")
	require.Equal(t, "event?id=refused-0", s.send(http.MethodGet, "/shop/events?id=refused-0", nil).Header.Get("Location"))

	retried := s.get("/shop/event?id=retried")
	for _, want := range []string{"Written", "3 failed attempts", "mail server 10.0.0.7:25 does not answer", "Next try", "in 3"} {
		require.Contains(t, retried, want)
	}
	require.Contains(t, s.get("/shop/event?id=delayed"), "(delayed, deferred or replayed)")
	require.Contains(t, s.get("/shop/event?id=waiting"), "by shop-2/18")
	require.Contains(t, s.get("/shop/event?id=done-10"), "15 ms after it was due")
	dead := s.get("/shop/event?id=refused-0")
	for _, want := range []string{"payload-secret", "header-secret", "Replay …"} {
		require.Contains(t, dead, want)
	}

	groups := s.get("/shop/dead")
	require.Equal(t, 2, strings.Count(groups, "Replay …"), "a group for each reason")
	require.Less(t, strings.Index(groups, "warehouse refused order"), strings.Index(groups, "mail server"), "the largest first")
	require.Contains(t, s.get("/shop/letters?tenant_id=globex"), "unmailed-1")
	require.NotContains(t, s.get("/shop/letters?tenant_id=globex"), "refused-0")
	require.Contains(t, s.get("/shop/steering"), "Resume …</button>")
}

func TestNoDeadEventIsNoAlarm(t *testing.T) {
	t.Parallel()
	overview := newSite(t, nil).get("/shop/")
	require.Contains(t, overview, `<dd data-text="dead">0</dd>`)
	require.Contains(t, overview, `data-level="well" data-summary="Well: no event is due."><strong>Well:</strong> <ul><li><a href="events?status=DUE">no event is due</a></li></ul></div>`)
}

func TestMaxDueAgeSaysWhatIsLate(t *testing.T) {
	t.Parallel()
	rows := dashtest.Shop(time.Now().Add(-time.Minute))
	require.Contains(t, newSite(t, rows).get("/shop/"), `data-level="attention"`)
	bound := func(c *dashboard.Config) { c.MaxDueAge = time.Minute - time.Second }
	require.Contains(t, newSite(t, rows, bound).get("/shop/"), `data-level="late" data-summary="Late by `)
}

func TestAKindIsLateByItsOwnLimitAndNotWhilePaused(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now().Add(-time.Minute)), func(c *dashboard.Config) { c.MaxDueAge = time.Minute - time.Second })
	limit := func(d time.Duration) {
		t.Helper()
		require.NoError(t, sqlstore.SQLite().Announce(t.Context(), s.db.DB, outbox.Node{Owner: "api-1", Mode: "multi-node", MaxDueAges: []outbox.KindAge{{Kind: orderPlaced, MaxDueAge: d}}}, time.Hour))
		s.page.Forget()
	}
	limit(24 * time.Hour)
	require.Contains(t, s.get("/shop/"), `data-level="attention"`)
	limit(5 * time.Second)
	require.Regexp(t, `data-level="late" [^>]+><strong>Late by [^:]+:</strong> <ul><li><a href="events\?status=DUE">1 event of Order/OrderPlaced due for more than 5 s</a>`, s.get("/shop/"))
	require.Contains(t, s.get("/shop/"), `<dd data-text="duepaused">0</dd>`)
	require.NoError(t, s.outbox.Pause(t.Context(), outbox.Pause{Kind: orderPlaced}))
	s.page.Forget()
	paused := s.get("/shop/")
	require.Contains(t, paused, `data-level="attention"`)
	require.Contains(t, paused, `<a href="#paused">Order/OrderPlaced paused (1 event due)</a>`)
	require.Contains(t, paused, `<dd data-text="duepaused">1</dd>`)
}

func TestPagesFollowEachOther(t *testing.T) {
	t.Parallel()
	var rows []dashtest.Row
	for i := range 120 {
		id := string(rune('a'+i/26)) + string(rune('a'+i%26))
		rows = append(rows, dashtest.Row{ID: id, Type: "T", Created: time.Now(), Ended: time.Now().Add(time.Duration(i) * time.Millisecond), Status: outbox.StatusDead, Error: "x"})
	}
	s := newSite(t, rows)
	for _, start := range []string{"letters?event_type=T", "events?status=DEAD", "events"} {
		seen, pages := 0, 0
		for next := start; next != ""; pages++ {
			body := s.get("/shop/" + next)
			seen += strings.Count(body, `<th scope="row"`)
			_, after, more := strings.Cut(body, `<p><a href="`)
			next = ""
			if more {
				next, _, _ = strings.Cut(after, `"`)
				next = strings.ReplaceAll(next, "&amp;", "&")
			}
		}
		require.Equal(t, []int{120, 3}, []int{seen, pages}, start)
	}
}

func TestASearchSaysThatItWasPartial(t *testing.T) {
	t.Parallel()
	rows := []dashtest.Row{{ID: "0-last", Type: "Rare", Created: time.Now(), Status: outbox.StatusDone, Ended: time.Now().Add(-time.Hour)}}
	for i := range outbox.SearchLimit + 10 {
		rows = append(rows, dashtest.Row{ID: "x" + time.Duration(i).String(), Type: "T", Created: time.Now(), Ended: time.Now(), Status: outbox.StatusDone})
	}
	s := newSite(t, rows)
	body := s.get("/shop/events?event_type=Rare")
	require.Contains(t, body, "Nothing among these 2\u202f000 rows; there are more to search.")
	_, after, _ := strings.Cut(body, `<p><a href="`)
	next, _, _ := strings.Cut(after, `"`)
	require.Contains(t, s.get("/shop/"+strings.ReplaceAll(next, "&amp;", "&")), "0-last")
}

func TestRolesDecideWhatIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	for _, tc := range []struct {
		role                  httptx.Role
		status                int
		payloads, forms, none bool
	}{
		{role: 0, status: 403},
		{role: httptx.View, status: 200},
		{role: httptx.ReadPayloads, status: 200, payloads: true},
		{role: httptx.Operate, status: 200, forms: true},
	} {
		s.role = tc.role
		for _, path := range everyPage {
			body := s.get(path, tc.status)
			require.Equal(t, tc.payloads && strings.Contains(path, "event?"), strings.Contains(body, "payload-secret"), path)
			require.Equal(t, tc.payloads && strings.Contains(path, "event?"), strings.Contains(body, "header-secret"), path)
			if !tc.forms {
				require.NotContains(t, body, `method="post"`, path)
			}
		}
		if tc.forms {
			require.Contains(t, s.get("/shop/dead"), `method="post"`)
		}
	}
	s.role = 0
	require.NotContains(t, s.get("/shop/", 403), "retried")
	require.NotContains(t, s.get("/shop/", 403), "shop", "no names of outboxes")
	require.NotContains(t, s.get("/shop/", 403), "(read-only)", "nothing may be read")
	require.Contains(t, s.get("/-/style.css"), "color-scheme", "the refusal has its style")
	require.Equal(t, 403, s.send(http.MethodGet, "/shop/live", nil).StatusCode)

	plain := newSite(t, dashtest.Shop(time.Now()), func(c *dashboard.Config) { c.Access.Authorize = nil })
	for _, path := range append(everyPage, "/shop/live", "/shop/payload?id=refused-0", "/") {
		refused := plain.get(path, 403)
		require.Contains(t, refused, "No access", path)
		require.NotContains(t, refused, "refused-0", path)
	}
}

func TestEveryAnswerIsLockedDown(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	for _, path := range append(everyPage, "/", "/-/style.css", "/-/page.js", "/-/icon.svg", "/shop/none", "/shop/event?id=none", "/shop/event?x=y") {
		got := s.send(http.MethodGet, path, nil)
		require.Contains(t, got.Header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'self'; script-src 'self'", path)
		require.Contains(t, got.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		require.Equal(t, "nosniff", got.Header.Get("X-Content-Type-Options"), path)
		require.Equal(t, "no-referrer", got.Header.Get("Referrer-Policy"), path)
		require.Equal(t, "no-store", got.Header.Get("Cache-Control"), path)
		require.Empty(t, got.Header.Values("Set-Cookie"), path)
		for _, inline := range []string{"<style", " style=", "<script>", " onclick=", "http://", "https://"} {
			if got.Header.Get("Content-Type") == "text/html; charset=utf-8" {
				require.NotContains(t, got.body, inline, path)
			}
		}
	}
}

func TestHostileTextsAreText(t *testing.T) {
	t.Parallel()
	rows := dashtest.Hostile(time.Now())
	s := newSite(t, rows)
	paths := []string{"/shop/", "/shop/events", "/shop/events?status=DEAD", "/shop/dead", "/shop/letters"}
	for _, row := range rows {
		paths = append(paths, "/shop/event?id="+escape(row.ID), "/shop/events?event_type="+escape(row.Type))
	}
	for _, path := range paths {
		body := s.get(path)
		for _, tag := range []string{"<script>", "<img", "<svg onload", "</textarea>", `href="javascript`} {
			require.NotContains(t, body, tag, path)
		}
		shown := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, "")
		require.NotRegexp(t, "[\u202e\u0001]", shown, path)
	}
}

func TestUnderAnyPrefixAndRouter(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	mux := http.NewServeMux()
	mux.Handle("/", s.page)
	stripped := http.NewServeMux()
	stripped.Handle("/ops/outbox/", http.StripPrefix("/ops/outbox", s.page))
	stripped.Handle("/ops/outbox", http.StripPrefix("/ops/outbox", s.page))
	router := chi.NewRouter()
	router.Handle("/ops/outbox", http.StripPrefix("/ops/outbox", s.page))
	router.Handle("/ops/outbox/*", http.StripPrefix("/ops/outbox", s.page))
	e := echo.New()
	e.Any("/ops/outbox", echo.WrapHandler(http.StripPrefix("/ops/outbox", s.page)))
	e.Any("/ops/outbox/*", echo.WrapHandler(http.StripPrefix("/ops/outbox", s.page)))
	for name, tc := range map[string]struct {
		handler http.Handler
		paths   []string
	}{
		"net/http at the root":      {mux, []string{"/", "/shop", "/shop/"}},
		"net/http with a prefix":    {stripped, []string{"/ops/outbox", "/ops/outbox/", "/ops/outbox/shop"}},
		"chi with a prefix":         {router, []string{"/ops/outbox", "/ops/outbox/", "/ops/outbox/shop"}},
		"Echo with a prefix":        {e, []string{"/ops/outbox", "/ops/outbox/", "/ops/outbox/shop"}},
		"a proxy that adds another": {http.StripPrefix("/proxy", stripped), []string{"/proxy/ops/outbox/"}},
	} {
		server := httptest.NewServer(tc.handler)
		for _, path := range tc.paths {
			body := fetch(t, server.URL+path)
			require.Contains(t, body, "<h1>Overview</h1>", "%s: %s", name, path)
		}
		base := server.URL + strings.TrimSuffix(strings.TrimSuffix(tc.paths[len(tc.paths)-1], "/"), "/shop")
		require.Contains(t, fetch(t, base+"/shop/event?id=refused-0"), "../-/style.css", name)
		require.Contains(t, fetch(t, base+"/-/style.css"), "color-scheme", name)
		server.Close()
	}
}

func fetch(t *testing.T, address string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	body := read(t, response)
	require.Equal(t, 200, response.StatusCode, "%s: %s", address, body)
	return body
}

func TestSeveralOutboxesAreApart(t *testing.T) {
	t.Parallel()
	other := testdb.Open(t, testdb.Main()[2])
	second := newOutbox(t, other)
	s := newSite(t, dashtest.Shop(time.Now()), func(c *dashboard.Config) { c.Outboxes["billing"] = second })
	require.Equal(t, "billing/", s.send(http.MethodGet, "/", nil).Header.Get("Location"))
	require.Contains(t, s.get("/billing/"), `<a href="../shop/">shop</a>`)
	require.Contains(t, s.get("/billing/events"), "There is no such event.")
	s.get("/none/", 404)
	token := s.form(s.get("/shop/dead"), "Replay …").Get("token")
	got := s.send(http.MethodPost, "/billing/confirm", map[string][]string{"token": {token}, "scope": {"all"}, "action": {"replay"}})
	require.Equal(t, 403, got.StatusCode, "a token is for one outbox")
}

func TestATableThatIsGoneIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	_, err := s.db.ExecContext(t.Context(), "DROP TABLE "+dashtest.Table)
	require.NoError(t, err)
	for _, path := range []string{"/shop/", "/shop/events", "/shop/event?id=x", "/shop/dead", "/shop/letters"} {
		body := s.get(path, 503)
		require.Contains(t, body, "store.CreateSchema", path)
		require.Contains(t, body, "outbox schema create", path)
	}
	require.NoError(t, s.db.Close())
	require.Contains(t, s.get("/shop/", 503), "The database returned an error")
	require.Contains(t, s.log.String(), "sql: database is closed")
	require.NotContains(t, s.get("/shop/", 503), "sql: database is closed")
}

func TestASlowDatabaseIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, func(c *dashboard.Config) { c.Timeout = 50 * time.Millisecond })
	s.db.SetMaxOpenConns(1)
	held, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	require.Contains(t, s.get("/shop/", 503), "The database is slow or away")
	require.NoError(t, held.Close())
	status := 503
	for status == 503 { // as often as this machine is that slow
		status = s.send(http.MethodGet, "/shop/", nil).StatusCode
	}
	require.Equal(t, 200, status)
}

func TestTheConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := dashboard.New(dashboard.Config{})
	require.ErrorContains(t, err, "dashboard.Config.Outboxes is empty")
	_, err = dashboard.New(dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"a/b": nil, "-": nil}, CSRFKey: []byte("short"), Interval: time.Millisecond, MaxViewers: -1, MaxDueAge: -1, Timeout: -1,
	})
	for _, want := range []string{`"a/b"`, `"-"`, "CSRFKey has 5 bytes", "Interval is 1ms", "MaxViewers is -1", "MaxDueAge is -1ns", "Timeout is -1ns"} {
		require.ErrorContains(t, err, want)
	}
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
}

func TestMethodsAndUnknownPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	require.Equal(t, 405, s.send(http.MethodPost, "/shop/events", nil).StatusCode)
	got := s.send(http.MethodGet, "/shop/act", nil)
	require.Equal(t, 405, got.StatusCode)
	require.Equal(t, "POST", got.Header.Get("Allow"))
	for _, path := range []string{"/shop/none", "/shop/events/", "/-/none", "/-/../doc.go"} {
		require.Contains(t, []int{404, 301, 307}, s.send(http.MethodGet, path, nil).StatusCode, path)
	}
	require.Equal(t, 200, s.send(http.MethodHead, "/shop/", nil).StatusCode)
	require.Equal(t, 405, s.send(http.MethodPost, "/-/style.css", nil).StatusCode)
	require.NoError(t, s.page.Wait(context.Background()))
}

func TestAPayloadOfBytesIsShownInHexadecimalDigits(t *testing.T) {
	t.Parallel()
	data := []byte("<b>\x00\xff")
	typed := map[string]string{outbox.HeaderContentType: "text/html"}
	large := bytes.Repeat([]byte{0xab}, 100_000)
	s := newSite(t, []dashtest.Row{
		{ID: "small", Type: "T", Payload: outbox.Bytes("text/html", data).String(), Headers: typed, Created: time.Now()},
		{ID: "large", Type: "T", Payload: outbox.Bytes("text/html", large).String(), Headers: typed, Created: time.Now()},
		{ID: "broken", Type: "T", Payload: `{"a":1}`, Headers: typed, Created: time.Now()},
	})
	page := s.get("/shop/event?id=small")
	require.Contains(t, page, "3c 62 3e 00 ff")
	require.Contains(t, page, "5 bytes of <code>text/html</code>")
	require.NotContains(t, page, outbox.HeaderContentType)
	require.NotContains(t, page, "Not all of it")
	file := s.send(http.MethodGet, "/shop/payload?id=small", nil)
	require.Equal(t, string(data), file.body)
	require.Equal(t, `attachment; filename="payload.bin"`, file.Header.Get("Content-Disposition"))
	require.Equal(t, "application/octet-stream", file.Header.Get("Content-Type"))

	page = s.get("/shop/event?id=large")
	require.Less(t, len(page), 100_000)
	require.Contains(t, page, "Not all of it")
	require.Equal(t, string(large), s.send(http.MethodGet, "/shop/payload?id=large", nil).body)
	require.Contains(t, s.get("/shop/event?id=broken"), outbox.HeaderContentType, "the row is shown as it is")
}

func TestAGroupThatIsOnlyPartlyListedSaysSo(t *testing.T) {
	t.Parallel()
	rows := []dashtest.Row{}
	began := time.Now().Add(-time.Hour)
	for i := range outbox.GroupLimit + 10 {
		row := dashtest.Row{ID: fmt.Sprintf("%06d", i), Type: "T", Created: began, Ended: began.Add(time.Duration(i) * time.Millisecond), Status: outbox.StatusDead, Error: "common"}
		if i == 3 || i > outbox.GroupLimit {
			row.Error = "rare"
		}
		rows = append(rows, row)
	}
	s := newSite(t, rows)
	groups := s.get("/shop/dead")
	require.Contains(t, groups, "These are the groups of the first 10\u202f000 dead letters")
	rare := regexp.MustCompile(`href="(letters\?group=[^"]*)">rare`).FindStringSubmatch(groups)[1]
	body := s.get("/shop/" + rare)
	require.Equal(t, 1, strings.Count(body, `<th scope="row"`))
	require.Contains(t, body, "behind them there may be more")
	_, after, _ := strings.Cut(body, `<p><a href="`)
	next, _, _ := strings.Cut(after, `"`)
	body = s.get("/shop/" + strings.ReplaceAll(next, "&amp;", "&"))
	require.Equal(t, 9, strings.Count(body, `<th scope="row"`))
	require.NotContains(t, body, "there may be more")
	require.NotContains(t, body, `rel="next"`)
	confirmation, action := s.act(with(s.form(groups, "Replay the group rare"), "action", "replay"))
	require.Contains(t, confirmation, "<strong>1 or more</strong>")
	require.Contains(t, action, "Replayed 10 dead letters", "beyond those that were counted")
}

func TestAPageShowsTheBeginningOfALargePayload(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 4000) + strings.TrimSuffix(strings.Repeat("0,", 500_000), ",") + strings.Repeat("]", 4000)
	at := time.Now().Add(-time.Minute)
	s := newSite(t, []dashtest.Row{
		{ID: "deep", Type: "T", Payload: deep, Status: outbox.StatusDead, Created: at, Ended: at},
		{ID: "wide", Type: "T", Payload: `{"a":1}`, Headers: map[string]string{"a": "first", "b": strings.Repeat("v", 100_000)}, Created: at},
		{ID: "small", Type: "T", Payload: `{"a":[1]}`, Created: at, Error: strings.Repeat("e", 1_000_000), Status: outbox.StatusDead, Ended: at},
	})
	for _, id := range []string{"deep", "wide"} {
		page := s.get("/shop/event?id=" + id)
		require.Less(t, len(page), 200_000, id)
		require.Contains(t, page, `<a href="payload?id=`+id+`">Download the payload</a>`)
	}
	require.Contains(t, s.get("/shop/event?id=wide"), "first")
	small := s.get("/shop/event?id=small")
	require.Contains(t, small, "{\n  &#34;a&#34;: [\n    1\n  ]\n}")
	require.NotContains(t, small, "Download")
	require.Less(t, len(small), 20_000, "another program stored a long error")
	require.Less(t, len(s.get("/shop/letters")), 20_000)

	file := s.send(http.MethodGet, "/shop/payload?id=deep", nil)
	require.Equal(t, deep, file.body)
	require.Equal(t, `attachment; filename="payload.json"`, file.Header.Get("Content-Disposition"))
	require.Equal(t, "application/json", file.Header.Get("Content-Type"))
	s.get("/shop/payload?id=none", 404)
	s.get("/shop/payload?x=y", 400)
	s.role = httptx.View | httptx.Operate
	s.get("/shop/payload?id=deep", 403)
}
