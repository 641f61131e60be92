package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// The places of a chart, in pixels from its top. The width is that of the page, so places across are in
// percent, and texts keep their size on a phone.
const (
	plotTop    = 34
	plotHeight = 140
	chartFoot  = 24 // for the times
)

// maxMarks is how many marks a chart shows.
const maxMarks = 20

// chartLine is a line of a chart: the name is also the class.
type chartLine struct {
	name  string
	value func(*point) (v float64, known bool)
}

var stockLines = []chartLine{
	{"pending", func(p *point) (float64, bool) { return float64(p.pending), true }},
	{"dead", func(p *point) (float64, bool) { return float64(p.dead), true }},
}

// rateLines have a factor: events a second, or a minute.
func (s *series) rateLines(factor float64) []chartLine {
	lines := []chartLine{
		{"written", func(p *point) (float64, bool) { return p.all.written * factor, p.all.known }},
		{"delivered", func(p *point) (float64, bool) { return p.all.delivered * factor, p.all.known }},
		{"failed", func(p *point) (float64, bool) { return p.all.failed * factor, p.all.known }},
	}
	if s.kind != "" { // only deliveries are counted by kind
		return lines[1:]
	}
	return lines
}

// readAudit reads the latest entries of the audit log, for the marks.
func (p *page) readAudit(ctx context.Context) error {
	list, err := p.outbox.Audit(ctx, outbox.AuditQuery{Limit: outbox.DefaultAuditLimit})
	if err == nil {
		p.series().took(list.Rows)
	}
	return err
}

func (p *page) series() *history { return &p.site.sampler.history }

// charts writes the charts, the pauses and the nodes alone, for the script. It reads nothing from the
// database: the pauses and the nodes are of the last sample.
func (p *page) charts() error {
	in, err := p.chosen()
	if err != nil {
		return err
	}
	p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	body := p.chartsBody(in)
	if last := p.site.sampler.lastRead(); last != nil {
		body += p.tables(last)
	}
	_, _ = p.w.Write(visible([]byte(body))) // an error means that the client has gone
	return nil
}

// chosen reads of which process or kind the rates are.
func (p *page) chosen() (input, error) {
	in, err := p.query("node", "kind")
	if err == nil && in.get("node") != "" && in.get("kind") != "" {
		err = &inputError{"kind", "is given together with a node; processes are not kept apart by kind"}
	}
	return in, err
}

// chartsBody shows the last hour.
func (p *page) chartsBody(in input) markup {
	s := p.series().between(time.Now().UTC(), in.get("node"), in.get("kind"))
	body := tags(`<p class="none">There is no sample yet. A sample is taken every ten seconds.</p>`)
	if len(s.points) > 0 {
		factor, unit := s.rateUnit()
		marks := s.shownMarks()
		body = tags(`{}{}
{}{}{}`,
			s.chart("stocks", "Events in the table", stockLines, marks),
			s.chart("rates", "Events a "+unit+" "+s.of(), s.rateLines(factor), marks),
			s.latencyLine(), marksList(marks), s.kindsTable(factor, unit)+s.table(factor, unit))
	}
	return tags(`<section id="history" aria-labelledby="history-title" data-at="{}"><h2 id="history-title">The last hour</h2>
{}{}{}
</section>
`, p.series().latest(), s.begin(), s.choice(), body)
}

// begin says when the samples begin, if they are younger than an hour.
func (s *series) begin() markup {
	const late = time.Minute // more than a sample
	if len(s.points) == 0 || s.points[0].at.Sub(s.from) <= late {
		return ""
	}
	return tags(`<p class="help">Since {}: before that this process has no samples.</p>
`, clock(s.points[0].at))
}

// choice links to the rates of single processes and of single kinds.
func (s *series) choice() markup {
	list := func(field, label, all, now string, values []string) markup {
		item := func(value, text string) markup {
			return tags(`<a href="{}"{}>{}</a> `, link("./", field, value), when(value == now, ` aria-current="true"`), cut(text, 60))
		}
		return tags(`<nav class="choice" aria-label="Rates of a {}">{}: {}{}{}</nav>
`, label, choose(field == "kind", "By kind", "Rates of"), item("", all), each(values, func(value string) markup { return item(value, value) }),
			when(field == "kind", `{}`, item(otherKinds, "others")))
	}
	var nodes, kinds markup
	if s.node != "" || len(s.nodes) > 1 {
		nodes = list("node", "process", "all processes", s.node, s.nodes)
	}
	if s.kind != "" || len(s.kinds) > 1 {
		kinds = list("kind", "kind", "all kinds", s.kind, s.kinds)
	}
	return nodes + kinds
}

