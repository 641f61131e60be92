package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/catalog"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// nodes checks the processes that deliver, and the leases of processes that no longer deliver.
func (p *patient) nodes(ctx context.Context) error {
	list, err := p.Outbox.Nodes(ctx)
	if err != nil {
		return err
	}
	now, err := p.Store.Now(ctx, p.DB)
	if err != nil {
		return err
	}
	live, found, modes := 0, len(p.findings), map[string]bool{}
	for _, n := range list {
		if n.Problem != "" {
			p.report(Warning, "the report of "+n.Owner+" cannot be read", n.Problem)
			continue
		}
		if n.Live {
			if n.Delivers() {
				live++
				modes[n.Mode] = true
			}
			p.liveNode(n, now)
			continue
		}
		p.deadNode(n, now)
	}
	if len(modes) > 1 {
		p.report(Warning, fmt.Sprintf("%d processes deliver in %d different modes", live, len(modes)), "give all processes of a table the same mode; outbox nodes lists them")
	}
	if modes["ordered-by-key"] {
		if err := p.keyIndex(ctx); err != nil {
			return err
		}
	}
	switch {
	case live == 0:
		p.report(Note, "no process reports that it delivers", "start one; processes of older versions deliver without reporting")
	case len(p.findings) == found:
		p.report(OK, fmt.Sprintf("%d processes deliver", live), "")
	}
	return nil
}

// keyIndex reports that processes deliver in OrderedByKey without the index that this mode reads.
func (p *patient) keyIndex(ctx context.Context) error {
	list, err := catalog.Indexes(ctx, p.DB, p.dialect, p.table)
	if name := p.table.Index("key"); err == nil && !catalog.Has(list, name) {
		p.report(Failure, "processes deliver in ordered-by-key, and the index "+name+" is missing, so every poll reads the whole table", p.ddl(name))
	}
	return err
}

// liveNode reports a process that runs but does not deliver.
func (p *patient) liveNode(n outbox.Node, now time.Time) {
	if !n.Delivers() {
		return
	}
	since := n.LastPoll
	if since.IsZero() {
		since = n.Started
	}
	if n.Log != nil {
		p.logReader(n, n.SeenAt.Sub(since))
		return
	}
	standby := !n.Holds && (n.Mode == "single-node" || n.Mode == "ordered")
	if age := n.SeenAt.Sub(since).Round(time.Second); !standby && !since.IsZero() && age > p.Limits.Poll {
		p.report(Warning, fmt.Sprintf("%s reports, but has not polled for %s", n.Owner, age),
			"look at its log for errors of polls; if its Poll.Interval is that long, ignore this")
	}
	if age := now.Sub(n.OldestLease).Round(time.Second); n.Leases > 0 && !n.OldestLease.IsZero() && age > p.Limits.Lease {
		p.report(Warning, fmt.Sprintf("%s reports, but the oldest of its %d leases is %s old, and leases are renewed", n.Owner, n.Leases, age),
			"look at its log for a listener that hangs and for errors of renewals; if its Claim.LeaseDuration is that long, ignore this")
	}
}

// logReader reports a process that is behind with the database's log, or may lose its place there.
// behind is how long the whole log was not published.
func (p *patient) logReader(n outbox.Node, behind time.Duration) {
	if age := behind.Round(time.Second); age > p.Limits.Poll {
		p.report(Warning, fmt.Sprintf("%s has not published the whole log of the database for %s", n.Owner, age),
			"look at its log for events that cannot be published and hold it up, and whether the broker answers; meanwhile the server keeps its log on disk")
	}
	if left := n.Log.Left; left >= 0 && left < n.Log.Kept {
		p.report(Warning, fmt.Sprintf("the server drops log that %s has not published when it has grown by %s", n.Owner, verdict.Bytes(left)),
			"mend the reader, or raise max_slot_wal_keep_size; events that the server drops must be published from the table, by Setup")
	}
}

