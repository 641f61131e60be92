package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

var orderPlaced = outbox.EventKind{AggregateType: "Order", EventType: "OrderPlaced"}

func (s *site) paused() (kinds []outbox.EventKind) {
	s.t.Helper()
	list, err := s.outbox.Paused(s.t.Context())
	require.NoError(s.t, err)
	for _, pause := range list {
		kinds = append(kinds, pause.Kind)
	}
	return kinds
}

// A newcomer leaves the aggregate type empty.
func TestAPauseOfNoEventAsksWhatWasMeant(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	steering := s.get("/shop/steering")
	require.Contains(t, steering, `<option value="OrderPlaced">`)
	require.Contains(t, steering, `<option value="Order">`)
	form := with(s.form(steering, "Pause …</button>"), "action", "pause")
	asked := s.send(http.MethodPost, "/shop/confirm", with(form, "event_type", "orderplaced"))
	require.Contains(t, asked.body, "of the kind orderplaced without an aggregate type. Did you mean")
	s.act(with(s.form(asked.body, "Order / OrderPlaced …"), "action", "pause"))
	require.Equal(t, []outbox.EventKind{orderPlaced}, s.paused())
	asked = s.send(http.MethodPost, "/shop/confirm", with(form, "event_type", "Misspelled", "aggregate_type", "Order"))
	require.Contains(t, asked.body, "of the kind Misspelled with the aggregate type Order. Check how it is spelled.")
	asked = s.send(http.MethodPost, "/shop/confirm", with(form, "event_type", "OrderPaid", "aggregate_type", "Order"))
	require.NotContains(t, asked.body, "No event was found")
}

func TestAKindIsPausedFromItsGroupAndFromItsEvent(t *testing.T) {
	t.Parallel()
	for path, text := range map[string]string{"/shop/dead": "Pause Order / OrderPlaced", "/shop/event?id=waiting": "Pause this kind", "/shop/event?id=refused-0": "Pause this kind"} {
		s := newSite(t, dashtest.Shop(time.Now()))
		s.act(with(s.form(s.get(path), text), "action", "pause"))
		require.Equal(t, []outbox.EventKind{orderPlaced}, s.paused(), path)
		waiting := s.get("/shop/event?id=waiting")
		require.Contains(t, waiting, `its kind is paused since <time class="exact" datetime="20`)
		require.NotContains(t, waiting, "Pause this kind")
		const state = `>NEW, paused</span>`
		require.Contains(t, waiting, state)
		require.Equal(t, 1, strings.Count(s.get("/shop/events"), state))
		require.NotContains(t, s.get("/shop/events"), "DEAD, paused")
	}
}