// of says of which processes the rates are.
func (s *series) of() string {
	switch {
	case s.kind == otherKinds:
		return "of other kinds"
	case s.kind != "":
		return "of " + cut(s.kind, 60)
	case s.node != "":
		return "of " + cut(s.node, 60)
	}
	switch last := &s.points[len(s.points)-1]; {
	case last.silent > 0:
		return fmt.Sprintf("of %d of %d processes; an older version does not report", last.reporting, last.reporting+last.silent)
	case last.reporting == 0:
		return "of all processes (no process reports now)"
	default:
		return "of all processes"
	}
}

// rateUnit is the unit in which the rates are shown: a minute for rates below one a second.
func (s *series) rateUnit() (factor float64, unit string) {
	if most := s.most(s.rateLines(1)); most > 0 && most < 1 {
		return 60, "minute"
	}
	return 1, "second"
}

// most is the greatest value of the lines.
func (s *series) most(lines []chartLine) (most float64) {
	for i := range s.points {
		for _, l := range lines {
			if v, known := l.value(&s.points[i]); known {
				most = max(most, v)
			}
		}
	}
	return most
}

// axis returns the values of the ticks, from zero to the top of the chart, which is not below most.
func axis(most float64, whole bool) (ticks []float64) {
	if !(most > 1e-9) || math.IsInf(most, 0) {
		most = 1
	}
	raw := most / 4
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * power
	for _, n := range []float64{1, 2, 5} {
		if n*power >= raw {
			step = n * power
			break
		}
	}
	if whole {
		step = max(step, 1)
	}
	for i := 0; ; i++ {
		ticks = append(ticks, float64(i)*step)
		if i > 0 && ticks[i] >= most {
			return ticks
		}
	}
}

// short writes the value of a tick.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.size && v < 1000e9 {
			return strconv.FormatFloat(v/unit.size, 'g', 3, 64) + "\u202f" + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// across is the place of a time, in percent of the width.
func (s *series) across(t time.Time) string {
	return fmt.Sprintf("%.2f%%", 100*t.Sub(s.left).Seconds()/s.to.Sub(s.left).Seconds())
}

// chart writes a chart as SVG.
func (s *series) chart(id, title string, lines []chartLine, marks []shownMark) markup {
	ticks := axis(s.most(lines), id == "stocks")
	top := ticks[len(ticks)-1]
	height := func(v float64) string { return fmt.Sprintf("%.1f", plotTop+plotHeight*(1-v/top)) }
	grid := each(ticks, func(v float64) markup {
		return tags(`<line class="grid" x1="0" x2="100%" y1="{}" y2="{}"></line>`, height(v), height(v))
	})
	values := each(ticks, func(v float64) markup {
		return tags(`<text class="tick" x="2" y="{}" dy="-3">{}</text>`, height(v), short(v))
	})
	bottom := plotTop + plotHeight
	times := each(s.times(), func(t time.Time) markup {
		return tags(`<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"></line><text class="time" x="{}" y="{}" data-at="{}">{}</text>`,
			s.across(t), s.across(t), bottom, bottom+4, s.across(t), bottom+18, machine(t), t.UTC().Format("15:04"))
	})
	verticals := each(marks, func(m shownMark) markup {
		return tags(`<line class="mark{}" x1="{}" x2="{}" y1="16" y2="{}"></line><text class="mark{}" x="{}" y="12">{}</text>`,
			m.class(), s.across(m.at), s.across(m.at), bottom, m.class(), s.across(m.at), m.number)
	})
	return tags(`<figure class="chart"><svg id="{}" role="img" aria-labelledby="{}-caption" width="100%" height="{}">{}{}{}
<svg x="0" y="{}" width="100%" height="{}" viewBox="0 0 {} 100" preserveAspectRatio="none">{}</svg>{}</svg>
<figcaption id="{}-caption">{}: {}. Times in <span class="zone">UTC</span>.</figcaption></figure>
`, id, id, bottom+chartFoot, grid, times, verticals, plotTop, plotHeight, int(s.to.Sub(s.left).Seconds()),
		each(lines, func(l chartLine) markup { return s.line(l, top) }), values,
		id, title, each(lines, func(l chartLine) markup {
			return tags(`{}<span class="key {}">{}</span>`, when(l.name != lines[0].name, `, `), l.name, l.name)
		}))
}

