package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func escape(s string) string { return url.QueryEscape(s) }

func read(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return string(body)
}

func TestAGroupIsReplayed(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	form := with(s.form(s.get("/shop/dead"), "warehouse refused order"), "action", "replay")
	confirmation, action := s.act(form)
	require.Contains(t, confirmation, "<strong>3</strong> dead letters?")
	require.Contains(t, confirmation, "Yes, replay 3")
	require.Contains(t, action, "Replayed 3 dead letters: they are due now")
	require.Equal(t, 2, s.dead())
	entries := s.entries()
	require.Len(t, entries, 1)
	require.Equal(t, httptx.AuditEntry{User: "ada", Action: "replay", Outbox: "shop", Target: "group=" + form.Get("group"), Count: 3}, entries[0])
	require.Contains(t, s.log.String(), "user=ada action=replay outbox=shop")
	require.Contains(t, s.get("/shop/dead"), "ada", "it is listed among the recent actions")
	require.Contains(t, s.get("/shop/event?id=refused-1"), "NEW")
}

func TestALetterWhoseKeyIsTakenStaysDead(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	require.NoError(t, sqlstore.SQLite(sqlstore.WithUniqueIndex()).CreateSchema(t.Context(), s.db.DB))
	for _, statement := range []string{
		"UPDATE outbox_event SET unique_key = 'k' WHERE event_id = 'refused-0'",
		`INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, status, attempts, available_at, created_at, unique_key)
		SELECT 'pending', event_type, aggregate_type, payload, 0, 0, available_at, created_at, unique_key FROM outbox_event WHERE event_id = 'refused-0'`,
	} {
		_, err := s.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	_, action := s.act(with(s.form(s.get("/shop/dead"), "warehouse refused order"), "action", "replay"))
	require.Contains(t, action, "1 dead letters stay dead, refused-0 first: a pending event has their unique key")
	require.Equal(t, 3, s.dead())
	require.Contains(t, s.get("/shop/event?id=refused-1"), "NEW")
}

func TestAGroupIsDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	_, action := s.act(with(s.form(s.get("/shop/dead"), "mail server"), "action", "delete"))
	require.Contains(t, action, "Deleted 2 dead letters.")
	require.Equal(t, 3, s.dead())
	require.Contains(t, s.get("/shop/event?id=unmailed-0"), ">DELETED</span>")
}

func TestADeletionIsUndone(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	before := s.dead()
	asked, action := s.act(with(s.form(s.get("/shop/dead"), "mail server"), "action", "delete"))
	require.Contains(t, asked, "a deleted letter can be restored until a purge deletes the row, 10 s after the deletion.")
	undo := s.form(action, ">Undo</button>")
	id := undo.Get("deletion")
	require.Len(t, id, 26)

	event := s.get("/shop/event?id=unmailed-0")
	require.Regexp(t, `was deleted by ada at [^;]+; it can be restored until a purge deletes the row, 10 s after the deletion`, event)
	require.NotContains(t, event, "<strong>Done</strong>")
	require.Contains(t, event, "by the deletion "+id)
	require.Contains(t, s.get("/shop/events?status=DONE"), "DELETED")
	require.Contains(t, s.get("/shop/events?deletion="+id), "unmailed-0")
	require.Contains(t, s.get("/shop/events?deletion=x", 400), "is no id of a deletion")

	question := s.send("POST", "/shop/confirm", with(s.form(event, "Undo the deletion …"), "action", "restore"))
	require.Contains(t, question.body, "Restore <strong>2</strong> dead letters?")
	s.entries()
	require.Contains(t, s.done(with(undo, "action", "restore")), "Restored 2 dead letters.")
	require.Equal(t, "deletion="+id, s.entries()[0].Target)
	require.Equal(t, before, s.dead())
	require.NotContains(t, s.get("/shop/audit"), "Undo …")
	again := s.done(with(undo, "action", "restore"))
	require.Contains(t, again, "restore failed")
	require.Contains(t, again, "No dead letter of this deletion can be restored")

	s.act(with(s.form(s.get("/shop/dead"), "mail server"), "action", "delete"))
	audit := s.get("/shop/audit")
	_, action = s.act(with(s.form(audit, "Undo …"), "action", "restore"))
	require.Contains(t, action, "Restored 2 dead letters.")
	require.Equal(t, before, s.dead())
	for field, form := range map[string]url.Values{
		"deletion":   with(s.form(audit, "Undo …"), "action", "restore", "scope", "all"),
		"scope":      with(s.form(audit, "Undo …"), "action", "restore", "scope", "all"),
		"event_type": with(s.form(audit, "Undo …"), "action", "restore", "event_type", "x"),
	} {
		if field == "deletion" {
			form.Del("deletion")
		}
		require.Equal(t, 400, s.send("POST", "/shop/confirm", form).StatusCode, field)
	}
}