// The page that asks whether to pause asks for how long, and why.
func TestAPauseHasAnEndAndAReason(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	asked := s.send(http.MethodPost, "/shop/confirm", with(s.form(s.get("/shop/event?id=waiting"), "Pause this kind"), "action", "pause"))
	form := s.form(asked.body, "Yes, pause")
	require.Contains(t, asked.body, `name="for"`)
	again := s.send(http.MethodPost, "/shop/act", with(form, "for", "2 hours", "reason", "<provider> down"))
	require.Equal(t, http.StatusBadRequest, again.StatusCode)
	require.Contains(t, again.body, "is not a duration from 1s")
	require.Contains(t, again.body, `value="2 hours"`)
	require.Contains(t, again.body, `value="&lt;provider&gt; down"`)
	require.Empty(t, s.paused())
	form = s.form(again.body, "Yes, pause")
	form.Del("for")
	form.Del("reason")
	began := time.Now()
	s.send(http.MethodPost, "/shop/act", with(form, "for", "90m", "reason", "<provider> down"))
	list, err := s.outbox.Paused(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.WithinDuration(t, began.Add(90*time.Minute), list[0].Until, time.Minute)
	require.Equal(t, "<provider> down", list[0].Reason)
	require.Equal(t, "ada", list[0].By)
	until := list[0].Until.UTC().Format("2006-01-02 15:04:05")
	for _, path := range []string{"/shop/steering", "/shop/event?id=waiting", "/shop/"} {
		page := s.get(path)
		require.Contains(t, page, until, path)
		require.Contains(t, page, "&lt;provider&gt; down", path)
	}
	require.Contains(t, s.get("/shop/steering"), "ada")
	overview := s.get("/shop/")
	require.Regexp(t, `Order / OrderPlaced, since <time [^>]+>[^<]+</time> by ada, until <time [^>]+>[^<]+</time> \(<time [^>]+>in 1 h (29|28) min</time>\): &lt;provider`, overview)
	for _, path := range []string{"/shop/", "/shop/event?id=waiting"} {
		resume := s.form(s.get(path), `aria-label="Resume Order / OrderPlaced"`)
		require.Equal(t, "OrderPlaced", resume.Get("event_type"), path)
		s.role = httptx.View
		page := s.get(path)
		require.NotContains(t, page, `value="resume"`, path)
		require.Contains(t, page, `<a href="steering">Pauses</a>`, path)
		s.role = everything
	}
	question, done := s.act(with(s.form(overview, "Resume Order"), "action", "resume"))
	require.Contains(t, done, "Order / OrderPlaced resumed: events that waited are delivered again.")
	require.Contains(t, question, "Resume Order / OrderPlaced?")
	require.Contains(t, question, "Events that are due and wait for the end of the pause: <strong>")
	require.Empty(t, s.paused())
	require.NoError(t, s.outbox.Pause(t.Context(), list[0]))
	require.Contains(t, s.get("/shop/event?id=waiting"), "by ada: ")
}

// A listener asked for the pause; Resume lifts it.
func TestAnAutomaticPauseIsShown(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	require.NoError(t, store.Pause(t.Context(), nil, outbox.Pause{Kind: orderPlaced, Since: time.Now(), Until: time.Now().Add(time.Hour), Reason: "503", By: "node-1", Automatic: true}))
	s := memorySite(t, store, func(*dashboard.Config) {})
	require.Contains(t, s.get("/shop/steering"), "a listener in node-1")
	s.act(with(s.form(s.get("/shop/steering"), "Resume Order / OrderPlaced"), "action", "resume"))
	require.Empty(t, s.paused())
}

// A pause is for all listeners, also when the group is of one.
func TestAPauseSaysThatItIsForAllListeners(t *testing.T) {
	t.Parallel()
	s := newSite(t, []dashtest.Row{listenerRow("x", outbox.StatusDead)})
	groups := s.get("/shop/dead")
	require.Contains(t, groups, "Order / Placed → mail")
	require.Contains(t, groups, `aria-label="Pause Order / Placed for all its listeners"`)
	asked, _ := s.act(with(s.form(groups, "Pause this kind"), "action", "pause"))
	require.Contains(t, asked, "Pause Order / Placed for all its listeners?")
}

func TestAPauseOfALockedDatabaseEnds(t *testing.T) {
	t.Parallel()
	store := heldStore{outboxtest.NewStore(), make(chan error)}
	s := memorySite(t, store, func(c *dashboard.Config) { c.Timeout = 50 * time.Millisecond })
	form := with(s.form(s.get("/shop/steering"), "Pause …</button>"), "action", "pause", "event_type", "x")
	_, action := s.act(form)
	require.Contains(t, action, "pause failed")
}

func TestALockedDatabaseBlocksNoOtherOutbox(t *testing.T) {
	t.Parallel()
	store := heldStore{outboxtest.NewStore(), make(chan error)}
	free := outboxtest.NewStore()
	other, err := outbox.New(outbox.Config{DB: free.DB(), Store: free})
	require.NoError(t, err)
	s := memorySite(t, store, func(c *dashboard.Config) { c.Outboxes["other"] = other })
	pause := func(outbox string) int {
		form := with(s.form(s.get("/"+outbox+"/steering"), "Pause …</button>"), "action", "pause", "event_type", "x")
		asked := s.send(http.MethodPost, "/"+outbox+"/confirm", form)
		return s.send(http.MethodPost, "/"+outbox+"/act", with(s.form(asked.body, "Yes, pause"))).StatusCode
	}
	for range 10 {
		require.Equal(t, 303, pause("shop"))
	}
	require.Equal(t, 503, pause("shop"))
	require.Equal(t, 303, pause("other"))
	for range 10 {
		store.let <- nil
	}
	require.NoError(t, s.page.Wait(t.Context()))
}

// A key that a listener pauses is shown as a kind is, and can be resumed.
func TestPausedKeysAreShownAndResumed(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	var up atomic.Bool
	require.NoError(t, s.outbox.Register(outbox.On("Hook", "Sent", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
		if up.Load() {
			return nil
		}
		return outbox.PauseKeyFor(time.Hour, errors.New("<endpoint> down"))
	}))))
	require.NoError(t, dashtest.Insert(t.Context(), s.db.DB, s.db.Kind, dashtest.Row{ID: "e1", Aggregate: "Hook", Type: "Sent", AggregateID: "<customer>", Created: time.Now()}))
	require.NoError(t, s.outbox.Start(t.Context()))
	var overview string
	require.Eventually(t, func() bool {
		overview = s.get("/shop/")
		return strings.Contains(overview, "&lt;customer&gt; of Hook / Sent, since ")
	}, 20*time.Second, 10*time.Millisecond)
	require.Contains(t, overview, "&lt;endpoint&gt; down")
	require.Contains(t, overview, "1 key paused by listeners")
	recorder := httptest.NewRecorder()
	admin := httptx.Admin(s.outbox, httptx.Access{Authorize: func(*http.Request) (string, httptx.Role) { return "ada", httptx.View }})
	admin.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/stats", nil))
	require.Contains(t, recorder.Body.String(), `"paused":[{"event_type":"Sent","aggregate_type":"Hook","aggregate_id":"\u003ccustomer\u003e","since":"20`)
	require.Contains(t, s.get("/shop/steering"), `name="aggregate_id" value="&lt;customer&gt;"`)
	up.Store(true)
	resume := s.form(s.get("/shop/steering"), "Resume &lt;customer&gt; of Hook / Sent")
	resume.Set("aggregate_id", "<customer>") // as a browser reads it
	asked := s.send(http.MethodPost, "/shop/confirm", with(resume, "action", "resume"))
	require.Contains(t, asked.body, "Resume &lt;customer&gt; of Hook / Sent?")
	resume = s.form(asked.body, "Yes, resume")
	resume.Set("aggregate_id", "<customer>")
	s.done(resume)
	list, err := s.outbox.Paused(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}
