package dashboard

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// recorder fills a history: one sample every ten seconds from noon on.
type recorder struct {
	history
	n     int
	stats outbox.Stats
}

// at is the time of the next sample.
func (r *recorder) at() time.Time { return noon.Add(time.Duration(r.n) * historyEvery) }

func (r *recorder) sample(nodes ...outbox.Node) {
	r.add(r.at(), time.Duration(r.n)*historyEvery, historyEvery, &r.stats, nodes)
	r.n++
}

// node is a live node that has just reported.
func (r *recorder) node(owner string, totals *outbox.Totals) outbox.Node {
	return outbox.Node{Owner: owner, Mode: "multi-node", Live: true, Started: noon.Add(-time.Minute), SeenAt: r.at(), Totals: totals}
}

// wellFormed reads the elements of a text as XML.
func wellFormed(t *testing.T, text markup) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(string(visible([]byte(text))))); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err, text)
	}
}

func (s *series) bothCharts(t *testing.T) markup {
	t.Helper()
	factor, unit := s.rateUnit()
	marks := s.shownMarks()
	all := s.chart("stocks", "Events", stockLines, marks) + s.chart("rates", "Events a "+unit, rateLines(factor), marks) +
		s.latencyLine() + marksList(marks) + s.table(factor, unit) + s.choice()
	wellFormed(t, all)
	return all
}

func TestTheHistoryHasOneHour(t *testing.T) {
	t.Parallel()
	var r recorder
	for range 1000 {
		r.stats.Pending = int64(r.n)
		r.sample()
	}
	s := r.between(r.at().Add(-historyEvery), "")
	require.Len(t, s.points, 361, "both ends of the hour")
	require.EqualValues(t, 639, s.points[0].pending)
	require.EqualValues(t, 999, s.points[360].pending)
	require.LessOrEqual(t, len(r.points), 362)
	require.Empty(t, r.between(r.at().Add(2*time.Hour), "").points)
}

func TestASampleEveryTenSecondsIsKept(t *testing.T) {
	t.Parallel()
	var h history
	for i := range 61 { // as the live overview reads
		h.add(noon.Add(time.Duration(i)*2*time.Second), time.Duration(i)*2*time.Second, historyEvery, &outbox.Stats{}, nil)
	}
	require.Len(t, h.points, 13)
	require.Equal(t, historyEvery-historyJitter, h.wait(2*time.Minute))
	for i := range 1000 { // early, each time by as much as is allowed
		up := 3*time.Minute + time.Duration(i)*(historyEvery-historyJitter)
		h.add(noon.Add(up), up, historyEvery, &outbox.Stats{}, nil)
	}
	require.LessOrEqual(t, len(h.points), historyPoints)
	last := h.points[len(h.points)-1].at
	require.True(t, h.points[0].at.Before(last.Add(-historySpan+historyEvery)), "it is an hour all the same")
}

func TestAClockThatStepsLeavesOneLine(t *testing.T) {
	t.Parallel()
	var h history
	up := time.Duration(0)
	add := func(wall time.Time) {
		h.add(wall, up, historyEvery, &outbox.Stats{}, nil)
		up += historyEvery
	}
	for i := range 10 {
		add(noon.Add(time.Duration(i) * historyEvery))
	}
	back := noon.Add(45 * time.Second)
	add(back)
	require.Len(t, h.points, 6, "the points of the future are gone, the sample is there")
	for i := 1; i < len(h.points); i++ {
		require.True(t, h.points[i].at.After(h.points[i-1].at))
	}
	add(back.Add(30 * time.Minute)) // ahead
	s := h.between(back.Add(30*time.Minute), "")
	require.Len(t, s.points, 7)
	require.Equal(t, 2, strings.Count(string(s.line(stockLines[0], 1)), "<polyline"), "with a gap")
	add(back.Add(24 * time.Hour))
	require.Len(t, h.points, 1)
}