// times are the times of the axis, at round minutes, except at the edges.
func (s *series) times() (list []time.Time) {
	span := s.to.Sub(s.left)
	step := 10 * time.Minute
	switch {
	case span <= 15*time.Minute:
		step = 2 * time.Minute
	case span <= 35*time.Minute:
		step = 5 * time.Minute
	}
	edge := span / 30
	for t := s.left.Truncate(step); !t.After(s.to.Add(-edge)); t = t.Add(step) {
		if !t.Before(s.left.Add(edge)) {
			list = append(list, t)
		}
	}
	return list
}

// line writes a line, with a gap where there is no sample.
func (s *series) line(l chartLine, top float64) markup {
	var parts []string
	var points []string
	end := func() {
		if len(points) == 1 {
			points = append(points, points[0]) // a round end makes a single point visible
		}
		if len(points) > 0 {
			parts = append(parts, strings.Join(points, " "))
		}
		points = nil
	}
	for i := range s.points {
		p := &s.points[i]
		v, known := l.value(p)
		if i > 0 && !p.follows(&s.points[i-1]) || !known {
			end()
		}
		if known {
			y := min(max(100-100*v/top, 0), 100)
			points = append(points, fmt.Sprintf("%.0f,%.1f", p.at.Sub(s.left).Seconds(), y))
		}
	}
	end()
	return each(parts, func(points string) markup {
		return tags(`<polyline class="{}" points="{}"></polyline>`, l.name, points)
	})
}

// shownMark is a place in a chart: marks that are close to each other have one number.
type shownMark struct {
	at     time.Time
	number int
	bad    bool // there is a death among them
	deploy bool // there is a deploy among them
	marks  []mark
}

// class is the class of the mark: " bad", " deploy" or nothing.
func (m *shownMark) class() string {
	switch {
	case m.bad:
		return " bad"
	case m.deploy:
		return " deploy"
	default:
		return ""
	}
}

// many is 1 for marks of which a deploy makes many.
func (m mark) many() int {
	if m.what == "start" || m.what == "stop" {
		return 1
	}
	return 0
}

// shownMarks are the latest marks, in the order of time.
func (s *series) shownMarks() (list []shownMark) {
	near := s.to.Sub(s.left) / 30 // numbers that are closer would cover each other on a phone
	for _, m := range s.marks {
		if len(list) == 0 || m.at.Sub(list[len(list)-1].at) >= near {
			list = append(list, shownMark{at: m.at})
		}
		last := &list[len(list)-1]
		last.marks = append(last.marks, m)
		last.bad = last.bad || m.what == "death"
		last.deploy = last.deploy || m.what == "deploy"
	}
	list = list[max(len(list)-maxMarks, 0):]
	for i := range list {
		list[i].number = i + 1
	}
	return list
}

// marksList explains the numbers in the charts. If many processes started or stopped, the other
// marks come first.
func marksList(marks []shownMark) markup {
	const most = 5
	return when(len(marks) > 0, `<ol class="marks">{}</ol>
`, each(marks, func(m shownMark) markup {
		shown := slices.SortedStableFunc(slices.Values(m.marks), func(a, b mark) int { return cmp.Compare(a.many(), b.many()) })
		shown = shown[:min(len(shown), most)]
		return tags(`<li>{}{}</li>`, each(shown, func(m mark) markup {
			return tags(`<span>{} {}</span> `, clock(m.at), m.text)
		}), when(len(shown) < len(m.marks), `and {} more`, len(m.marks)-len(shown)))
	}))
}

// latencyLine says how long deliveries took.
func (s *series) latencyLine() markup {
	if s.kind != "" {
		return `<p class="help">Writes and the time from write to delivery are not counted by kind.</p>
`
	}
	part := func(span time.Duration, name string) markup {
		counts := s.latencies(s.to.Add(-span))
		if quantile(counts, .5) == 0 {
			return tags(`no delivery within the last {}`, name)
		}
		return tags(`half within {}, 99 % within {} in the last {}`, verdict.Span(quantile(counts, .5)), verdict.Span(quantile(counts, .99)), name)
	}
	return tags(`<p>Time from write to delivery {}, estimated: {}; {}.</p>
`, s.of(), part(time.Minute, "minute"), part(time.Hour, "hour"))
}

// kindRates are the mean rates of a kind.
type kindRates struct {
	kind         string // as in the address
	minute, hour flow
}

// share is the share of the deliveries that failed.
func (f *flow) share() float64 {
	if f.delivered+f.failed == 0 {
		return 0
	}
	return f.failed / (f.delivered + f.failed)
}

