package dashboard_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestTheOverviewShowsTheLastHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, stats := outboxtest.NewStore(), &atomic.Int64{}
		s := memorySite(t, countingStore{store, stats}, func(*dashboard.Config) {})
		require.Contains(t, s.get("/shop/charts"), "There is no sample yet.")
		require.Zero(t, stats.Load(), "the charts alone read nothing")
		start := time.Now()
		reports := func(i int64) {
			for _, owner := range []string{"api-1", "api-2"} {
				totals := &outbox.Totals{Written: 20 * i, Delivered: 10 * i, Failed: i, Latencies: []int64{0, 10 * i}}
				if owner == "api-2" {
					totals = &outbox.Totals{Written: 30 * i}
				}
				require.NoError(t, store.Announce(t.Context(), nil, outbox.Node{Owner: owner, Mode: "multi-node", Version: "v1.2.3", Started: start, Totals: totals}, 30*time.Second))
			}
		}
		time.Sleep(5 * time.Second)
		for i := range int64(31) { // five minutes without a page
			reports(i)
			time.Sleep(10 * time.Second)
		}
		require.NoError(t, s.outbox.Pause(outbox.WithOperator(t.Context(), outbox.Operator{Name: "ada"}), outbox.Pause{Kind: outbox.EventKind{EventType: "Paid"}}))
		body := s.get("/shop/")
		read := stats.Load()
		for _, want := range []string{
			`<svg id="stocks" role="img" aria-labelledby="stocks-caption"`, `<svg id="rates"`, "Events a second of all processes", "ada paused",
			"api-1 started with v1.2.3", `<td class="text" data-label="Version">v1.2.3</td>`, "Time from write to delivery of all processes, estimated: half within", `<a href="./?node=api-2">api-2</a>`,
			`data-label="Written">5</td>`, `<a href="history">JSON</a>`,
		} {
			require.Contains(t, body, want)
		}
		require.NotRegexp(t, `(?i)\sstyle=`, body)
		points := regexp.MustCompile(`<polyline class="written" points="([^"]*)"`).FindStringSubmatch(body)
		require.Len(t, strings.Fields(points[1]), 30)

		for range 20 { // tabs
			charts := s.get("/shop/charts?node=api-2")
			require.Contains(t, charts, "Events a second of api-2")
			require.Contains(t, charts, `data-label="Written">3</td>`)
			require.Contains(t, charts, `<a href="./?node=api-2" aria-current="true">api-2</a>`)
			require.Contains(t, charts, `<a href="history?node=api-2">JSON</a>`)
			require.True(t, strings.HasPrefix(charts, `<section id="history"`), "no whole page")
			require.Regexp(t, `<section id="pauses"(?s:.*)<li>Paid, since <time(?s:.*)<section id="processes"(?s:.*)<th scope="row" class="text">api-1</th>`, charts, "the lists of the last sample")
		}
		require.Equal(t, read, stats.Load(), "no tab reads from the database")
		require.Contains(t, s.get("/shop/?node=gone"), "Events a second of gone")
		s.get("/shop/?node="+strings.Repeat("x", 129), 400)
		require.Contains(t, s.get("/shop/charts?kind=x"), "Events a second of x")
		require.Contains(t, s.get("/shop/history?kind=x&node=api-1", 400), "processes are not kept apart by kind")
		s.get("/shop/charts?text=x", 400)

		got := s.send(http.MethodGet, "/shop/history", nil)
		require.Equal(t, "application/json", got.Header.Get("Content-Type"))
		var answer struct {
			From, To time.Time
			Nodes    []string
			Hour     struct {
				Delivered int64
				P50       float64 `json:"p50_seconds"`
				P99       float64 `json:"p99_seconds"`
			} `json:"last_hour"`
			Samples []struct {
				At        time.Time
				Pending   int64
				Written   *float64 `json:"written_per_second"`
				Delivered *float64 `json:"delivered_per_second"`
				Failed    *float64 `json:"failed_per_second"`
				Processes int
			}
			Marks []struct {
				At         time.Time
				What, Text string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
		require.Equal(t, time.Hour, answer.To.Sub(answer.From))
		require.Equal(t, []string{"api-1", "api-2"}, answer.Nodes)
		require.EqualValues(t, 300, answer.Hour.Delivered)
		require.InDelta(t, 0.0012, answer.Hour.P50, 0.0002)
		require.InDelta(t, 0.0014, answer.Hour.P99, 0.0001)
		require.Nil(t, answer.Samples[0].Written, "not known, and not zero")
		last := answer.Samples[30]
		require.InDelta(t, 5, *last.Written, 1e-9)
		require.InDelta(t, 1, *last.Delivered, 1e-9)
		require.InDelta(t, 0.1, *last.Failed, 1e-9)
		require.Equal(t, 2, last.Processes)
		require.WithinDuration(t, start.Add(310*time.Second), last.At, time.Second)
		require.Equal(t, "pause", answer.Marks[len(answer.Marks)-1].What)
		require.NotContains(t, s.get("/shop/history?node=none"), "written_per_second")

		s.role = 0
		for _, page := range []string{"/shop/charts", "/shop/history"} {
			s.get(page, 403)
		}
		s.role = httptx.View
		require.Equal(t, 405, s.send(http.MethodPost, "/shop/history", nil).StatusCode)
		s.page.EndStreams()
		synctest.Wait()
	})
}

func TestTheFirstPageHasASample(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	body := s.get("/shop/")
	require.Equal(t, 2, strings.Count(body, "<polyline"), "pending and dead")
	require.Contains(t, body, "of all processes (no process reports now)")
	require.Contains(t, body, "no delivery within the last minute; no delivery within the last hour")
	require.NotContains(t, body, `class="marks"`)
	require.NotContains(t, body, `class="choice"`)
}
