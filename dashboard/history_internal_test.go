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
	all := s.chart("stocks", "Events", stockLines, marks) + s.chart("rates", "Events a "+unit, s.rateLines(factor), marks) +
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
	s := r.between(r.at().Add(-historyEvery), "", "")
	require.Len(t, s.points, 361, "both ends of the hour")
	require.EqualValues(t, 639, s.points[0].pending)
	require.EqualValues(t, 999, s.points[360].pending)
	require.LessOrEqual(t, len(r.points), 362)
	require.Empty(t, r.between(r.at().Add(2*time.Hour), "", "").points)
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
	s := h.between(back.Add(30*time.Minute), "", "")
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
	require.InDelta(t, 2, r.between(r.at(), "b", "").points[2].all.written, 0)
	require.Equal(t, []string{"a", "b"}, r.between(r.at(), "", "").nodes)
	require.False(t, r.between(r.at(), "none", "").points[2].all.known)

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
	page := r.between(r.at(), "", "").bothCharts(t)
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
	for _, m := range r.between(r.at(), "", "").marks {
		got = append(got, m.at.Sub(noon).String()+" "+m.what+" "+m.text)
	}
	require.Equal(t, []string{
		"-20m0s death died made its last report",
		"5s replay ada replayed group=x (1\u202f320)",
		"8s pause a listener paused Order / Paid",
		"9s start fresh started",
		"10s death fresh made its last report",
		"30s stop old stopped",
		"30s resume the pause of Order / Paid ended",
		"50s start fresh reports again",
		"1m0s start fresh started",
	}, got)
}

func TestTheBusiestKindsHaveRates(t *testing.T) {
	t.Parallel()
	var r recorder
	kind := func(i int) outbox.EventKind {
		return outbox.EventKind{AggregateType: "Order", EventType: outbox.EventType(fmt.Sprintf("T%02d", i))}
	}
	report := func(owner string, step int64, kinds int) outbox.Node {
		totals := &outbox.Totals{}
		for i := range kinds {
			k := outbox.KindTotals{Kind: kind(i), Delivered: step * int64(1000-10*i), Failed: step * int64(i)}
			totals.Delivered, totals.Failed, totals.Written = totals.Delivered+k.Delivered, totals.Failed+k.Failed, totals.Written+k.Delivered
			totals.Kinds = append(totals.Kinds, k)
		}
		return r.node(owner, totals)
	}
	for step := range int64(3) {
		r.sample(report("a", step, 30), report("b", step, 1), r.node("older", &outbox.Totals{Delivered: 50 * step}))
	}
	last := func(kind string) flow {
		s := r.between(r.at(), "", kind)
		return s.points[len(s.points)-1].all
	}
	require.InDelta(t, 200, last("Order / T00").delivered, 1e-9, "of both processes")
	require.InDelta(t, 0.1, last("Order / T01").failed, 1e-9)
	require.Zero(t, last("Order / T25").delivered, "a kind beyond the first twenty")
	others := 5.0
	for i := historyKinds; i < 30; i++ {
		others += float64(1000-10*i) / 10
	}
	require.InDelta(t, others, last(otherKinds).delivered, 1e-6)
	s := r.between(r.at(), "", "Order / T01")
	require.Len(t, s.kinds, historyKinds)
	require.Equal(t, "Order / T00", s.kinds[0])
	page := string(s.bothCharts(t))
	require.Contains(t, page, `<a href="./?kind=Order+%2F+T01" aria-current="true">Order / T01</a>`)
	require.Contains(t, page, `<a href="./?kind=%2A">others</a>`)
	require.NotContains(t, page, `<polyline class="written"`)
	require.Contains(t, page, "not counted by kind")
	require.Contains(t, page, `data-label="Written">–</td>`)

	all := r.between(r.at(), "", "")
	table := string(all.kindsTable(1, "second"))
	wellFormed(t, markup(table))
	require.Less(t, strings.Index(table, "Order / T19"), strings.Index(table, "Order / T00"), "what fails most comes first")
	require.Contains(t, table, `<a href="./?kind=%2A">others</a>`)
	require.Equal(t, historyKinds+1, strings.Count(table, `<th scope="row"`))
	require.NotContains(t, table, `class="bad"`)
	r.sample(r.node("a", &outbox.Totals{Written: 1e9, Delivered: 1e6, Failed: 1e7, Kinds: []outbox.KindTotals{{Kind: kind(0), Delivered: 1e6, Failed: 1e7}}}))
	require.Contains(t, string(r.between(r.at(), "", "").kindsTable(1, "second")), `<span class="bad">`)
	for i := range 2000 { // ever other kinds
		other := outbox.KindTotals{Kind: kind(i), Delivered: 5}
		r.sample(r.node("a", &outbox.Totals{Delivered: int64(5 * i), Kinds: []outbox.KindTotals{other}}))
	}
	require.LessOrEqual(t, len(r.kinds), historyNames)
	require.NotPanics(t, func() { r.between(r.at(), "", "Order / T1999") })
}