// byKind are the rates of the kinds with the highest rates, the kind that fails most first, and of all others.
func (s *series) byKind() []kindRates {
	list := make([]kindRates, len(s.kinds))
	mean := func(of func(p *point) flow, span time.Duration) (m flow) {
		n := 0.0
		for i := range s.points {
			if p := &s.points[i]; p.all.known && p.at.After(s.to.Add(-span)) {
				f := of(p)
				n++
				m.delivered += (f.delivered - m.delivered) / n
				m.failed += (f.failed - m.failed) / n
			}
		}
		return m
	}
	rates := func(kind string, of func(p *point) flow) kindRates {
		return kindRates{kind, mean(of, time.Minute), mean(of, historySpan)}
	}
	for i, kind := range s.kinds {
		index := s.indexes[i]
		list[i] = rates(kind, func(p *point) flow { return p.ofKind(index, true) })
	}
	slices.SortStableFunc(list, func(a, b kindRates) int {
		return cmp.Or(cmp.Compare(b.minute.failed, a.minute.failed), cmp.Compare(b.hour.failed, a.hour.failed))
	})
	return append(list, rates(otherKinds, func(p *point) flow { return p.ofKind(0, false) }))
}

// kindsTable has the rates of the kinds. A kind of which more than half of the deliveries fail has a color.
func (s *series) kindsTable(factor float64, unit string) markup {
	if len(s.kinds) == 0 || s.node != "" || s.kind != "" {
		return ""
	}
	row := func(k kindRates) markup {
		share := func(f flow) markup {
			text := fmt.Sprintf("%.0f %%", 100*f.share())
			return tags(`<span{}>{}</span>`, when(f.share() > .5, ` class="bad"`), text)
		}
		return tags(`<tr><th scope="row" class="text kind"><a href="{}">{}</a></th><td class="number" data-label="Delivered, last minute">{}</td><td class="number" data-label="Failed, last minute">{}</td><td class="number" data-label="Failing, last minute">{}</td><td class="number" data-label="Delivered, last hour">{}</td><td class="number" data-label="Failed, last hour">{}</td></tr>
`, link("./", "kind", k.kind), choose(k.kind == otherKinds, "others", k.kind), short(k.minute.delivered*factor), short(k.minute.failed*factor), share(k.minute), short(k.hour.delivered*factor), short(k.hour.failed*factor))
	}
	return tags(`<h3>Kinds, in events a {}</h3>
<div class="wide" tabindex="0" role="region" aria-label="Table of the kinds"><table>
<thead><tr><th scope="col">Kind</th><th scope="col" class="number">Delivered, last minute</th><th scope="col" class="number">Failed, last minute</th><th scope="col" class="number">Failing, last minute</th><th scope="col" class="number">Delivered, last hour</th><th scope="col" class="number">Failed, last hour</th></tr></thead>
<tbody>{}</tbody></table></div>
<p class="help">The kinds that fail most come first. Mean rates of the processes that report; processes of an older version do not count by kind.</p>
`, unit, each(s.byKind(), row))
}

// table has the figures of the charts, by minute.
func (s *series) table(factor float64, unit string) markup {
	rate := func(v float64, known bool) string {
		if !known {
			return "–"
		}
		return short(v * factor)
	}
	return tags(`<details><summary>The figures as a table</summary>
<div class="wide" tabindex="0" role="region" aria-label="Table of the last hour"><table>
<thead><tr><th scope="col">Time</th><th scope="col">Pending</th><th scope="col">Dead</th><th scope="col">Written</th><th scope="col">Delivered</th><th scope="col">Failed</th><th scope="col">p50</th><th scope="col">p99</th></tr></thead>
<tbody>{}</tbody></table></div>
<p class="help">One row a minute: the counts at its last sample, and the mean rates, in events a {}. p50 and p99 are estimates of the time from write to delivery. Each sample is in <a href="{}">JSON</a>.</p></details>
`, each(s.minutes(), func(m minute) markup {
		return tags(`<tr><th scope="row">{}</th><td class="number" data-label="Pending">{}</td><td class="number" data-label="Dead">{}</td><td class="number" data-label="Written">{}</td><td class="number" data-label="Delivered">{}</td><td class="number" data-label="Failed">{}</td><td class="number" data-label="p50">{}</td><td class="number" data-label="p99">{}</td></tr>
`, clock(m.at), upTo(m.pending), upTo(m.dead), rate(m.all.written, m.all.known && s.kind == ""), rate(m.all.delivered, m.all.known), rate(m.all.failed, m.all.known),
			spanOr(quantile(m.all.latencies, .5)), spanOr(quantile(m.all.latencies, .99)))
	}), unit, link("history", "node", s.node, "kind", s.kind))
}