func TestRatesAreThoseBetweenTwoReports(t *testing.T) {
	t.Parallel()
	var r recorder
	a := r.node("a", &outbox.Totals{Written: 1000, Delivered: 900, Failed: 5, Latencies: []int64{900}})
	r.sample(a)
	require.False(t, r.points[0].all.known, "a single report has no rate")
	a = r.node("a", &outbox.Totals{Written: 1100, Delivered: 950, Failed: 6, Latencies: []int64{920, 30}})
	b := r.node("b", &outbox.Totals{Written: 7})
	r.sample(a, b)
	got := r.points[1].all
	require.True(t, got.known)
	require.Equal(t, []float64{10, 5, .1}, []float64{got.written, got.delivered, got.failed})
	require.Equal(t, []int64{20, 30}, got.latencies)
	b = r.node("b", &outbox.Totals{Written: 27})
	r.sample(a, b) // a has not reported again
	got = r.points[2].all
	require.Equal(t, []float64{12, 5, .1}, []float64{got.written, got.delivered, got.failed}, "its rates stay")
	require.Empty(t, got.latencies, "its deliveries are not counted twice")
	require.InDelta(t, 2, r.between(r.at(), "b").points[2].all.written, 0)
	require.Equal(t, []string{"a", "b"}, r.between(r.at(), "").nodes)
	require.False(t, r.between(r.at(), "none").points[2].all.known)

	for name, change := range map[string]func(n *outbox.Node){
		"an older version":           func(n *outbox.Node) { n.Totals = nil },
		"numbers that went back":     func(n *outbox.Node) { n.Totals.Written = 3 },
		"a clock that went back":     func(n *outbox.Node) { n.SeenAt = n.SeenAt.Add(-time.Hour) },
		"a node that died":           func(n *outbox.Node) { n.Live = false },
		"a report that is not valid": func(n *outbox.Node) { n.Problem, n.Totals = "not valid", nil },
	} {
		r := recorder{}
		n := r.node("a", &outbox.Totals{Written: 10})
		r.sample(n)
		n = r.node("a", &outbox.Totals{Written: 20})
		change(&n)
		r.sample(n)
		require.False(t, r.points[1].all.known, name)
	}
	r = recorder{} // a process that starts again, with the same name
	r.sample(r.node("a", &outbox.Totals{Written: 1000, Latencies: []int64{1000}}))
	again := r.node("a", &outbox.Totals{Written: 10, Latencies: []int64{0, 10}})
	again.Started = noon.Add(time.Second)
	r.sample(again)
	require.InDelta(t, 1, r.points[1].all.written, 1e-9)
	require.Equal(t, []int64{0, 10}, r.points[1].all.latencies)
}

func TestManyNodesAreBounded(t *testing.T) {
	t.Parallel()
	var r recorder
	for i := range 3 {
		nodes := make([]outbox.Node, 10_000)
		for n := range nodes {
			nodes[n] = r.node(fmt.Sprintf("node-%05d", n), &outbox.Totals{Written: int64(10 * i), Latencies: make([]int64, 1000)})
			nodes[n].Kinds = make([]outbox.EventKind, 10_000)
			nodes[n].Started = r.at()
		}
		r.sample(nodes...)
	}
	require.Len(t, r.points[2].nodes, historyNodes)
	require.InDelta(t, 10_000*2, r.points[2].all.written, 1e-6, "the rates of all")
	require.Len(t, r.points[2].all.latencies, latencyCounts)
	require.Len(t, r.marks, historyMarks)
	for _, n := range r.nodes {
		require.Nil(t, n.Kinds)
	}
	page := r.between(r.at(), "").bothCharts(t)
	require.Less(t, len(page), 30_000)
	require.Equal(t, historyNodes+1, strings.Count(string(page), `<a href="./`))
}

func TestStartsDeathsAndPausesAreMarked(t *testing.T) {
	t.Parallel()
	var r recorder
	old := r.node("old", nil)
	old.Started = noon.Add(-24 * time.Hour)
	died := outbox.Node{Owner: "died", Mode: "ordered", Started: noon.Add(-48 * time.Hour), SeenAt: noon.Add(-20 * time.Minute)}
	r.sample(old, died)
	kind := outbox.EventKind{AggregateType: "Order", EventType: "Paid"}
	r.stats.Paused = []outbox.Pause{
		{Kind: kind, Since: r.at().Add(-2 * time.Second), Automatic: true},
		{Kind: kind, AggregateID: "7", Since: r.at(), Automatic: true},
		{Kind: outbox.EventKind{EventType: "ByOperator"}, Since: r.at()},
	}
	fresh := r.node("fresh", nil)
	fresh.Started = r.at().Add(-time.Second)
	r.sample(old, died, fresh)
	r.sample(old, died, fresh) // nothing new
	r.stats.Paused = nil
	r.sample(died, fresh)
	fresh.Live = false
	r.sample(died, fresh)
	fresh.Live = true
	r.sample(died, fresh)
	fresh.Started = r.at()
	r.sample(died, fresh)
	r.took([]outbox.AuditEntry{{At: noon.Add(5 * time.Second), Operator: outbox.Operator{Name: "ada"}, Action: "replay", Target: "group=x", Count: 1320}})
	var got []string
	for _, m := range r.between(r.at(), "").marks {
		got = append(got, m.at.Sub(noon).String()+" "+m.what+" "+m.text)
	}
	require.Equal(t, []string{
		"-20m0s death died last reported, and then died",
		"5s replay ada replayed group=x (1\u202f320)",
		"8s pause a listener paused Order / Paid",
		"9s start fresh started",
		"10s death fresh last reported, and then died",
		"30s stop old stopped",
		"30s resume the pause of Order / Paid ended",
		"50s start fresh reports again",
		"1m0s start fresh started",
	}, got)
}

