package outboxtest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// FindEvents implements [outbox.Store]. FindEvents looks at SearchLimit rows, as a database does.
func (s *Store) FindEvents(ctx context.Context, _ outbox.DB, q outbox.EventQuery) (outbox.Page[outbox.EventRow], error) {
	order := q.Order()
	place, err := order.After(q.After)
	if err != nil {
		return outbox.Page[outbox.EventRow]{}, err
	}
	if err := s.lock(ctx, "finding events"); err != nil {
		return outbox.Page[outbox.EventRow]{}, err
	}
	defer s.mu.Unlock()
	rows := s.visible(inOrder(order), func(r *memRow) bool {
		return r.isIn(order, q.EventFilter) && (place.EventID == "" || inOrder(order)(r, at(place)) > 0)
	})
	var page outbox.Page[outbox.EventRow]
	for i, r := range rows {
		if i == outbox.SearchLimit || len(page.Rows) == q.Limit {
			page.Next = order.Next(place)
			break
		}
		place = r.place(order)
		page.Looked++
		if r.chosen(q.EventFilter) {
			event := r.event()
			event.Envelope, event.LastError = forList(event.Envelope), listedError(event.LastError)
			page.Rows = append(page.Rows, event)
		}
	}
	return page, nil
}

// forList is an envelope in a list: without the payload and the writer's headers.
func forList(env outbox.Envelope) outbox.Envelope {
	env.Payload = outbox.Payload{}
	maps.DeleteFunc(env.Headers, func(key, _ string) bool { return key != outbox.HeaderListener && key != outbox.HeaderEventID })
	if len(env.Headers) == 0 {
		env.Headers = nil
	}
	return env
}

// listedError is the beginning of an error, as in lists.
func listedError(text string) string {
	if runes := []rune(text); len(runes) > outbox.MaxErrorLength {
		return string(runes[:outbox.MaxErrorLength])
	}
	return text
}

// inOrder compares two rows.
func inOrder(order outbox.EventOrder) func(a, b *memRow) int {
	switch order {
	case outbox.ByDueTime:
		return dueFirst
	case outbox.ByEndTime:
		return func(a, b *memRow) int { return diedFirst(b, a) }
	default:
		return func(a, b *memRow) int { return strings.Compare(b.env.EventID, a.env.EventID) }
	}
}

// place is the place of a row in an order, and at is a row at a place.
func (r *memRow) place(order outbox.EventOrder) outbox.Cursor {
	if order == outbox.ByEndTime {
		return outbox.Cursor{AvailableAt: r.endedAt(), EventID: r.env.EventID}
	}
	return cursorOf(r)
}

func at(place outbox.Cursor) *memRow {
	return &memRow{
		env:    outbox.Envelope{EventID: place.EventID},
		RawRow: RawRow{AvailableAt: place.AvailableAt, CreatedAt: place.CreatedAt, DoneAt: place.AvailableAt},
	}
}

// isIn reports whether a walk in the order comes to the row.
func (r *memRow) isIn(order outbox.EventOrder, f outbox.EventFilter) bool {
	switch order {
	case outbox.ByDueTime:
		return r.live() && within(r.AvailableAt, f) && dueWithin(r.AvailableAt, f)
	case outbox.ByEndTime:
		return r.Status == f.Statuses[0] && within(r.endedAt(), f)
	default:
		return strings.HasPrefix(r.env.EventID, f.IDPrefix)
	}
}

func dueWithin(at time.Time, f outbox.EventFilter) bool {
	return within(at, outbox.EventFilter{Since: f.DueAfter, Until: f.DueBefore})
}

func within(at time.Time, f outbox.EventFilter) bool {
	return (f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until))
}

// chosen reports whether the filter chooses a row that a walk came to.
func (r *memRow) chosen(f outbox.EventFilter) bool {
	return (len(f.Statuses) == 0 || slices.Contains(f.Statuses, r.Status)) &&
		isEmptyOr(f.EventType, r.env.EventType) && isEmptyOr(f.AggregateType, r.env.AggregateType) &&
		isEmptyOr(f.AggregateID, r.env.AggregateID) && isEmptyOr(f.TenantID, r.env.TenantID) &&
		f.HasTexts(r.env.EventID, listedError(r.LastError)) && (!f.Leased || r.leased() && !r.isDeleted()) && (f.DeletionID == "" || r.isDeleted() && r.LockedBy == outbox.DeletedBy+f.DeletionID) && dueWithin(r.AvailableAt, f) &&
		(f.Order() != outbox.ByEventID || within(r.CreatedAt, f))
}

// isEmptyOr reports whether a filter's field chooses a value.
func isEmptyOr[T ~string](chosen, value T) bool { return chosen == "" || chosen == value }

func (r *memRow) event() outbox.EventRow {
	event := outbox.EventRow{Envelope: r.envelope(), Status: r.Status, LastError: r.LastError, Lease: r.LockedBy, LeasedAt: r.LockedAt}
	if r.Status.Terminal() {
		event.EndedAt = r.endedAt()
	}
	return event
}

