package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Bounds of a history.
const (
	historySpan     = time.Hour
	historyEvery    = 10 * time.Second
	historyJitter   = 500 * time.Millisecond // a sample of the live overview may be this early
	historyPoints   = 400                    // more than fit into the span
	historyNodes    = 32                     // processes that have rates of their own
	historyMarks    = 100
	historyVersions = 100              // versions of programs that are remembered
	historyKinds    = 20               // kinds of a sample that have rates of their own; all others are one
	historyNames    = 200              // kinds that an hour has names for
	chartSpan       = 10 * time.Minute // a chart shows that much at least, and the span at most
	// historyRest is how many times as long as it took the sampler rests after a read, so that samples in
	// the background take about a hundredth of one connection's time.
	historyRest    = 100
	historyMaxRest = 5 * time.Minute
)

// history holds the samples of the last hour in memory, for all pages of the process.
type history struct {
	mu     sync.Mutex
	points []point // in the order of time
	nodes  map[string]nodeSeen
	paused map[outbox.EventKind]time.Time // by listeners, at the last sample: since when
	// versions has the versions of the processes of the last hour, with the time of the last report. A
	// program that reports no version has the version "".
	versions map[string]time.Time
	marks    []mark             // in the order in which they were noticed
	kinds    []outbox.EventKind // that points have rates of, at the index of the kind
	audit    []mark             // of the audit log, as a page last read it
}

// point is a sample in the history.
type point struct {
	at            time.Time
	up            time.Duration // the time by a clock that does not step
	rest          time.Duration // until the next sample
	pending, dead int64
	all           flow
	nodes         map[string]flow
	kinds         []kindFlow // the kinds with the highest rates
	// reporting and silent are the live processes that report totals, and that do not.
	reporting, silent int
}

// flow is the work of one process, or of all processes.
type flow struct {
	known                      bool
	written, delivered, failed float64 // events a second
	latencies                  []int64 // as in outbox.Totals, of this sample alone
	kinds                      map[outbox.EventKind]kindFlow
}

// kindFlow is the work of all processes for a kind, in events a second.
type kindFlow struct {
	index             int // in history.kinds
	delivered, failed float64
}

// otherKinds stands for all kinds without rates of their own, in an address.
const otherKinds = "*"

// ofKind returns the work for the kind with an index, or, if no kind is named, for all kinds that have
// no rates of their own. Only deliveries are counted by kind.
func (p *point) ofKind(index int, named bool) flow {
	f := flow{known: p.all.known, delivered: p.all.delivered, failed: p.all.failed}
	if named {
		f.delivered, f.failed = 0, 0
	}
	for _, k := range p.kinds {
		switch {
		case named && k.index == index:
			f.delivered, f.failed = k.delivered, k.failed
		case !named:
			f.delivered, f.failed = f.delivered-k.delivered, f.failed-k.failed
		}
	}
	f.delivered, f.failed = rounded(f.delivered), rounded(f.failed)
	return f
}

// rounded returns a rate, or zero for the rest that a difference of sums of floats leaves.
func rounded(rate float64) float64 {
	const least = 1e-6 // an event in eleven days
	if rate < least {
		return 0
	}
	return rate
}

// nodeSeen is a node as the last sample showed it.
type nodeSeen struct {
	outbox.Node
	flow flow
}

// mark is something that happened.
type mark struct {
	at   time.Time
	what string
	text string
	// version is that of the program that started; empty: another mark, or not known.
	version string
}

// wait is how long it is until the next sample is due.
func (h *history) wait(up time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.untilDue(up)
}

func (h *history) untilDue(up time.Duration) time.Duration {
	if len(h.points) == 0 {
		return 0
	}
	return h.points[len(h.points)-1].up + historyEvery - historyJitter - up
}