func TestMarksThatAreCloseHaveOneNumber(t *testing.T) {
	t.Parallel()
	s := &series{from: noon.Add(-historySpan), left: noon.Add(-historySpan), to: noon}
	for i := range 60 {
		what := "start"
		if i == 57 {
			what = "death"
		}
		s.marks = append(s.marks, mark{s.from.Add(time.Duration(i) * time.Second), what, fmt.Sprint("mark ", i)})
	}
	s.marks = append(s.marks, mark{noon, "pause", "the last"})
	marks := s.shownMarks()
	require.Len(t, marks, 2)
	require.True(t, marks[0].bad)
	require.False(t, marks[1].bad)
	list := string(marksList(marks))
	require.Contains(t, list, "mark 57</span> <span><time class=\"clock\" datetime=\"2026-11-29T11:00:00Z\">11:00:00</time> mark 0</span>")
	require.Contains(t, list, "mark 3</span> and 55 more</li>")
	require.Contains(t, list, "12:00:00</time> the last</span>")
	s.marks = nil
	for i := range 31 {
		s.marks = append(s.marks, mark{s.from.Add(time.Duration(i) * 2 * time.Minute), "purge", fmt.Sprint("mark ", i)})
	}
	marks = s.shownMarks()
	require.Len(t, marks, maxMarks, "the latest")
	require.Equal(t, "mark 30", marks[maxMarks-1].marks[0].text)
	require.Equal(t, maxMarks, marks[maxMarks-1].number)
}

func TestAGapIsNoLine(t *testing.T) {
	t.Parallel()
	var r recorder
	for range 3 {
		r.sample()
	}
	r.n++ // one sample is missing: the line goes on
	r.sample()
	r.n += 2 // two
	r.sample()
	r.n += 10
	r.stats.Pending = 4
	r.sample()
	lines := string(r.between(r.at(), "").line(stockLines[0], 4))
	from := 600 - int(r.at().Sub(noon).Seconds())
	require.Equal(t, fmt.Sprintf(`<polyline class="pending" points="%d,100.0 %d,100.0 %d,100.0 %d,100.0"></polyline>`+
		`<polyline class="pending" points="%d,100.0 %d,100.0"></polyline><polyline class="pending" points="%d,0.0 %d,0.0"></polyline>`,
		from, from+10, from+20, from+40, from+70, from+70, from+180, from+180), lines)

	h := history{} // a sampler that rests for longer has no gap
	for i := range 3 {
		at := time.Duration(i) * time.Minute
		h.add(noon.Add(at), at, time.Minute, &outbox.Stats{}, nil)
	}
	require.Equal(t, 1, strings.Count(string(h.between(noon.Add(time.Hour), "").line(stockLines[0], 1)), "<polyline"))
}

func TestTheTimesOfTheAxisAreRound(t *testing.T) {
	t.Parallel()
	for span, want := range map[time.Duration]string{
		time.Second:      "11:54 11:56 11:58 12:00 12:02",
		20 * time.Minute: "11:45 11:50 11:55 12:00",
		time.Hour:        "11:10 11:20 11:30 11:40 11:50 12:00",
	} {
		now := noon.Add(150 * time.Second)
		r := recorder{}
		for _, at := range []time.Time{now.Add(-span), now.Add(-time.Second)} {
			r.add(at, at.Sub(now), historyEvery, &outbox.Stats{}, nil)
		}
		s := r.between(now, "")
		var texts []string
		for _, at := range s.times() {
			texts = append(texts, at.Format("15:04"))
			require.NotContains(t, s.across(at), "-")
		}
		require.Equal(t, want, strings.Join(texts, " "), span)
	}
	r := recorder{} // a mark of the audit log is older than the samples
	r.took([]outbox.AuditEntry{{At: noon.Add(-50 * time.Minute)}})
	r.sample()
	s := r.between(noon, "")
	require.Equal(t, noon.Add(-50*time.Minute), s.left)
	require.Equal(t, "0.00%", s.across(s.marks[0].at))
	require.Equal(t, "100.00%", s.across(noon))
}