// FindEvent implements [outbox.Store].
func (s *Store) FindEvent(ctx context.Context, _ outbox.DB, eventID string) (outbox.EventRow, error) {
	if err := s.lock(ctx, "reading", eventID); err != nil {
		return outbox.EventRow{}, err
	}
	defer s.mu.Unlock()
	rows := s.named([]string{eventID}, func(*memRow) bool { return true })
	if len(rows) == 0 {
		return outbox.EventRow{}, s.fail("reading", outbox.ErrNotFound, eventID)
	}
	return rows[0].event(), nil
}

// Throughput implements [outbox.Store].
func (s *Store) Throughput(ctx context.Context, _ outbox.DB, since time.Time) (outbox.Throughput, error) {
	if err := s.lock(ctx, "reading the throughput"); err != nil {
		return outbox.Throughput{}, err
	}
	defer s.mu.Unlock()
	done := s.visible(diedFirst, func(r *memRow) bool {
		return r.Status == outbox.StatusDone && !r.isDeleted() && !r.endedAt().Before(since)
	})
	slices.Reverse(done)
	t := outbox.Throughput{Done: min(int64(len(done)), outbox.StatsLimit)}
	var took []time.Duration
	for _, r := range first(done, 1000) {
		if !r.DoneAt.IsZero() {
			took = append(took, max(r.DoneAt.Sub(r.AvailableAt), 0))
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		t.Median, t.P95, t.Max = took[len(took)/2], took[len(took)*95/100], took[len(took)-1]
	}
	return t, nil
}

// report is the report of a node, and until when the report counts.
type report struct {
	outbox.Node
	until time.Time
}

// Announce implements [outbox.Store].
func (s *Store) Announce(ctx context.Context, _ outbox.DB, node outbox.Node, d time.Duration) error {
	if err := s.lock(ctx, "reporting a node"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	now, given := s.clock(), node
	node = outbox.Node{
		Owner: node.Owner, Mode: node.Mode, Version: node.Version, Started: node.Started.UTC(), LastPoll: node.LastPoll.UTC(),
		HotDepth: node.HotDepth, ColdDepth: node.ColdDepth, Leases: node.Leases, SeenAt: now,
		Kinds: slices.Clone(node.Kinds), Unheard: slices.Clone(node.Unheard), MaxDueAges: slices.Clone(node.MaxDueAges),
	}
	if given.Totals != nil {
		totals := *given.Totals
		totals.Latencies, totals.Kinds = slices.Clone(totals.Latencies), slices.Clone(totals.Kinds)
		node.Totals = &totals
	}
	if given.Log != nil {
		lag := *given.Log
		node.Log = &lag
	}
	s.nodes[node.Owner] = report{node, now.Add(d)}
	for owner, r := range s.nodes {
		if r.until.Before(now.Add(-time.Hour)) {
			delete(s.nodes, owner)
		}
	}
	return nil
}

// Withdraw implements [outbox.Store].
func (s *Store) Withdraw(ctx context.Context, _ outbox.DB, owner string) error {
	if err := s.lock(ctx, "withdrawing a node"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	delete(s.nodes, owner)
	return nil
}

// Nodes implements [outbox.Store].
func (s *Store) Nodes(ctx context.Context, _ outbox.DB) ([]outbox.Node, error) {
	if err := s.lock(ctx, "listing the nodes"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.clock()
	byOwner := map[string]*outbox.Node{}
	node := func(owner string) *outbox.Node {
		if byOwner[owner] == nil {
			byOwner[owner] = &outbox.Node{Owner: owner}
		}
		return byOwner[owner]
	}
	for owner, r := range s.nodes {
		*node(owner) = r.Node
		node(owner).Leases = 0
		node(owner).Live = r.until.After(now)
	}
	if holder := (outbox.Ranges{Now: now, Ranges: s.ranges.Ranges}).Holder(); holder != "" {
		node(holder).Holds = true
	}
	due := s.visible(dueFirst, func(r *memRow) bool { return r.due(now, time.Time{}) })
	for _, r := range first(due, outbox.SearchLimit) {
		if !r.leased() {
			continue
		}
		owner := r.LockedBy
		if i := strings.LastIndexByte(owner, '/'); i >= 0 {
			owner = owner[:i]
		}
		n := node(owner)
		if n.Leases++; n.OldestLease.IsZero() || r.LockedAt.Before(n.OldestLease) {
			n.OldestLease = r.LockedAt
		}
	}
	var nodes []outbox.Node
	for owner, n := range byOwner {
		if len(due) >= outbox.SearchLimit {
			n.Leases = max(n.Leases, s.nodes[owner].Leases)
		}
		nodes = append(nodes, *n)
	}
	slices.SortFunc(nodes, func(a, b outbox.Node) int { return cmp.Compare(a.Owner, b.Owner) })
	return nodes, nil
}
