package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestNoMorePagesThanMaxReadersReadTheTable(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, func(c *dashboard.Config) { c.Timeout, c.MaxReaders = 2*time.Millisecond, 2 })
	leave := s.page.TakePlaces("shop")
	for _, path := range []string{"/shop/", "/shop/events", "/shop/dead", "/shop/audit", "/shop/history"} {
		got := s.send(http.MethodGet, path, nil)
		require.Equal(t, http.StatusServiceUnavailable, got.StatusCode, path)
		require.Equal(t, "5", got.Header.Get("Retry-After"))
		require.Contains(t, got.body, "2 pages of this outbox are being read, which is Config.MaxReaders.")
	}
	s.get("/shop/charts") // reads nothing
	s.get("/-/style.css")
	leave()
	require.NotContains(t, s.send(http.MethodGet, "/shop/events", nil).body, "Config.MaxReaders")
}

// With a single place, a page that kept its place would make the next page wait for minutes.
func TestEachPageGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()), func(c *dashboard.Config) { c.MaxReaders = 1 })
	for _, path := range []string{
		"/shop/", "/shop/events", "/shop/events?status=x", "/shop/event?id=none", "/shop/payload?id=none", "/shop/dead", "/shop/letters", "/shop/steering",
		"/shop/audit", "/shop/history", "/shop/charts", "/shop/none",
	} {
		_ = s.send(http.MethodGet, path, nil)
	}
	_ = s.send(http.MethodPost, "/shop/confirm", url.Values{"action": {"none"}})
	s.get("/shop/")
}

func TestPagesShareWhatTheyReadUntilAChange(t *testing.T) {
	t.Parallel()
	rows := dashtest.Shop(time.Now())
	s := newSite(t, rows, func(c *dashboard.Config) { c.Interval = time.Hour })
	const none = "Nothing is paused."
	require.Contains(t, s.get("/shop/"), none)
	require.NoError(t, s.outbox.Pause(t.Context(), outbox.Pause{Kind: orderPlaced}))
	require.Contains(t, s.get("/shop/"), none, "the sample is less than an interval old")
	form := s.form(s.get("/shop/steering"), "Pause …</button>")
	form.Set("event_type", "Other")
	form.Set("aggregate_type", "Order")
	s.act(with(form, "action", "pause"))
	require.NotContains(t, s.get("/shop/"), none, "a change on this page is shown at once")
}