// Who may not operate sees no button, and a form is refused.
func TestOnlyOperatorsUndoADeletion(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	_, action := s.act(with(s.form(s.get("/shop/dead"), "mail server"), "action", "delete"))
	undo := with(s.form(action, ">Undo</button>"), "action", "restore")
	without := url.Values{"action": undo["action"], "deletion": undo["deletion"]}
	require.Equal(t, 403, s.send("POST", "/shop/act", without).StatusCode, "without the token")
	s.role = httptx.View
	require.NotContains(t, s.get("/shop/audit"), "Undo")
	require.NotContains(t, s.get("/shop/event?id=unmailed-0"), "Undo")
	require.Equal(t, 403, s.send("POST", "/shop/act", undo).StatusCode)
	require.Equal(t, 3, s.dead())
}

func TestASelectionIsReplayedOrDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	form := with(s.form(s.get("/shop/letters"), "Replay selected"), "id", "refused-0", "id", "unmailed-0")
	confirmation, action := s.act(with(form, "action", "replay"))
	require.Contains(t, confirmation, "<strong>2</strong>")
	require.Contains(t, action, "Replayed 2 dead letters: they are due now")
	require.Equal(t, 3, s.dead())
	require.Equal(t, "event_id=refused-0,unmailed-0", s.entries()[0].Target)
	_, action = s.act(with(s.form(s.get("/shop/event?id=refused-1"), "Delete …"), "action", "delete"))
	require.Contains(t, action, "Deleted 1 dead letter.")
	require.Equal(t, 2, s.dead())
}

func TestAllThatMatchAreDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	_, action := s.act(with(s.form(s.get("/shop/letters?tenant_id=globex"), "Delete all"), "action", "delete"))
	require.Contains(t, action, "Deleted 2 dead letters.")
	require.Equal(t, "tenant_id=…", s.entries()[0].Target)
	require.NotContains(t, s.log.String(), "globex")
	_, action = s.act(with(s.form(s.get("/shop/letters"), "Replay all"), "action", "replay"))
	require.Contains(t, action, "Replayed 3 dead letters: they are due now")
	require.Equal(t, "all", s.entries()[0].Target)
}

func TestSteering(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	form := s.form(s.get("/shop/steering"), "Pause …</button>")
	s.act(with(form, "action", "pause", "event_type", " OrderPlaced", "aggregate_type", "Order\t"))
	s.act(with(form, "action", "pause", "event_type", "Alone", "aggregate_type", ""))
	paused, err := s.outbox.Paused(t.Context())
	require.NoError(t, err)
	require.Len(t, paused, 2)
	require.Equal(t, outbox.Global, paused[1].Kind.AggregateType)
	asked, _ := s.act(with(s.form(s.get("/shop/steering"), "Resume Order / OrderPlaced"), "action", "resume"))
	require.Contains(t, asked, "paused since")
	paused, err = s.outbox.Paused(t.Context())
	require.NoError(t, err)
	require.Len(t, paused, 1)
	rows := func() (n int) {
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+dashtest.Table).Scan(&n))
		return n
	}
	before := rows()
	confirmation, action := s.act(with(s.form(s.get("/shop/steering"), "Purge old rows"), "action", "purge"))
	require.Contains(t, confirmation, "longer ago than 10 s, now?")
	purged := before - rows()
	require.GreaterOrEqual(t, purged, 20, "the delivered ones that are older than ten seconds")
	require.Contains(t, action, fmt.Sprintf("Purged %d events.", purged))
	require.Contains(t, s.done(with(s.form(s.get("/shop/steering"), "Wake the poller"), "action", "wake")), "wake failed")
	actions := []string{}
	for _, entry := range s.entries() {
		require.Equal(t, "ada", entry.User)
		actions = append(actions, entry.Action)
	}
	require.Equal(t, []string{"pause", "pause", "resume", "purge", "wake"}, actions)
}

