package main_test

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// The three buttons of the start page: an order that works, one that fails, and one that
// kills the service.
func TestTheButtonsGiveTheDashboardSomethingToShow(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testdb.Main()[2])
	s := p.start(t)
	s.healthy(t)
	start := s.page(t, http.MethodGet, "/")
	for _, action := range []string{`action="/try"`, `action="/try?simulate=listener-dead"`, `action="/try?simulate=kill"`, `href="/outbox/"`} {
		require.Contains(t, start, action)
	}
	require.Contains(t, s.page(t, http.MethodGet, "/outbox"), "<h1>Overview</h1>")
	require.Contains(t, s.page(t, http.MethodPost, "/try"), "<h1>Event</h1>")
	s.page(t, http.MethodPost, "/try?simulate=listener-dead")
	require.Eventually(t, func() bool {
		return strings.Contains(s.page(t, http.MethodGet, "/outbox/shop/dead"), "the warehouse does not know the item")
	}, 20*time.Second, 10*time.Millisecond)

	for _, path := range []string{"/try?simulate=kill", "/orders?simulate=kill", "/orders/bulk?simulate=kill"} {
		for _, header := range [][2]string{
			{"Origin", "https://elsewhere.example"},
			{"Host", "elsewhere.example"},
			{"X-Forwarded-For", "203.0.113.7"},
			{"Forwarded", "for=203.0.113.7"},
			{"Via", "1.1 proxy"},
		} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(anOrder))
			require.NoError(t, err)
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set(header[0], header[1])
			if header[0] == "Host" {
				request.Host = header[1]
			}
			response, err := s.client.Do(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, http.StatusForbidden, response.StatusCode, "%s with %s", path, header[0])
		}
	}

	for _, header := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/outbox/shop/", nil)
		require.NoError(t, err)
		request.Header.Set(header, "203.0.113.7")
		response, err := s.client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusForbidden, response.StatusCode, "a proxy on this machine passes on a request of another one")
	}

	require.Contains(t, s.page(t, http.MethodPost, "/try?simulate=kill"), "The service is being killed")
	_ = s.Wait()
	before, _ := p.delivered(t)
	again := p.start(t)
	require.Eventually(t, func() bool {
		after, _ := p.delivered(t)
		return len(after) == len(before)+1
	}, 60*time.Second, 20*time.Millisecond, "a second process delivers the event")
	groups := again.page(t, http.MethodGet, "/outbox/shop/dead")
	require.Contains(t, groups, "warehouse")

	// The new process does not remember the order that failed, but its replay is delivered.
	confirmation := again.submit(t, "confirm", groups, "replay")
	require.Contains(t, confirmation, "Yes, replay 1")
	again.submit(t, "act", confirmation, "replay")
	require.Eventually(t, func() bool {
		after, _ := p.delivered(t)
		return len(after) == len(before)+2
	}, 60*time.Second, 20*time.Millisecond, "the replayed event is delivered")
	require.Contains(t, again.page(t, http.MethodGet, "/outbox/shop/dead"), "No event is dead.")
	require.Contains(t, again.submit(t, "act", again.page(t, http.MethodGet, "/outbox/shop/steering"), "wake"), "The poller of this process was woken")
}

var (
	postForms = regexp.MustCompile(`(?s)<form method="post" action="([a-z]+)".*?</form>`)
	hidden    = regexp.MustCompile(`<input type="hidden" name="([a-z_]+)" value="([^"]*)">`)
)

// submit sends the first form of a page of the dashboard that has the action.
func (s *process) submit(t *testing.T, to, page, action string) string {
	t.Helper()
	for _, form := range postForms.FindAllStringSubmatch(page, -1) {
		if form[1] != to || !strings.Contains(form[0], action) {
			continue
		}
		values := url.Values{"action": {action}}
		for _, field := range hidden.FindAllStringSubmatch(form[0], -1) {
			values.Set(field[1], field[2])
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/outbox/shop/"+to, strings.NewReader(values.Encode()))
		require.NoError(t, err)
		request.SetBasicAuth("admin", "secret") // as call does
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := s.client.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, string(body))
		return string(body)
	}
	require.Fail(t, "no such form", "%s %s in %s", to, action, page)
	return ""
}

// page returns a page, also behind a redirection.
func (s *process) page(t *testing.T, method, path string) string {
	t.Helper()
	status, answer, err := s.call(method, path, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s %s: %s", method, path, answer)
	return string(answer)
}
