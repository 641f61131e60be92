package main_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
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

	for _, header := range [][2]string{{"Origin", "https://elsewhere.example"}, {"Host", "elsewhere.example"}} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/try?simulate=kill", nil)
		require.NoError(t, err)
		request.Header.Set(header[0], header[1])
		if header[0] == "Host" {
			request.Host = header[1]
		}
		response, err := s.client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusForbidden, response.StatusCode, header[0])
	}

	require.Contains(t, s.page(t, http.MethodPost, "/try?simulate=kill"), "The service is being killed")
	_ = s.Wait()
	before, _ := p.delivered(t)
	again := p.start(t)
	require.Eventually(t, func() bool {
		after, _ := p.delivered(t)
		return len(after) == len(before)+1
	}, 60*time.Second, 20*time.Millisecond, "a second process delivers the event")
	require.Contains(t, again.page(t, http.MethodGet, "/outbox/shop/dead"), "warehouse")
}

// page returns a page, also behind a redirection.
func (s *process) page(t *testing.T, method, path string) string {
	t.Helper()
	status, answer, err := s.call(method, path, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s %s: %s", method, path, answer)
	return string(answer)
}