// deadNode reports the leases of a process that does not report, or no longer reports.
func (p *patient) deadNode(n outbox.Node, now time.Time) {
	age := now.Sub(n.OldestLease).Round(time.Second)
	expired := n.Leases > 0 && !n.OldestLease.IsZero() && age > p.Limits.Lease
	switch {
	case expired:
		p.report(Warning, fmt.Sprintf("%d leases of %s have expired or are about to: the oldest is %s old", n.Leases, n.Owner, age),
			"a process in MultiNode or OrderedByKey takes the events over; start one, or look at why those that run do not")
	case n.Leases > 0 && !n.SeenAt.IsZero():
		p.report(Warning, fmt.Sprintf("%s has %d leases and has not reported for %s", n.Owner, n.Leases, now.Sub(n.SeenAt).Round(time.Second)),
			"its process died or is cut off; others take the events over when the leases expire, after Claim.LeaseDuration")
	case n.Leases > 0:
		p.report(Note, fmt.Sprintf("%s has %d leases and does not report", n.Owner, n.Leases), "processes of older versions do not report")
	}
	if n.Holds {
		p.report(Warning, n.Owner+" holds the table and does not report", "its process died, is cut off, or is of an older version; a standby takes over when the hold expires, within ten seconds")
	}
}

// unheard looks for kinds of events without a listener in the reports of the processes, and for events
// whose named listener is gone among the first events that wait.
func (p *patient) unheard(ctx context.Context, nodes []outbox.Node) error {
	left := verdict.NoListener(nodes)
	if len(left) > 0 {
		p.report(Warning, fmt.Sprintf("%d kinds of events have no listener in any process that reports: %.300s", len(left), strings.Join(left, ", ")),
			"deploy a process that listens to them, or delete their events; until then they stay in the table")
	}
	page, err := p.Outbox.FindEvents(ctx, outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusNew, outbox.StatusRetry}}, Limit: outbox.MaxFindLimit})
	if err != nil {
		return err
	}
	kinds, n := map[string]bool{}, 0
	for _, e := range page.Rows {
		if strings.HasPrefix(e.LastError, "no listener for ") {
			n++
			kinds[outbox.EventKind{AggregateType: e.AggregateType, EventType: e.EventType}.String()] = true
		}
	}
	if n > 0 {
		p.report(Warning, fmt.Sprintf("%d of the first %d events that wait have no listener, or none with the name in their row: %.300s", n, len(page.Rows), strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")),
			"deploy a process that listens to them, or delete them; until then they are deferred again and again")
	}
	return nil
}

// maxUnmarked is the age from which a row that nothing marks as delivered is reported: a day more than
// the default retention, so that a purge with the defaults has deleted the row.
const maxUnmarked = outbox.DefaultRetention + 24*time.Hour

// unmarked looks for an old row where only a reader of the log publishes events: there a purge deletes
// rows by age alone, and only with Undelivered. Which purge the processes have, the table does not say.
func (p *patient) unmarked(ctx context.Context, nodes []outbox.Node) error {
	var reader *outbox.Node
	for i := range nodes {
		n := &nodes[i]
		switch {
		case !n.Live || !n.Delivers():
		case n.Log == nil: // this process marks rows
			return nil
		default:
			reader = n
		}
	}
	if reader == nil {
		return nil
	}
	page, err := p.Outbox.FindEvents(ctx, outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusNew}}, Limit: 1})
	if err != nil || len(page.Rows) == 0 {
		return err
	}
	now, err := p.Store.Now(ctx, p.DB)
	if err != nil {
		return err
	}
	if age := now.Sub(page.Rows[0].OccurredAt); age > maxUnmarked {
		p.report(Note, fmt.Sprintf("%s publishes the log, so nothing marks rows as delivered, and the oldest row is %d days old", reader.Owner, int(age/(24*time.Hour))),
			"a purge deletes such rows only with PurgeOptions.Undelivered (purge.undelivered), which needs the index of sqlstore.WithAgeIndex; if its Retention is longer than that, ignore this")
	}
	return nil
}

// neverDueLimit is where each count of events that are never due stops.
const neverDueLimit = 1000