// add takes a sample, unless the one before is younger than ten seconds.
func (h *history) add(at time.Time, up, rest time.Duration, stats *outbox.Stats, nodes []outbox.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.untilDue(up) > 0 {
		return
	}
	at = at.Round(0)
	old := at.Add(-historySpan - historyEvery)
	// If the clock of the machine was set back, the points that would be in the future are dropped.
	h.points = slices.DeleteFunc(h.points, func(p point) bool { return !p.at.Before(at) || p.at.Before(old) })
	if over := len(h.points) + 1 - historyPoints; over > 0 {
		h.points = slices.Delete(h.points, 0, over)
	}
	p := point{at: at, up: up, rest: rest, pending: stats.Pending, dead: stats.Dead, nodes: map[string]flow{}}
	seen := make(map[string]nodeSeen, len(nodes))
	h.forgetVersions(old)
	for _, n := range byStart(nodes) {
		before, known := h.nodes[n.Owner]
		now := nodeSeen{Node: *n}
		now.Kinds, now.Unheard = nil, nil
		if known {
			now.flow = flowOf(&before, n)
		}
		seen[n.Owner] = now
		p.count(n, now.flow)
		h.markNode(n, &before, known, at)
		h.sawVersion(n, at)
	}
	h.addKinds(&p, seen)
	for _, owner := range slices.Sorted(maps.Keys(h.nodes)) {
		if n := h.nodes[owner]; n.Live && seen[owner].Owner == "" {
			h.mark(at, "stop", cut(owner, 60)+" stopped")
		}
	}
	h.nodes = seen
	h.markPauses(stats.Paused, at)
	h.marks = slices.DeleteFunc(h.marks, func(m mark) bool { return m.at.Before(old) })
	h.points = append(h.points, p)
}

// count adds the flow of a live process.
func (p *point) count(n *outbox.Node, f flow) {
	switch {
	case !n.Live || n.Problem != "":
		return
	case n.Totals == nil:
		p.silent++
		return
	}
	p.reporting++
	if len(p.nodes) < historyNodes {
		kept := f
		kept.kinds = nil // a sample has the kinds of all processes together
		p.nodes[n.Owner] = kept
	}
	if f.known {
		p.all.known = true
		p.all.written += f.written
		p.all.delivered += f.delivered
		p.all.failed += f.failed
		p.all.latencies = sum(p.all.latencies, f.latencies)
	}
}

// flowOf is the work of a process between two reports. The times are those of the database. Without a
// new report the rates stay.
func flowOf(before *nodeSeen, now *outbox.Node) flow {
	old, totals := before.Totals, now.Totals
	took := now.SeenAt.Sub(before.SeenAt).Seconds()
	switch {
	case totals == nil || old == nil || took < 0:
		return flow{}
	case took == 0:
		kept := before.flow
		kept.latencies = nil
		return kept
	case !now.Started.Equal(before.Started): // another process of the same name
		old = &outbox.Totals{}
	}
	if totals.Written < old.Written || totals.Delivered < old.Delivered || totals.Failed < old.Failed {
		return flow{}
	}
	rate := func(now, before int64) float64 { return float64(now-before) / took }
	f := flow{
		known: true, written: rate(totals.Written, old.Written), delivered: rate(totals.Delivered, old.Delivered), failed: rate(totals.Failed, old.Failed),
		latencies: slices.Clone(totals.Latencies[:min(len(totals.Latencies), latencyCounts)]),
	}
	f.kinds = kindsOf(old.Kinds, totals.Kinds, rate)
	for i := range f.latencies {
		if i < len(old.Latencies) {
			f.latencies[i] -= old.Latencies[i]
		}
		f.latencies[i] = max(f.latencies[i], 0)
	}
	return f
}

// kindsOf is the work for each kind of which both reports have numbers. Numbers that went back are
// left out, as for a kind that was not reported for a while.
func kindsOf(before, now []outbox.KindTotals, rate func(now, before int64) float64) map[outbox.EventKind]kindFlow {
	if len(now) == 0 {
		return nil
	}
	old := make(map[outbox.EventKind]outbox.KindTotals, len(before))
	for _, k := range before {
		old[k.Kind] = k
	}
	kinds := make(map[outbox.EventKind]kindFlow, len(now))
	for _, k := range now {
		was, known := old[k.Kind]
		if !known && len(before) > 0 && k.Delivered+k.Failed > before[len(before)-1].Delivered+before[len(before)-1].Failed {
			continue // the kind was beyond the report before, so the numbers are of a longer time
		}
		if k.Delivered >= was.Delivered && k.Failed >= was.Failed {
			kinds[k.Kind] = kindFlow{delivered: rate(k.Delivered, was.Delivered), failed: rate(k.Failed, was.Failed)}
		}
	}
	return kinds
}

