package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// countingStore counts the queries of the overview.
type countingStore struct {
	*outboxtest.Store
	stats *atomic.Int64
}

func (s countingStore) Stats(ctx context.Context, db outbox.DB, now time.Time, paused []outbox.EventKind) (outbox.StoreStats, error) {
	s.stats.Add(1)
	return s.Store.Stats(ctx, db, now, paused)
}

// viewer reads the events of a stream.
type viewer struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

func watch(t *testing.T, address string) (*viewer, int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	require.NoError(t, err)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	return &viewer{t, bufio.NewScanner(response.Body), cancel}, response.StatusCode
}

// next is the next event; false: the stream has ended.
func (v *viewer) next() (texts map[string]string, problem string, ok bool) {
	v.t.Helper()
	for v.lines.Scan() {
		data, is := strings.CutPrefix(v.lines.Text(), "data: ")
		if !is {
			continue
		}
		var event struct {
			Texts   map[string]string
			Problem string
		}
		require.NoError(v.t, json.Unmarshal([]byte(data), &event))
		return event.Texts, event.Problem, true
	}
	return nil, "", false
}

func liveSite(t *testing.T, viewers int) (s *site, server *httptest.Server, stats *atomic.Int64) {
	t.Helper()
	stats = &atomic.Int64{}
	s = memorySite(t, countingStore{outboxtest.NewStore(), stats}, func(c *dashboard.Config) {
		c.Interval, c.MaxViewers = 100*time.Millisecond, viewers
		var users atomic.Int64
		c.Access.Authorize = func(*http.Request) (string, httptx.Role) {
			return fmt.Sprint("user ", users.Add(1)), httptx.View
		}
	})
	server = httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	t.Cleanup(s.page.EndStreams)
	return s, server, stats
}

func TestViewersShareOneSampler(t *testing.T) {
	t.Parallel()
	_, server, stats := liveSite(t, 20)
	var viewers []*viewer
	for range 20 {
		v, status := watch(t, server.URL+prefix+"/shop/live")
		require.Equal(t, 200, status)
		viewers = append(viewers, v)
	}
	_, status := watch(t, server.URL+prefix+"/shop/live")
	require.Equal(t, 503, status, "there are 20 viewers")
	before, began := stats.Load(), time.Now()
	for _, v := range viewers {
		for range 3 {
			texts, _, ok := v.next()
			require.True(t, ok)
			require.Equal(t, "0", texts["due"])
		}
	}
	require.LessOrEqual(t, stats.Load()-before, int64(time.Since(began)/(100*time.Millisecond))+2, "one set of queries an interval, not one a viewer")
	for _, v := range viewers {
		v.cancel()
	}
	require.Eventually(t, func() bool { // the sampler stops with its last viewer
		n := stats.Load()
		time.Sleep(250 * time.Millisecond)
		return stats.Load() == n
	}, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		v, status := watch(t, server.URL+prefix+"/shop/live")
		if status == 200 {
			v.next()
		}
		v.cancel()
		return status == 200
	}, 20*time.Second, 10*time.Millisecond, "places are free again")
}

// One user must not take the places of all others.
func TestAUserMayHaveTenLivePages(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ada", ""} { // without a name it is the address that counts
		s := memorySite(t, outboxtest.NewStore(), func(c *dashboard.Config) { c.MaxViewers = 12 })
		s.user = name
		server := httptest.NewServer(s.handler)
		t.Cleanup(server.Close)
		t.Cleanup(s.page.EndStreams)
		var last *viewer
		for range 10 {
			v, status := watch(t, server.URL+prefix+"/shop/live")
			require.Equal(t, 200, status)
			last = v
		}
		_, status := watch(t, server.URL+prefix+"/shop/live")
		require.Equal(t, 503, status)
		last.cancel()
		require.Eventually(t, func() bool {
			_, status := watch(t, server.URL+prefix+"/shop/live")
			return status == 200
		}, 20*time.Second, 10*time.Millisecond, "its place is free again")
	}
}

func TestEndStreamsEndsThem(t *testing.T) {
	t.Parallel()
	s, server, _ := liveSite(t, 5)
	v, status := watch(t, server.URL+prefix+"/shop/live")
	require.Equal(t, 200, status)
	_, _, ok := v.next()
	require.True(t, ok)
	s.page.EndStreams()
	for ok {
		_, _, ok = v.next()
	}
	require.NoError(t, server.Config.Shutdown(t.Context()), "nothing holds it up")
}

func TestHeadOfTheStreamDoesNotWatch(t *testing.T) {
	t.Parallel()
	s, _, stats := liveSite(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodHead, prefix+"/shop/live", nil))
	require.NoError(t, ctx.Err(), "it ends at once")
	require.Equal(t, 200, recorder.Code)
	require.Zero(t, stats.Load())
}