func TestAYoungHistorySaysWhenItBegins(t *testing.T) {
	t.Parallel()
	var r recorder
	for range 30 {
		r.sample()
	}
	require.Contains(t, string(r.between(r.at(), "", "").begin()), `>12:00:00</time>: before that this process has no samples.`)
	for r.n < 370 {
		r.sample()
	}
	require.Empty(t, r.between(r.at(), "", "").begin(), "the samples of an hour are there")
}

// A difference of floats leaves a rest, which is no rate.
func TestOtherKindsHaveNoRestOfADifference(t *testing.T) {
	t.Parallel()
	p := point{all: flow{known: true}}
	for i, rate := range []float64{0.1, 0.2, 0.3} {
		p.kinds = append(p.kinds, kindFlow{index: i, delivered: rate, failed: rate})
		p.all.delivered, p.all.failed = p.all.delivered+rate, p.all.failed+rate
	}
	require.NotZero(t, p.all.delivered-p.kinds[0].delivered-p.kinds[1].delivered-p.kinds[2].delivered, "the test has a rest")
	others := p.ofKind(0, false)
	require.Zero(t, others.delivered)
	require.Zero(t, others.failed)
	p.kinds = append(p.kinds, kindFlow{index: 3, delivered: 1e-4})
	require.InDelta(t, 1e-4, p.ofKind(3, true).delivered, 0, "a kind with an event in hours keeps its rate")
}

func TestAKindThatIsReportedAgainHasNoPeak(t *testing.T) {
	t.Parallel()
	total := func(name string, n int64) outbox.KindTotals {
		return outbox.KindTotals{Kind: outbox.EventKind{EventType: outbox.EventType(name)}, Delivered: n}
	}
	rate := func(now, before int64) float64 { return float64(now - before) }
	got := kindsOf([]outbox.KindTotals{total("a", 100), total("b", 50)}, []outbox.KindTotals{total("a", 110), total("again", 60), total("new", 5), total("b", 40)}, rate)
	require.Len(t, got, 2)
	require.InDelta(t, 10, got[outbox.EventKind{EventType: "a"}].delivered, 0)
	require.InDelta(t, 5, got[outbox.EventKind{EventType: "new"}].delivered, 0)
}

func TestTheFirstStartOfAVersionIsADeploy(t *testing.T) {
	t.Parallel()
	var r recorder
	starts := func(owner, version string) outbox.Node {
		n := r.node(owner, nil)
		n.Version, n.Started = version, r.at()
		return n
	}
	a, b := starts("a", "v1"), starts("b", "v1")
	r.sample(b, a) // no version before is known
	a = starts("a", "v1")
	r.sample(b, a)
	a = starts("a", "v2")
	r.sample(a, b)
	b = starts("b", "v2")
	r.sample(a, b)
	old := starts("old", "") // an older version of the outbox
	r.sample(a, b, old)
	old = starts("old", "v1")
	r.sample(a, b, old) // back to the version before
	r.sample(a, b, outbox.Node{Owner: "old", Live: true, Problem: "not valid"})
	marked := func() (got []string) {
		for _, m := range r.marks {
			got = append(got, m.what+" "+m.version+": "+m.text)
		}
		return got
	}
	require.Equal(t, []string{
		"start v1: b started with v1", "start v1: a started with v1", "start v1: a started with v1", "deploy v2: deploy v2: a started",
		"start v2: b started with v2", "start : old started", "start v1: old started with v1",
	}, marked())
	for range 400 { // v1 is forgotten after an hour
		r.sample(a, b)
	}
	c := starts("c", "v1")
	r.sample(a, b, c)
	require.Equal(t, []string{"deploy v1: deploy v1: c started"}, marked())
	for i := range 2 * historyVersions {
		r.sample(a, b, starts("c", fmt.Sprint("v", 10+i)))
	}
	require.Len(t, r.versions, historyVersions)

	r = recorder{} // a dashboard that starts in the new process of a deploy
	fresh := starts("fresh", "v2")
	dead := starts("dead", "v1")
	dead.Live, dead.Started = false, noon.Add(-time.Hour)
	r.sample(fresh, dead)
	require.Equal(t, "deploy v2: fresh started", r.marks[len(r.marks)-1].text)
	r = recorder{}
	r.sample(starts("upgraded", "v2"), starts("older", ""))
	require.Equal(t, "upgraded started with v2", r.marks[0].text, "both started at once")
	older := starts("older", "")
	older.Started = noon.Add(-time.Hour)
	r = recorder{}
	r.sample(starts("upgraded", "v2"), older)
	require.Equal(t, "deploy v2: upgraded started", r.marks[len(r.marks)-1].text)
	deploy, ok := r.deployBefore(r.at())
	require.True(t, ok)
	require.Equal(t, "v2", deploy.version)
	_, ok = r.deployBefore(deploy.at.Add(-time.Second))
	require.False(t, ok)
	_, ok = r.deployBefore(deploy.at.Add(time.Hour))
	require.False(t, ok)
	s := r.between(r.at(), "", "")
	marks := s.shownMarks()
	require.Equal(t, " deploy", marks[len(marks)-1].class())
}