// addKinds adds the kinds with the highest rates of all live processes to a point.
func (h *history) addKinds(p *point, seen map[string]nodeSeen) {
	all := map[outbox.EventKind]kindFlow{}
	for _, n := range seen {
		if !n.Live {
			continue
		}
		for kind, f := range n.flow.kinds {
			sum := all[kind]
			all[kind] = kindFlow{delivered: sum.delivered + f.delivered, failed: sum.failed + f.failed}
		}
	}
	kinds := slices.SortedFunc(maps.Keys(all), func(a, b outbox.EventKind) int {
		return cmp.Or(cmp.Compare(all[b].delivered+all[b].failed, all[a].delivered+all[a].failed), cmp.Compare(a.String(), b.String()))
	})
	if len(h.kinds)+historyKinds > historyNames {
		h.forgetKinds()
	}
	for _, kind := range kinds[:min(len(kinds), historyKinds)] {
		index := slices.Index(h.kinds, kind)
		if index < 0 && len(h.kinds) < historyNames {
			index = len(h.kinds)
			h.kinds = append(h.kinds, kind)
		}
		if index >= 0 {
			f := all[kind]
			f.index = index
			p.kinds = append(p.kinds, f)
		}
	}
}

// forgetKinds forgets the names of kinds of which no point has rates.
func (h *history) forgetKinds() {
	var kept []outbox.EventKind
	to := map[int]int{}
	for i := range h.points {
		for j := range h.points[i].kinds {
			k := &h.points[i].kinds[j]
			if _, known := to[k.index]; !known {
				to[k.index] = len(kept)
				kept = append(kept, h.kinds[k.index])
			}
			k.index = to[k.index]
		}
	}
	h.kinds = kept
}

// sum adds counts.
func sum(counts, more []int64) []int64 {
	if len(counts) < len(more) {
		counts = append(counts, make([]int64, len(more)-len(counts))...)
	}
	for i, n := range more {
		counts[i] += n
	}
	return counts
}

// markNode marks the start and the death of a process.
func (h *history) markNode(n *outbox.Node, before *nodeSeen, known bool, at time.Time) {
	switch {
	case n.Live && (!known || !n.Started.Equal(before.Started)) && !n.Started.IsZero():
		h.markStart(n)
	case n.Live && known && !before.Live && !before.SeenAt.IsZero():
		h.mark(at, "start", cut(n.Owner, 60)+" reports again")
	case !n.Live && !n.SeenAt.IsZero() && (before.Live || !known):
		h.mark(n.SeenAt, "death", cut(n.Owner, 60)+" made its last report")
	}
}

// markPauses marks the pauses by listeners. The audit log has the pauses by operators.
func (h *history) markPauses(list []outbox.Pause, at time.Time) {
	paused := map[outbox.EventKind]time.Time{}
	for i := range list {
		if p := &list[i]; p.Automatic && p.AggregateID == "" {
			paused[p.Kind] = p.Since
			if since, was := h.paused[p.Kind]; !was || !since.Equal(p.Since) {
				h.mark(p.Since, "pause", "a listener paused "+kindText(p.Kind))
			}
		}
	}
	for kind := range h.paused {
		if _, still := paused[kind]; !still {
			h.mark(at, "resume", "the pause of "+kindText(kind)+" ended")
		}
	}
	h.paused = paused
}

// mark notes something that happened. The latest marks are kept.
func (h *history) mark(at time.Time, what, text string) {
	if len(h.marks) == historyMarks {
		h.marks = slices.Delete(h.marks, 0, 1)
	}
	h.marks = append(h.marks, mark{at: at.UTC().Round(0), what: what, text: text})
}