// Each question about dead letters has the same facts.
func TestEachQuestionAboutLettersShowsThem(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	facts := []string{"<dt>Kind</dt><dd>Order / OrderPaid</dd>", "<dt>Reason</dt><dd>mail server", "<dt>Oldest</dt><dd>died <time", `The first that died:</p>
<ul class="examples"><li class="text"><a href="event?id=unmailed-0">`, `<a href="event?id=unmailed-1">`}
	letters := s.form(s.get("/shop/dead"), "mail server")
	question := func(form url.Values, action string) string {
		return s.send(http.MethodPost, "/shop/confirm", with(form, "action", action)).body
	}
	for _, want := range facts {
		require.Contains(t, question(letters, "replay"), want)
		require.Contains(t, question(letters, "delete"), want)
	}
	_, action := s.act(with(letters, "action", "delete"))
	require.NotContains(t, action, "in the order of keys")
	restore := question(s.form(s.get("/shop/audit"), "Undo …"), "restore")
	for _, want := range facts {
		require.Contains(t, restore, want)
	}
	selected := with(s.form(s.get("/shop/letters"), "Replay selected"), "id", "refused-1")
	require.Contains(t, question(selected, "replay"), `<a href="event?id=refused-1">`)
	_, action = s.act(with(selected, "action", "replay"))
	require.Contains(t, action, "Replayed 1 dead letter: it is due now, and is delivered again.")
	require.Contains(t, action, `<a href="event?id=refused-1">The event refused-1</a>`)
	_, action = s.act(with(selected, "action", "replay"))
	require.Contains(t, action, "Nothing was replayed: no dead letter matches.")
}

// A deletion from an outbox in the order of keys lets the keys go on, which an undo does not undo.
func TestQuestionsSayWhatHappensToKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	form := s.form(s.get("/shop/letters"), "Replay all")
	question := func(form url.Values, action string) string {
		s.page.Forget()
		return s.send(http.MethodPost, "/shop/confirm", with(form, "action", action)).body
	}
	require.NotContains(t, question(form, "delete"), "in the order of keys")
	require.NotContains(t, question(form, "replay"), "in the order of keys")
	_, err := s.db.ExecContext(t.Context(), `CREATE INDEX idx_outbox_event_key ON outbox_event (aggregate_type, COALESCE(aggregate_id, event_id), status DESC, available_at, created_at, event_id) WHERE status <> 1`)
	require.NoError(t, err)
	ob, err := outbox.New(outbox.Config{DB: s.db.DB, Store: sqlstore.SQLite(), Mode: outbox.OrderedByKey{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ob.Close(context.Background()) }) //nolint:usetesting // it has ended by then.
	require.NoError(t, ob.Register(outbox.On("Order", "Unwritten", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil }))))
	require.NoError(t, ob.Start(t.Context()))
	require.Eventually(t, func() bool {
		return strings.Contains(question(form, "delete"), "are delivered at once after the deletion")
	}, 20*time.Second, 10*time.Millisecond)
	require.Contains(t, question(form, "replay"), "before the events that wait in its key, and after the events of the key that were delivered already")
	_, action := s.act(with(form, "action", "delete"))
	require.Contains(t, action, "An undo does not take back events that were delivered.")
	require.Contains(t, question(s.form(s.get("/shop/audit"), "Undo …"), "restore"), "An undo does not take back events that were delivered.")
}

// A process that does not poll says so, and reports no success.
func TestAWakeNeedsAPoller(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	wake := func() string {
		return s.done(with(s.form(s.get("/shop/steering"), "Wake the poller"), "action", "wake"))
	}
	page := wake()
	require.Contains(t, page, "wake failed")
	require.Contains(t, page, "This process has no poller to wake: the outbox is not started")
	require.NoError(t, s.outbox.Register(outbox.On("Order", "Placed", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil }))))
	require.NoError(t, s.outbox.Start(t.Context()))
	require.Eventually(t, func() bool { return strings.Contains(wake(), "The poller of this process was woken") }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, s.outbox.Close(t.Context()))
	require.Contains(t, wake(), "This process has no poller to wake: the outbox is closed")

	store := outboxtest.NewStore()
	writer, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	s = memorySite(t, store, func(c *dashboard.Config) { c.Outboxes["shop"] = writer })
	require.Contains(t, wake(), "This process has no poller to wake: the outbox only writes here")
}

func TestAFormNeedsItsToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	form := with(s.form(s.get("/shop/dead"), "warehouse refused"), "action", "replay")
	other := newSite(t, nil)
	for name, token := range map[string]string{
		"missing":             "",
		"malformed":           "!",
		"of another process":  other.form(other.get("/shop/steering"), "Purge").Get("token"),
		"for another scope":   s.form(s.get("/shop/steering"), "Wake").Get("token"),
		"with a changed time": "AAAAAGkAAAA" + form.Get("token")[11:],
		"cut":                 form.Get("token")[:20],
	} {
		bad := with(form)
		bad.Set("token", token)
		got := s.send(http.MethodPost, "/shop/confirm", bad)
		require.Equal(t, 403, got.StatusCode, name)
		require.Contains(t, got.body, `The field &#34;token&#34;`, name)
	}
	s.user = "eve"
	require.Equal(t, 403, s.send(http.MethodPost, "/shop/confirm", form).StatusCode, "another user's")
	s.user, s.role = "ada", httptx.ReadPayloads
	require.Equal(t, 403, s.send(http.MethodPost, "/shop/confirm", form).StatusCode, "without the role")
	require.Equal(t, 403, s.send(http.MethodPost, "/shop/act", form).StatusCode, "without the role")
	s.role = everything
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://elsewhere.example"}} {
		got := s.send(http.MethodPost, "/shop/confirm", form, header...)
		require.Equal(t, 403, got.StatusCode, header)
		require.Contains(t, got.body, "A page of another site sent this")
	}
	require.Equal(t, 200, s.send(http.MethodPost, "/shop/confirm", form, "Sec-Fetch-Site", "same-origin").StatusCode)
	require.Equal(t, 5, s.dead())
	require.Empty(t, s.entries())
}

func TestATokenEndsAndSurvivesWithTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key := []byte(strings.Repeat("k", 32))
		site := func() *site {
			return memorySite(t, outboxtest.NewStore(), func(c *dashboard.Config) { c.CSRFKey = key })
		}
		s, other := site(), site()
		form := with(s.form(s.get("/shop/steering"), "Purge"), "action", "purge")
		require.Equal(t, 200, other.send(http.MethodPost, "/shop/confirm", form).StatusCode, "another process with the same key")
		time.Sleep(4*time.Hour - time.Second)
		require.Equal(t, 200, s.send(http.MethodPost, "/shop/confirm", form).StatusCode)
		time.Sleep(2 * time.Second)
		got := s.send(http.MethodPost, "/shop/confirm", form)
		require.Equal(t, 403, got.StatusCode)
		require.Contains(t, got.body, "too old")
	})
}

func TestBadInputIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	long := strings.Repeat("x", 200)
	for path, says := range map[string]string{
		"/shop/?x=1":                                     "&#34;x&#34; is unknown",
		"/shop/events?x=1":                               "&#34;x&#34; is unknown",
		"/shop/events?status=NONE":                       "&#34;status&#34; must be",
		"/shop/events?status=NEW&status=DEAD":            "&#34;status&#34; is given more than once",
		"/shop/events?event_type=" + long:                "&#34;event_type&#34; is 200 characters long; the limit is 128",
		"/shop/events?aggregate_id=" + long:              "&#34;aggregate_id&#34; is 200 characters long",
		"/shop/events?tenant_id=%00":                     "&#34;tenant_id&#34; is not UTF-8, or contains a NUL",
		"/shop/events?tenant_id=%FF":                     "&#34;tenant_id&#34; is not UTF-8, or contains a NUL",
		"/shop/events?since=yesterday":                   "&#34;since&#34; is not a time",
		"/shop/events?until=0001-01-01":                  "&#34;until&#34; is not a time",
		"/shop/events?since=2026-01-02&until=2026-01-01": "&#34;until&#34; is not after since",
		"/shop/events?after=forged":                      "&#34;after&#34; is not the place of a page",
		"/shop/events?%zz":                               "&#34;query&#34; is malformed",
		"/shop/event":                                    "&#34;id&#34; is missing",
		"/shop/event?id=" + long[:37]:                    "&#34;id&#34; is 37 characters long",
		"/shop/event?id=a&id=b":                          "&#34;id&#34; is given more than once",
		"/shop/letters?after=x":                          "&#34;after&#34; is not the place of a page",
		"/shop/letters?limit=7":                          "&#34;limit&#34; is unknown",
		"/shop/letters?group=" + long:                    "&#34;group&#34; is 200 characters long",
		"/shop/events?status=due":                        "&#34;status&#34; must be WAITING, DUE, DELAYED, LEASED, NEW, RETRY, DONE, DEAD",
		"/shop/events?id=" + long:                        "&#34;id&#34; is 200 characters long; the limit is 36",
		"/shop/events?error_text=" + long + "x":          "&#34;error_text&#34; is 201 characters long; the limit is 200",
		"/shop/steering?y=1":                             "this page takes no parameters.",
		"/shop/steering?x":                               "&#34;x&#34; is unknown",
		"/shop/dead?x":                                   "&#34;x&#34; is unknown",
		"/shop/live?x":                                   "&#34;x&#34; is unknown",
		"/shop/action?n=1":                               "&#34;n&#34; is unknown",
		"/shop/action":                                   "&#34;id&#34; is missing",
	} {
		require.Contains(t, s.get(path, 400), says, path)
	}
	confirm := s.form(s.get("/shop/letters"), "Replay selected")
	act := s.form(s.get("/shop/steering"), "Wake the poller")
	many := with(confirm, "action", "replay")
	for range 501 {
		many.Add("id", "x")
	}
	for _, tc := range []struct {
		path string
		form url.Values
		says string
	}{
		{"confirm", confirm, "&#34;action&#34; must be"},
		{"confirm", with(confirm, "action", "drop"), "&#34;action&#34; must be"},
		{"confirm", with(confirm, "action", "replay"), "&#34;id&#34; is missing; check at least one"},
		{"confirm", with(confirm, "action", "replay", "id", long), "&#34;id&#34; is 200 characters long"},
		{"confirm", with(confirm, "action", "replay", "scope", "all"), "&#34;scope&#34; is given more than once"},
		{"confirm", with(url.Values{"token": confirm["token"]}, "action", "replay"), "&#34;scope&#34; must be"},
		{"confirm", with(url.Values{"token": confirm["token"]}, "action", "replay", "scope", "all", "id", "x"), "&#34;id&#34; does not belong to this action"},
		{"confirm", with(confirm, "force", "yes"), "&#34;force&#34; is unknown"},
		{"confirm", many, "&#34;id&#34; is given 501 times"},
		{"confirm", url.Values{"token": {strings.Repeat("x", 200_000)}}, "&#34;form&#34; is too large"},
		{"confirm", with(url.Values{"token": confirm["token"]}, "action", "replay", "scope", "selection", "id", ""), "&#34;id&#34; is empty"},
		{"confirm", with(confirm, "action", "replay", "id", "x", "tenant_id", "t"), "&#34;tenant_id&#34; does not belong"},
		{"act", with(act, "action", "pause"), "&#34;event_type&#34; is empty"},
		{"act", with(act, "action", "pause", "event_type", " "), "&#34;event_type&#34; is empty"},
		{"act", with(act, "action", "pause", "event_type", "OrderPlaced", "tenant_id", "t"), "&#34;tenant_id&#34; does not belong"},
		{"act", with(act, "action", "pause", "event_type", "OrderPlaced", "for", "soon"), "&#34;for&#34; is not a duration from 1s"},
		{"act", with(act, "action", "pause", "event_type", "OrderPlaced", "for", "0.5s"), "&#34;for&#34; is not a duration from 1s"},
		{"act", with(act, "action", "pause", "event_type", "OrderPlaced", "reason", "a\nb"), "&#34;reason&#34; contains a control character"},
		{"act", with(act, "action", "pause", "event_type", "OrderPlaced", "reason", strings.Repeat("a", 501)), "&#34;reason&#34; is 501 characters long"},
		{"act", with(act, "action", "resume", "event_type", "OrderPlaced", "for", "1h"), "&#34;for&#34; does not belong"},
		{"act", with(act, "action", "resume", "event_type", "OrderPlaced", "group", "zz"), "&#34;group&#34; does not belong"},
		{"act", with(act, "action", "purge", "event_type", "OrderPlaced"), "&#34;event_type&#34; does not belong"},
		{"act", with(act, "action", "wake", "scope", "all"), "&#34;scope&#34; does not belong"},
		{"act", with(act, "action", "delete", "scope", "all", "of", "many"), "&#34;of&#34; is not a number"},
		{"act?x=1", act, "&#34;query&#34; must be empty"},
	} {
		got := s.send(http.MethodPost, "/shop/"+tc.path, tc.form)
		require.Equal(t, 400, got.StatusCode, "%s %.200s", tc.path, got.body)
		require.Contains(t, got.body, tc.says)
	}
	require.Equal(t, 5, s.dead())
}