func TestMarksThatAreCloseHaveOneNumber(t *testing.T) {
	t.Parallel()
	s := &series{from: noon.Add(-historySpan), left: noon.Add(-historySpan), to: noon}
	for i := range 60 {
		what := "start"
		if i == 57 {
			what = "death"
		}
		s.marks = append(s.marks, mark{at: s.from.Add(time.Duration(i) * time.Second), what: what, text: fmt.Sprint("mark ", i)})
	}
	s.marks = append(s.marks, mark{at: noon, what: "pause", text: "the last"})
	marks := s.shownMarks()
	require.Len(t, marks, 2)
	require.True(t, marks[0].bad)
	require.False(t, marks[1].bad)
	list := string(marksList(marks))
	require.Contains(t, list, "mark 57</span> <span><time class=\"clock\" datetime=\"2026-11-29T11:00:00Z\" title=\"2026-11-29 11:00:00 UTC\">11:00:00</time> mark 0</span>")
	require.Contains(t, list, "mark 3</span> and 55 more</li>")
	require.Contains(t, list, "12:00:00</time> the last</span>")
	s.marks = nil
	for i := range 31 {
		s.marks = append(s.marks, mark{at: s.from.Add(time.Duration(i) * 2 * time.Minute), what: "purge", text: fmt.Sprint("mark ", i)})
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
	lines := string(r.between(r.at(), "", "").line(stockLines[0], 4))
	from := 600 - int(r.at().Sub(noon).Seconds())
	require.Equal(t, fmt.Sprintf(`<polyline class="pending" points="%d,100.0 %d,100.0 %d,100.0 %d,100.0"></polyline>`+
		`<polyline class="pending" points="%d,100.0 %d,100.0"></polyline><polyline class="pending" points="%d,0.0 %d,0.0"></polyline>`,
		from, from+10, from+20, from+40, from+70, from+70, from+180, from+180), lines)

	h := history{} // a sampler that rests for longer has no gap
	for i := range 3 {
		at := time.Duration(i) * time.Minute
		h.add(noon.Add(at), at, time.Minute, &outbox.Stats{}, nil)
	}
	require.Equal(t, 1, strings.Count(string(h.between(noon.Add(time.Hour), "", "").line(stockLines[0], 1)), "<polyline"))
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
		s := r.between(now, "", "")
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
	s := r.between(noon, "", "")
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
			one := r.between(r.at(), "", "").bothCharts(t)
			require.Equal(t, 2, strings.Count(string(one), "<polyline"), "one sample: two points, no rates")
			r.sample(r.node("a", &outbox.Totals{Written: each, Delivered: each, Failed: each, Latencies: []int64{each}}))
			two := string(r.between(r.at(), "", "").bothCharts(t))
			require.Equal(t, 5, strings.Count(two, "<polyline"))
			require.NotContains(t, two, "NaN")
			require.NotContains(t, two, "Inf")
		}
	}
	var r recorder
	r.stats.Pending = outbox.StatsLimit
	r.sample(r.node("a", &outbox.Totals{}))
	r.sample(r.node("a", &outbox.Totals{Delivered: 1}))
	page := string(r.between(r.at(), "", "").bothCharts(t))
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
		page := string(visible([]byte(r.between(r.at(), node, "").bothCharts(t))))
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
			do(t, d, ob, store, &d.sites.fixed["shop"].sampler.history)
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
		_, leave := d.sites.fixed["shop"].sampler.watch() // reads every two seconds
		_, leaveToo := d.sites.fixed["shop"].sampler.watch()
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