// neverDue looks for events that wait for a time that does not come: available_at is NULL,
// infinity, or so far away that somebody wrote a wrong value. Reads of due events never return
// these events, so nothing else reports them.
func (p *patient) neverDue(ctx context.Context) error {
	var late any = p.Now().UTC().AddDate(100, 0, 0).Format(time.DateTime)
	marker, cast := "?", "%s"
	switch p.dialect {
	case "postgres":
		marker, cast = "$1", "CAST(CAST(%s AS TEXT) || '+00' AS TIMESTAMPTZ)"
	case "sqlite": // a text or bytes is later than all numbers; polls read such rows
		late = p.Now().AddDate(100, 0, 0).UnixMicro()
	}
	n, more := 0, ""
	for _, q := range []struct {
		condition string
		args      []any
	}{
		{"available_at IS NULL", nil},
		{"available_at > " + fmt.Sprintf(cast, marker), []any{late}},
	} {
		var some int
		query := fmt.Sprintf("SELECT COUNT(*) FROM (SELECT event_id FROM %s WHERE status IN (0, 2) AND %s LIMIT %d) AS late", p.quoted(), q.condition, neverDueLimit)
		if err := p.one(ctx, query, q.args, &some); err != nil {
			return err
		}
		if n += some; some == neverDueLimit {
			more = " or more"
		}
	}
	if n > 0 {
		p.report(Warning, fmt.Sprintf("%d%s events wait, and are not due within a hundred years: their available_at is NULL, infinity or a wrong time", n, more),
			"find them with status IN (0, 2) AND (available_at IS NULL OR available_at is that late), and set available_at to the time when they are to be delivered")
	}
	return nil
}

// backlog checks how long events have been due.
func (p *patient) backlog(ctx context.Context) error {
	s, err := p.Outbox.Stats(ctx)
	if err != nil {
		return err
	}
	list, err := p.Outbox.Nodes(ctx)
	if err != nil {
		return err
	}
	blocks, behind := "", ""
	if slices.ContainsFunc(list, func(n outbox.Node) bool { return n.Mode == "ordered-by-key" }) {
		blocks = "; in ordered-by-key each holds back the later events of its key, unless OnDead is SkipDead"
		behind = ", and those behind them"
	}
	seen := fmt.Sprintf("%d events are due, the oldest for %s", s.Due, s.OldestDueAge.Round(time.Second))
	switch {
	case s.OldestDueAge > p.Limits.Due:
		p.report(Warning, seen, "look at outbox nodes, at outbox paused and at the errors of outbox events list --status retry")
	case len(s.Late) > 0:
	case s.Due == 0:
		p.report(OK, "no event is due", "")
	default:
		p.report(OK, seen, "")
	}
	for _, k := range s.Late {
		p.report(Warning, fmt.Sprintf("%d events of %s are late: the oldest has been due for %s, and may be due for %s", k.Events, k.Kind, k.OldestDueAge.Round(time.Second), k.MaxDueAge),
			"look at outbox nodes, at outbox paused and at the errors of outbox events list --status retry; the limit is the MaxDueAge of the kind's rules")
	}
	if err := p.unheard(ctx, list); err != nil {
		return err
	}
	if err := p.neverDue(ctx); err != nil {
		return err
	}
	if err := p.unmarked(ctx, list); err != nil {
		return err
	}
	if age := s.ReplayProgressAge; age > verdict.MaxReplayProgressAge {
		p.report(Warning, fmt.Sprintf("a replay of delivered events has made no progress for %s", age.Round(time.Second)), "outbox replay list shows the last error, and outbox replay stop stops the replay")
	}
	if s.Dead > 0 {
		p.report(Note, fmt.Sprintf("%d events are dead", s.Dead)+blocks, "outbox dead groups shows why; outbox dead replay delivers them again"+behind)
	}
	if len(s.Paused) > 0 {
		keys := 0
		for _, pause := range s.Paused {
			if pause.AggregateID != "" {
				keys++
			}
		}
		seen := fmt.Sprintf("%d types of events are paused", len(s.Paused)-keys)
		if keys > 0 {
			seen = fmt.Sprintf("%d types of events and %d keys are paused", len(s.Paused)-keys, keys)
		}
		if n := verdict.Automatic(s.Paused); n > 0 {
			seen += fmt.Sprintf(", %d of them by a listener whose receiver is down", n)
		}
		p.report(Note, seen, "outbox paused lists them, outbox resume ends a pause")
	}
	return nil
}