// memorySite is a site on a store in memory.
func memorySite(t *testing.T, store interface {
	outbox.Store
	DB() *outboxtest.DB
}, change func(*dashboard.Config),
) *site {
	t.Helper()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	require.NoError(t, err)
	s := &site{t: t, outbox: ob, log: &buffer{}, user: "ada", role: everything}
	config := dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"shop": ob},
		Access: httptx.Access{
			Authorize: func(*http.Request) (string, httptx.Role) { return s.user, s.role },
			Logger:    slog.New(slog.NewTextHandler(s.log, nil)),
		},
	}
	change(&config)
	s.page, err = dashboard.New(config)
	require.NoError(t, err)
	t.Cleanup(s.page.EndStreams)
	s.handler = http.StripPrefix(prefix, s.page)
	return s
}

// heldStore answers a listing of dead letters when it is let.
type heldStore struct {
	*outboxtest.Store
	let chan error
}

func (s heldStore) Pause(ctx context.Context, _ outbox.DB, _ outbox.Pause) error {
	select {
	case err := <-s.let:
		if err == nil {
			panic("the store panics")
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A load balancer sends the page of an action to another process than its form.
func TestAnActionOfAnotherProcessIsExplained(t *testing.T) {
	t.Parallel()
	store, key := outboxtest.NewStore(), []byte(strings.Repeat("k", 32))
	replica := func() *site { return memorySite(t, store, func(c *dashboard.Config) { c.CSRFKey = key }) }
	s, other := replica(), replica()
	asked := s.send(http.MethodPost, "/shop/confirm", with(s.form(s.get("/shop/steering"), "Pause …</button>"), "action", "pause", "event_type", "x"))
	sent := s.send(http.MethodPost, "/shop/act", s.form(asked.body, "Yes, pause"))
	require.Equal(t, 303, sent.StatusCode)
	page := "/shop/" + sent.Header.Get("Location")
	body := other.get(page)
	for _, want := range []string{"Another process of the service runs this action, or ran it.", "an operator's change", `href="dead"`, `href="events"`, `href="` + sent.Header.Get("Location") + `"`} {
		require.Contains(t, body, want)
	}
	require.NotContains(t, body, "refresh")
	require.NoError(t, s.page.Wait(t.Context()))
	require.Contains(t, s.get(page), "paused until")
}

// A long action goes on after its form, and its page says so until it ends.
func TestALongActionIsFollowed(t *testing.T) {
	t.Parallel()
	store := heldStore{outboxtest.NewStore(), make(chan error)}
	s := memorySite(t, store, func(c *dashboard.Config) {
		c.Access.Audit = func(context.Context, httptx.AuditEntry) { panic("the hook panics") }
	})
	asked := s.send(http.MethodPost, "/shop/confirm", with(s.form(s.get("/shop/steering"), "Pause …</button>"), "action", "pause", "event_type", "x"))
	form := s.form(asked.body, "Yes, pause")
	sent := s.send(http.MethodPost, "/shop/act", form)
	require.Equal(t, 303, sent.StatusCode)
	page := "/shop/" + sent.Header.Get("Location")
	require.Contains(t, s.get(page), `<meta http-equiv="refresh" content="2">`)
	require.Contains(t, s.get(page), "pause runs: 0 so far")
	bound, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.page.Wait(bound), context.DeadlineExceeded)
	for range 9 {
		require.Equal(t, 303, s.send(http.MethodPost, "/shop/act", form).StatusCode)
	}
	busy := s.send(http.MethodPost, "/shop/act", form)
	require.Equal(t, 503, busy.StatusCode)
	require.Contains(t, busy.body, "10 actions of this outbox run already")
	require.Equal(t, 303, s.send(http.MethodPost, "/shop/act", url.Values{"token": form["token"], "action": {"wake"}}).StatusCode, "waking needs no database")
	for range 9 {
		store.let <- errors.New("secret-address refused")
	}
	store.let <- nil // a panic
	require.NoError(t, s.page.Wait(t.Context()))
	body := s.get(page)
	require.NotContains(t, body, "refresh")
	require.Contains(t, body, "pause failed")
	require.Contains(t, body, "Not carried out, or only in part (see the count). Start it again when the database is back.")
	require.NotContains(t, body, "secret-address")
}