func TestTicksAreRound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		most  float64
		whole bool
		want  string
	}{
		{0, true, "0 1"},
		{1, true, "0 1"},
		{3, true, "0 1 2 3"},
		{4, false, "0 1 2 3 4"},
		{0.3, false, "0 0.1 0.2 0.3"},
		{0.0007, false, "0 0.0002 0.0004 0.0006 0.0008"},
		{17, true, "0 5 10 15 20"},
		{100_000, true, "0 50\u202fk 100\u202fk"},
		{1234, false, "0 500 1\u202fk 1.5\u202fk"},
		{2.5e9, false, "0 1\u202fG 2\u202fG 3\u202fG"},
		{math.MaxInt64, true, "0 5e+18 1e+19"},
		{math.Inf(1), false, "0 0.5 1"},
		{math.NaN(), false, "0 0.5 1"},
		{5e-324, false, "0 0.5 1"},
	} {
		ticks := axis(test.most, test.whole)
		var texts []string
		for _, tick := range ticks {
			texts = append(texts, short(tick))
		}
		require.Equal(t, test.want, strings.Join(texts, " "), "%g", test.most)
	}
}

func TestChartsOfExtremes(t *testing.T) {
	t.Parallel()
	for _, stats := range []outbox.Stats{{}, {Pending: outbox.StatsLimit, Dead: 1}, {Pending: math.MaxInt64, Dead: math.MaxInt64}, {Pending: 1}} {
		for _, each := range []int64{0, 1, 1000, math.MaxInt64 / 2} {
			var r recorder
			r.stats = stats
			r.sample(r.node("a", &outbox.Totals{}))
			one := r.between(r.at(), "").bothCharts(t)
			require.Equal(t, 2, strings.Count(string(one), "<polyline"), "one sample: two points, no rates")
			r.sample(r.node("a", &outbox.Totals{Written: each, Delivered: each, Failed: each, Latencies: []int64{each}}))
			two := string(r.between(r.at(), "").bothCharts(t))
			require.Equal(t, 5, strings.Count(two, "<polyline"))
			require.NotContains(t, two, "NaN")
			require.NotContains(t, two, "Inf")
		}
	}
	var r recorder
	r.stats.Pending = outbox.StatsLimit
	r.sample(r.node("a", &outbox.Totals{}))
	r.sample(r.node("a", &outbox.Totals{Delivered: 1}))
	page := string(r.between(r.at(), "").bothCharts(t))
	require.Contains(t, page, "Events a minute", "0.1 a second is 6 a minute")
	require.Contains(t, page, `data-label="Delivered">6</td>`)
	require.Contains(t, page, "100\u202f000 or more")
}

func TestChartsEscapeNames(t *testing.T) {
	t.Parallel()
	const hostile = `"><script>alert(1)</script>&` + "\u202e"
	var r recorder
	for i := range 3 {
		r.stats.Paused = []outbox.Pause{{Kind: outbox.EventKind{EventType: hostile, AggregateType: hostile}, Automatic: true, Since: r.at()}}
		a, b := r.node(hostile, &outbox.Totals{Written: int64(i)}), r.node("b", &outbox.Totals{})
		a.Started = r.at()
		r.sample(a, b)
	}
	r.took([]outbox.AuditEntry{{At: noon, Operator: outbox.Operator{Name: hostile}, Action: hostile, Target: hostile}})
	for _, node := range []string{"", hostile, "b"} {
		page := string(visible([]byte(r.between(r.at(), node).bothCharts(t))))
		require.NotContains(t, page, "<script")
		require.Contains(t, page, "&lt;script&gt;")
		require.Contains(t, page, `\u202E`)
	}
}