// byStart returns the nodes in the order in which they started.
func byStart(nodes []outbox.Node) []*outbox.Node {
	list := make([]*outbox.Node, len(nodes))
	for i := range nodes {
		list[i] = &nodes[i]
	}
	slices.SortStableFunc(list, func(a, b *outbox.Node) int { return a.Started.Compare(b.Started) })
	return list
}

// markStart marks the start of a process: as a deploy, if no earlier process had its version. The first
// process that is known is no deploy, because the version before is not known.
func (h *history) markStart(n *outbox.Node) {
	what, text := "start", cut(n.Owner, 60)+" started"
	switch _, had := h.versions[n.Version]; {
	case n.Version == "":
	case had || len(h.versions) == 0:
		text += " with " + cut(n.Version, 60)
	default:
		what, text = "deploy", "deploy "+cut(n.Version, 60)+": "+text
	}
	h.mark(n.Started, what, text)
	h.marks[len(h.marks)-1].version = n.Version
}

// sawVersion remembers the version of a process that reports.
func (h *history) sawVersion(n *outbox.Node, at time.Time) {
	if n.SeenAt.IsZero() || n.Problem != "" {
		return
	}
	if h.versions == nil {
		h.versions = map[string]time.Time{}
	}
	if _, had := h.versions[n.Version]; had || len(h.versions) < historyVersions {
		h.versions[n.Version] = at
	}
}

// forgetVersions forgets the versions of processes that were last seen before a time.
func (h *history) forgetVersions(before time.Time) {
	maps.DeleteFunc(h.versions, func(_ string, seen time.Time) bool { return seen.Before(before) })
}

// verbs are the actions of the audit log.
var verbs = map[string]string{"pause": "paused", "resume": "resumed", "replay": "replayed", "delete": "deleted", "purge": "purged"}

// took keeps the latest entries of the audit log.
func (h *history) took(entries []outbox.AuditEntry) {
	marks := make([]mark, len(entries))
	for i := range entries {
		e := &entries[i]
		text := cmp.Or(cut(e.Name, 40), "somebody") + " " + cmp.Or(verbs[e.Action], e.Action) + " " + cut(e.Target, 80)
		if e.Count > 0 {
			text += fmt.Sprintf(" (%s)", count(e.Count))
		}
		marks[i] = mark{at: e.At.UTC(), what: e.Action, text: text}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.audit = marks
}

// latest is the time of the last sample, for the script; 0: there is no sample.
func (h *history) latest() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.points) == 0 {
		return 0
	}
	return h.points[len(h.points)-1].at.UnixMilli()
}

// series are the samples and the marks of an hour, for all processes or for a single process.
type series struct {
	from, to time.Time
	left     time.Time // where the charts begin
	node     string    // empty: all processes
	kind     string    // empty: all kinds; otherKinds: all kinds without rates of their own
	kinds    []string  // the kinds with the highest rates of the hour
	indexes  []int     // of the kinds, in history.kinds
	nodes    []string  // that have rates of their own
	points   []point   // all is of the node
	marks    []mark    // in the order of time
}

// between returns the samples and the marks of the hour before a time.
func (h *history) between(to time.Time, node, kind string) *series {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &series{from: to.Add(-historySpan), to: to, node: node, kind: kind}
	index := slices.IndexFunc(h.kinds, func(k outbox.EventKind) bool { return kindText(k) == kind })
	rates := make([]float64, len(h.kinds))
	inside := func(t time.Time) bool { return !t.Before(s.from) && !t.After(to) }
	names := map[string]bool{}
	for _, p := range h.points {
		if !inside(p.at) {
			continue
		}
		for owner := range p.nodes {
			names[owner] = true
		}
		for _, k := range p.kinds {
			rates[k.index] += k.delivered + k.failed
		}
		switch {
		case node != "":
			p.all = p.nodes[node]
		case kind != "":
			p.all = p.ofKind(index, kind != otherKinds)
		}
		s.points = append(s.points, p)
	}
	s.nodes = slices.Sorted(maps.Keys(names))
	s.nodes = s.nodes[:min(len(s.nodes), historyNodes)]
	s.kinds, s.indexes = h.topKinds(rates)
	for _, m := range slices.Concat(h.marks, h.audit) {
		if inside(m.at) {
			s.marks = append(s.marks, m)
		}
	}
	slices.SortStableFunc(s.marks, func(a, b mark) int { return a.at.Compare(b.at) })
	s.left = s.to.Add(-chartSpan)
	if len(s.points) > 0 && s.points[0].at.Before(s.left) {
		s.left = s.points[0].at
	}
	if len(s.marks) > 0 && s.marks[0].at.Before(s.left) {
		s.left = s.marks[0].at
	}
	return s
}