func spanOr(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return verdict.Span(d)
}

// minute has the figures of the samples of a minute.
type minute struct {
	point
	samples float64 // with known rates
}

// minutes are the minutes that have samples, the latest first.
func (s *series) minutes() (list []minute) {
	for i := range s.points {
		p := s.points[i]
		p.at = p.at.Truncate(time.Minute)
		if len(list) == 0 || !list[0].at.Equal(p.at) {
			list = slices.Insert(list, 0, minute{point: point{at: p.at}})
		}
		m := &list[0]
		m.pending, m.dead = p.pending, p.dead
		m.all.latencies = sum(m.all.latencies, p.all.latencies)
		if !p.all.known {
			continue
		}
		m.samples++
		mean := func(mean *float64, v float64) { *mean += (v - *mean) / m.samples }
		m.all.known = true
		mean(&m.all.written, p.all.written)
		mean(&m.all.delivered, p.all.delivered)
		mean(&m.all.failed, p.all.failed)
	}
	return list
}

// The JSON of the history.
type (
	historyJSON struct {
		From    time.Time    `json:"from"`
		To      time.Time    `json:"to"`
		Node    string       `json:"node,omitempty"`
		Nodes   []string     `json:"nodes"`
		Kind    string       `json:"kind,omitempty"`
		Kinds   []string     `json:"kinds"`
		Minute  latencyJSON  `json:"last_minute"`
		Hour    latencyJSON  `json:"last_hour"`
		Samples []sampleJSON `json:"samples"`
		Marks   []markJSON   `json:"marks"`
	}
	// latencyJSON is the time from write to delivery.
	latencyJSON struct {
		Delivered int64   `json:"delivered"`
		P50       float64 `json:"p50_seconds,omitempty"`
		P99       float64 `json:"p99_seconds,omitempty"`
	}
	// sampleJSON has rates if they are known.
	sampleJSON struct {
		At        time.Time `json:"at"`
		Pending   int64     `json:"pending"`
		Dead      int64     `json:"dead"`
		Written   *float64  `json:"written_per_second,omitempty"`
		Delivered *float64  `json:"delivered_per_second,omitempty"`
		Failed    *float64  `json:"failed_per_second,omitempty"`
		// Reporting processes are in the rates of all processes, and Silent processes are not.
		Reporting int `json:"processes"`
		Silent    int `json:"processes_without_rates,omitempty"`
	}
	markJSON struct {
		At      time.Time `json:"at"`
		What    string    `json:"what"`
		Text    string    `json:"text"`
		Version string    `json:"version,omitempty"`
	}
)

// history writes the samples in JSON.
func (p *page) history() error {
	in, err := p.chosen()
	if err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	if err := p.readAudit(ctx); err != nil {
		return err
	}
	s := p.series().between(time.Now().UTC(), in.get("node"), in.get("kind"))
	latency := func(span time.Duration) (l latencyJSON) {
		counts := s.latencies(s.to.Add(-span))
		for _, n := range counts {
			l.Delivered += n
		}
		l.P50, l.P99 = quantile(counts, .5).Seconds(), quantile(counts, .99).Seconds()
		return l
	}
	answer := historyJSON{
		From: s.from, To: s.to, Node: s.node, Nodes: append([]string{}, s.nodes...), Kind: s.kind, Kinds: append([]string{}, s.kinds...), Minute: latency(time.Minute), Hour: latency(historySpan),
		Samples: make([]sampleJSON, len(s.points)), Marks: make([]markJSON, len(s.marks)),
	}
	for i := range s.points {
		from := &s.points[i]
		to := sampleJSON{At: from.at.UTC(), Pending: from.pending, Dead: from.dead, Reporting: from.reporting, Silent: from.silent}
		if f := &from.all; f.known {
			to.Delivered, to.Failed = &f.delivered, &f.failed
			if s.kind == "" {
				to.Written = &f.written
			}
		}
		answer.Samples[i] = to
	}
	for i, m := range s.marks {
		answer.Marks[i] = markJSON{m.at, m.what, m.text, m.version}
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	p.w.Header().Set("Content-Type", "application/json")
	p.w.WriteHeader(http.StatusOK)
	_, _ = p.w.Write(data) // an error means that the client has gone
	return nil
}