func TestQuantilesAreBetweenTheBounds(t *testing.T) {
	t.Parallel()
	require.Zero(t, quantile(nil, .5))
	require.Zero(t, quantile([]int64{0, 0}, .5))
	require.Equal(t, 500*time.Microsecond, quantile([]int64{10}, .5))
	counts := make([]int64, 20)
	counts[2], counts[19] = 98, 2
	require.Less(t, quantile(counts, .5), outbox.LatencyBound(2))
	require.Greater(t, quantile(counts, .5), outbox.LatencyBound(1))
	require.Greater(t, quantile(counts, .99), outbox.LatencyBound(18))
	require.Less(t, quantile(counts, .99), outbox.LatencyBound(19))
	endless := make([]int64, latencyCounts)
	endless[latencyCounts-1] = 5
	require.Equal(t, outbox.LatencyBound(latencyCounts-2), quantile(endless, .99), "at least")
	require.Equal(t, time.Duration(math.MaxInt64), outbox.LatencyBound(latencyCounts-1), "the number of counts is that of package outbox")
	require.NotEqual(t, time.Duration(math.MaxInt64), outbox.LatencyBound(latencyCounts-2))
}

// failingStore answers the reads of the sampler, or does not.
type failingStore struct {
	*outboxtest.Store
	stats, fails, slow atomic.Int64 // slow: how long a read takes
}

func (s *failingStore) Stats(ctx context.Context, db outbox.DB, now time.Time, paused []outbox.EventKind) (outbox.StoreStats, error) {
	s.stats.Add(1)
	time.Sleep(time.Duration(s.slow.Load()))
	if s.fails.Add(-1) >= 0 {
		return outbox.StoreStats{}, errors.New("no database")
	}
	return s.Store.Stats(ctx, db, now, paused)
}

func TestTheSamplerReadsWithoutViewers(t *testing.T) {
	t.Parallel()
	sampling := func(name string, do func(t *testing.T, d *Dashboard, ob *outbox.Outbox, store *failingStore, h *history)) {
		within := func(t *testing.T) {
			store := &failingStore{Store: outboxtest.NewStore()}
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
			require.NoError(t, err)
			d, err := New(Config{
				Outboxes: map[string]*outbox.Outbox{"shop": ob},
				Access:   httptx.Access{Authorize: func(*http.Request) (string, httptx.Role) { return "", httptx.View }},
			})
			require.NoError(t, err)
			t.Cleanup(d.EndStreams)
			do(t, d, ob, store, &d.samplers["shop"].history)
		}
		t.Run(name, func(t *testing.T) { synctest.Test(t, within) })
	}
	sampling("every ten seconds until EndStreams", func(t *testing.T, d *Dashboard, _ *outbox.Outbox, store *failingStore, h *history) {
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		require.Len(t, h.points, 6)
		require.EqualValues(t, 6, store.stats.Load())
		d.EndStreams()
		time.Sleep(time.Minute)
		require.EqualValues(t, 6, store.stats.Load(), "EndStreams ends the sampler")
	})
	sampling("until the outbox closes", func(t *testing.T, _ *Dashboard, ob *outbox.Outbox, store *failingStore, _ *history) {
		time.Sleep(11 * time.Second)
		require.NoError(t, ob.Close(context.WithoutCancel(t.Context())))
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, store.stats.Load(), "Close of the outbox ends the sampler")
	})
	sampling("not while pages are live", func(t *testing.T, d *Dashboard, _ *outbox.Outbox, store *failingStore, h *history) {
		_, leave := d.samplers["shop"].watch() // reads every two seconds
		_, leaveToo := d.samplers["shop"].watch()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		require.EqualValues(t, 31, store.stats.Load(), "no more reads than for one live overview")
		require.Len(t, h.points, 7)
		leave()
		leaveToo()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, h.points, 13, "it goes on without viewers")
	})
	sampling("errors", func(t *testing.T, _ *Dashboard, _ *outbox.Outbox, store *failingStore, h *history) {
		store.fails.Store(3)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		require.Len(t, h.points, 3, "errors leave a gap")
	})
	sampling("a slow database", func(t *testing.T, _ *Dashboard, _ *outbox.Outbox, store *failingStore, h *history) {
		store.slow.Store(int64(time.Second))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.EqualValues(t, 6, store.stats.Load(), "a hundredth of the time")
		require.Equal(t, 100*time.Second, h.points[1].rest)
		require.True(t, h.points[2].follows(&h.points[1]))
	})
}