// topKinds are the kinds with the highest rates, as texts, and their indexes.
func (h *history) topKinds(rates []float64) (texts []string, top []int) {
	for i, rate := range rates {
		if rate > 0 {
			top = append(top, i)
		}
	}
	slices.SortStableFunc(top, func(a, b int) int { return cmp.Compare(rates[b], rates[a]) })
	top = top[:min(len(top), historyKinds)]
	for _, i := range top {
		texts = append(texts, kindText(h.kinds[i]))
	}
	return texts, top
}

// deployBefore is the last deploy in the hour before a time; ok is false if none is known.
func (h *history) deployBefore(t time.Time) (deploy mark, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.marks {
		if m.what == "deploy" && !m.at.After(t) && t.Sub(m.at) < historySpan && (!ok || m.at.After(deploy.at)) {
			deploy, ok = m, true
		}
	}
	return deploy, ok
}

// follows reports whether a point continues the line of the point before it.
func (p *point) follows(before *point) bool {
	return p.at.Sub(before.at) <= 2*before.rest+historyEvery/2
}

// latencies are the counts of the deliveries from a time on.
func (s *series) latencies(from time.Time) (counts []int64) {
	for i := range s.points {
		if s.points[i].at.After(from) {
			counts = sum(counts, s.points[i].all.latencies)
		}
	}
	return counts
}

// latencyCounts is the most counts of outbox.Totals.Latencies.
const latencyCounts = 54

// quantile is the time within which a share of the deliveries was done, between two bounds of the counts;
// zero without a delivery.
func quantile(counts []int64, share float64) time.Duration {
	var all int64
	for _, n := range counts {
		all += n
	}
	if all == 0 {
		return 0
	}
	left, below := share*float64(all), time.Duration(0)
	for i, n := range counts {
		bound := outbox.LatencyBound(i)
		switch {
		case n == 0 || float64(n) < left:
		case i == latencyCounts-1:
			return below
		default:
			return below + time.Duration(float64(bound-below)*left/float64(n))
		}
		left, below = left-float64(n), bound
	}
	return below
}

// keep adds samples while no page is live, until the outbox closes or EndStreams is called.
func (s *sampler) keep(ctx context.Context) {
	for wait := historyEvery; ; {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.outbox.Closing():
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if wait = s.untilRead(); wait > 0 {
			continue // a page has read, or is about to
		}
		began := time.Now()
		stats, nodes, err := s.readForHistory(ctx)
		wait = min(max(historyEvery, historyRest*time.Since(began)), historyMaxRest)
		if err == nil { // a gap in the chart shows an error
			s.history.add(began, began.Sub(s.began), wait, &stats, nodes)
		}
	}
}

// untilRead is how long a sample in the background can wait: live overviews read for the history too.
func (s *sampler) untilRead() time.Duration {
	wait := s.history.wait(time.Since(s.began))
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.viewers) > 0 {
		wait += min(s.interval, historyEvery) + historyJitter
	}
	return wait
}

func (s *sampler) readForHistory(ctx context.Context) (stats outbox.Stats, nodes []outbox.Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if stats, err = s.outbox.Stats(ctx); err == nil {
		nodes, err = s.outbox.Nodes(ctx)
	}
	return stats, nodes, err
}
