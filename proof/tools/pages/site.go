package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// request is a page, or an endpoint, of the table that is measured.
type request struct {
	name, method, path string
	form               url.Values
}

// site serves the dashboard, the endpoints for operators, and the health check.
type site struct {
	http.Handler
	page *dashboard.Dashboard
}

func newSite(ob *outbox.Outbox, readers int) (*site, error) {
	access := httptx.Access{
		Authorize: func(r *http.Request) (string, httptx.Role) {
			return r.Header.Get("X-User"), httptx.ReadPayloads | httptx.Operate
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	page, err := dashboard.New(dashboard.Config{Outboxes: map[string]*outbox.Outbox{"shop": ob}, Access: access, MaxReaders: readers})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/page/", http.StripPrefix("/page", page))
	mux.Handle("/admin/", http.StripPrefix("/admin", httptx.Admin(ob, access)))
	mux.Handle("/healthz", httptx.Health(httptx.HealthConfig{Outbox: ob, MaxPollDelay: httptx.NoBound, Timeout: 10 * time.Second}))
	return &site{mux, page}, nil
}

// answer is a [http.ResponseWriter] that keeps the body.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// ask sends a request inside the process.
func (s *site) ask(ctx context.Context, r request) (*answer, error) {
	sent, err := r.to(ctx, "http://localhost")
	if err != nil {
		return nil, err
	}
	sent.RequestURI = r.path
	got := &answer{header: http.Header{}, status: http.StatusOK}
	s.ServeHTTP(got, sent)
	return got, nil
}

func (r *request) to(ctx context.Context, server string) (*http.Request, error) {
	sent, err := http.NewRequestWithContext(ctx, r.method, server+r.path, strings.NewReader(r.form.Encode()))
	if err == nil && r.form != nil {
		sent.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return sent, err
}

var tokenField = regexp.MustCompile(`action="confirm"[^>]*>\s*<input type="hidden" name="token" value="([^"]+)"`)

// requests are all pages and endpoints that change nothing.
func (s *site) requests(ctx context.Context, db *sql.DB, ob *outbox.Outbox) ([]request, error) {
	var list []request
	get := func(name, path string) { list = append(list, request{name: name, method: http.MethodGet, path: path}) }
	ids := map[string]string{}
	for name, condition := range map[string]string{"done": "status = 1", "dead": "status = 3", "due": "status = 0 AND locked_by IS NULL AND available_at < created_at + INTERVAL '1' HOUR", "retry": "status = 2"} {
		var id string
		if err := db.QueryRowContext(ctx, "SELECT event_id FROM outbox_event WHERE "+condition+" LIMIT 1").Scan(&id); err != nil {
			return nil, fmt.Errorf("finding an event that is %s: %w", name, err)
		}
		ids[name] = id
	}
	groups, _, err := ob.DeadLetters().Groups(ctx, outbox.DeadFilter{})
	if err != nil {
		return nil, err
	}
	group := groups[len(groups)/2].ID
	var late string
	if err := db.QueryRowContext(ctx, "SELECT event_id FROM outbox_event WHERE status = 3 AND event_type = 'Kind7' ORDER BY event_id DESC LIMIT 1").Scan(&late); err != nil {
		return nil, err
	}
	day := func(days int) string { return time.Now().UTC().AddDate(0, 0, -days).Format(time.RFC3339) }
	get("overview", "/page/shop/")
	get("charts", "/page/shop/charts")
	get("history", "/page/shop/history")
	events := func(name, query string) {
		get("events: "+name, "/page/shop/events?"+query)
		get("admin events: "+name, "/admin/events?"+strings.Replace(query, "id=01", "id_prefix=01", 1))
	}
	get("events", "/page/shop/events")
	get("admin events", "/admin/events")
	events("id prefix", "id="+ids["done"][:12])
	events("id prefix, none", "id=01AAAAAAAA")
	events("error text", "error_text=calling")
	events("error text, none", "error_text=nothing")
	events("error text, DEAD", "error_text=timeout&status=DEAD")
	events("error text, DEAD, none", "error_text=nothing&status=DEAD")
	events("key", "aggregate_id=key-7")
	events("key, none", "aggregate_id=nothing")
	events("tenant", "tenant_id=tenant-7")
	events("tenant, none", "tenant_id=nothing")
	events("kind", "event_type=Kind7&aggregate_type=Aggregate7")
	events("kind, none", "event_type=nothing")
	events("kind and time", "event_type=Kind7&since="+url.QueryEscape(day(3))+"&until="+url.QueryEscape(day(2)))
	events("DONE and time", "status=DONE&since="+url.QueryEscape(day(3))+"&until="+url.QueryEscape(day(2)))
	for _, state := range []string{"NEW", "RETRY", "DONE", "DEAD", "WAITING", "DUE", "DELAYED", "LEASED"} {
		events(state, "status="+state)
	}
	events("DUE of a kind, none", "status=DUE&event_type=nothing")
	for _, name := range []string{"done", "dead", "due", "retry"} {
		get("event: "+name, "/page/shop/event?id="+ids[name])
		get("admin event: "+name, "/admin/events/"+ids[name])
	}
	get("event: none", "/page/shop/event?id=nothing")
	get("payload", "/page/shop/payload?id="+ids["done"])
	get("groups", "/page/shop/dead")
	get("letters", "/page/shop/letters")
	get("letters: group", "/page/shop/letters?group="+group)
	get("letters: group, none", "/page/shop/letters?group=nothing")
	get("letters: kind", "/page/shop/letters?event_type=Kind7")
	get("letters: kind, none", "/page/shop/letters?event_type=nothing")
	get("letters: tenant", "/page/shop/letters?tenant_id=tenant-7")
	get("letters: time", "/page/shop/letters?since="+url.QueryEscape(day(3))+"&until="+url.QueryEscape(day(2)))
	get("steering", "/page/shop/steering")
	get("audit", "/page/shop/audit")
	for _, path := range []string{"stats", "nodes", "shares", "audit", "audit?limit=1000", "pauses", "dead-letters", "dead-letters?limit=200", "dead-letters?event_type=Kind7", "dead-letters?event_type=nothing", "dead-letters?group=" + group, "dead-letters/groups", "dead-letters/groups?event_type=Kind7", "dead-letters/groups?event_type=nothing", "dead-letters/" + late, "dead-letters?since=" + url.QueryEscape(day(3)) + "&tenant_id=tenant-7"} {
		name, _, _ := strings.Cut(path, "=01")
		get("admin "+name, "/admin/"+path)
	}
	get("health", "/healthz")
	get("health, verbose", "/healthz?verbose")
	form, err := s.ask(ctx, request{method: http.MethodGet, path: "/page/shop/steering"})
	if err != nil {
		return nil, err
	}
	token := tokenField.FindSubmatch(form.body.Bytes())
	if token == nil {
		return nil, fmt.Errorf("the page of steering has no form: %d %.300s", form.status, form.body.Bytes())
	}
	confirm := func(name string, fields ...string) {
		values := url.Values{"token": {string(token[1])}}
		for i := 0; i < len(fields); i += 2 {
			values.Add(fields[i], fields[i+1])
		}
		list = append(list, request{"confirm: " + name, http.MethodPost, "/page/shop/confirm", values})
	}
	for _, action := range []string{"replay", "delete"} {
		confirm(action+" all", "action", action, "scope", "all")
		confirm(action+" group", "action", action, "scope", "all", "group", group)
		confirm(action+" kind", "action", action, "scope", "all", "event_type", "Kind7")
		confirm(action+" kind, none", "action", action, "scope", "all", "event_type", "nothing")
		confirm(action+" time", "action", action, "scope", "all", "since", day(3), "until", day(2))
		confirm(action+" one", "action", action, "scope", "selection", "id", late)
	}
	confirm("pause", "action", "pause", "event_type", "Kind7", "aggregate_type", "Aggregate7")
	confirm("pause, unknown", "action", "pause", "event_type", "nothing", "aggregate_type", "")
	confirm("purge", "action", "purge")
	return list, nil
}
