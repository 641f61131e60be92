package conformance

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var inspectTests = []storeTest{
	{"EachOrder", inspectOrders},
	{"Filters", inspectFilters},
	{"TimeBounds", inspectTimes},
	{"BeginningsOfIDs", inspectPrefixes},
	{"TextsOfErrors", inspectErrors},
	{"Leased", inspectLeased},
	{"DueBounds", inspectDue},
	{"HowManyRowsAPageLookedAt", inspectLooked},
	{"PagesCoverEveryEventOnce", inspectPages},
	{"PagesCoverWhatStaysWhileOthersComeAndGo", inspectChangingPages},
	{"APageLooksAtABoundedNumberOfRows", inspectBound},
	{"AnotherPlaceIsRefused", inspectPlaces},
	{"ListedEventsHaveNoPayloadAndNoHeaders", inspectListed},
	{"ListedEventsHaveTheListenerOfTheirRow", inspectListener},
	{"OneEventIsReadWhole", inspectWhole},
	{"HeadersThatDoNotDecodeAreLeftOut", inspectCorrupt},
	{"Throughput", inspectThroughput},
}

// Lists of statuses, by their order.
var (
	liveStatuses = []outbox.Status{outbox.StatusNew, outbox.StatusRetry}
	doneStatuses = []outbox.Status{outbox.StatusDone}
	deadStatuses = []outbox.Status{outbox.StatusDead}
)

func (s *storeSuite) page(q outbox.EventQuery) outbox.Page[outbox.EventRow] {
	s.t.Helper()
	if q.Limit == 0 {
		q.Limit = outbox.MaxFindLimit
	}
	page, err := s.Store.FindEvents(s.ctx, s.DB, q)
	s.ok("FindEvents", err)
	return page
}

// finds compares the ids of all events that a filter chooses.
func (s *storeSuite) finds(what string, f outbox.EventFilter, want ...string) {
	s.t.Helper()
	page := s.page(outbox.EventQuery{EventFilter: f})
	s.sameIDs(what, eventIDs(page.Rows), want)
	if page.Next != "" {
		s.t.Fatalf("%s: the only page has the next place %q", what, page.Next)
	}
}

func eventIDs(events []outbox.EventRow) []string {
	ids := make([]string, len(events))
	for i := range events {
		ids[i] = events[i].EventID
	}
	return ids
}

// as adds an event with a status and with the given time after suiteTime, in the column by which
// rows of the status are ordered.
func (s *storeSuite) as(status outbox.Status, after time.Duration, change ...func(env *outbox.Envelope)) string {
	s.t.Helper()
	env := s.event(0)
	for _, fn := range change {
		fn(&env)
	}
	s.insert(env)
	s.edit(env.EventID, func(row *RawRow) {
		row.Status = status
		if status.Terminal() {
			row.DoneAt = suiteTime.Add(after)
		} else {
			row.AvailableAt = suiteTime.Add(after)
		}
	})
	return env.EventID
}

func inspectOrders(s *storeSuite) {
	s.finds("an empty table", outbox.EventFilter{})
	late, early := s.as(outbox.StatusNew, 9*time.Second), s.as(outbox.StatusRetry, 3*time.Second)
	middle, tie := s.as(outbox.StatusNew, 6*time.Second), s.as(outbox.StatusRetry, 6*time.Second)
	done1, done2, done3 := s.as(outbox.StatusDone, 5*time.Second), s.as(outbox.StatusDone, 8*time.Second), s.as(outbox.StatusDone, 5*time.Second)
	dead1, dead2, dead3 := s.as(outbox.StatusDead, 7*time.Second), s.as(outbox.StatusDead, 1*time.Second), s.as(outbox.StatusDead, 7*time.Second)
	filter := func(statuses ...outbox.Status) outbox.EventFilter { return outbox.EventFilter{Statuses: statuses} }
	s.finds("all", filter(), dead3, dead2, dead1, done3, done2, done1, tie, middle, early, late)
	s.finds("NEW and RETRY", filter(liveStatuses...), early, middle, tie, late)
	s.finds("RETRY and NEW", filter(outbox.StatusRetry, outbox.StatusNew), early, middle, tie, late)
	s.finds("NEW", filter(outbox.StatusNew), middle, late)
	s.finds("RETRY", filter(outbox.StatusRetry), early, tie)
	s.finds("DONE", filter(doneStatuses...), done2, done3, done1)
	s.finds("DEAD", filter(deadStatuses...), dead3, dead1, dead2)
	s.finds("DEAD and NEW", filter(outbox.StatusDead, outbox.StatusNew), dead3, dead2, dead1, middle, late)
	s.finds("DONE and DEAD", filter(outbox.StatusDone, outbox.StatusDead), dead3, dead2, dead1, done3, done2, done1)
}

func inspectFilters(s *storeSuite) {
	typed := func(aggregate outbox.AggregateType, event outbox.EventType, id, tenant string) func(env *outbox.Envelope) {
		return func(env *outbox.Envelope) {
			env.AggregateType, env.EventType, env.AggregateID, env.TenantID = aggregate, event, id, tenant
		}
	}
	for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead} {
		a := s.as(status, 4*time.Second, typed("Order", "Placed", "o-1", "acme"))
		b := s.as(status, 3*time.Second, typed("Order", "Paid", "o-2", "acme"))
		c := s.as(status, 2*time.Second, typed("Invoice", "Paid", "o-1", "zoo"))
		d := s.as(status, 1*time.Second, typed(outbox.Global, "paid", "", ""))
		for name, test := range map[string]struct {
			filter outbox.EventFilter
			want   []string
		}{
			"event type":              {outbox.EventFilter{EventType: "Paid"}, []string{b, c}},
			"aggregate type":          {outbox.EventFilter{AggregateType: "Order"}, []string{a, b}},
			"no aggregate type":       {outbox.EventFilter{AggregateType: outbox.Global}, []string{d}},
			"aggregate id":            {outbox.EventFilter{AggregateID: "o-1"}, []string{a, c}},
			"tenant":                  {outbox.EventFilter{TenantID: "acme"}, []string{a, b}},
			"everything":              {outbox.EventFilter{EventType: "Paid", AggregateType: "Order", AggregateID: "o-2", TenantID: "acme"}, []string{b}},
			"nothing":                 {outbox.EventFilter{EventType: "Paid", TenantID: "nobody"}, nil},
			"a wildcard is no filter": {outbox.EventFilter{AggregateID: "o-%"}, nil},
		} {
			test.filter.Statuses = []outbox.Status{status}
			page := s.page(outbox.EventQuery{EventFilter: test.filter})
			got := eventIDs(page.Rows)
			slices.Sort(got)
			slices.Sort(test.want)
			s.sameIDs(status.String()+", "+name, got, test.want)
		}
	}
}

func inspectTimes(s *storeSuite) {
	at := func(seconds int) time.Time { return suiteTime.Add(time.Duration(seconds) * time.Second) }
	for _, statuses := range [][]outbox.Status{liveStatuses, doneStatuses, deadStatuses} {
		var ids [4]string
		for i := range ids {
			ids[i] = s.as(statuses[0], time.Duration(i)*time.Second)
		}
		for name, test := range map[string]struct {
			since, until time.Time
			want         []string
		}{
			"since, inclusive": {since: at(2), want: ids[2:]},
			"until, exclusive": {until: at(2), want: ids[:2]},
			"both":             {since: at(1), until: at(3), want: ids[1:3]},
			"an empty span":    {since: at(1), until: at(1)},
		} {
			want := slices.Clone(test.want)
			if statuses[0].Terminal() {
				slices.Reverse(want)
			}
			s.finds(name, outbox.EventFilter{Statuses: statuses, Since: test.since, Until: test.until}, want...)
		}
	}
	var occurred [3]outbox.Envelope
	for i := range occurred {
		occurred[i] = s.event(time.Hour + time.Duration(i)*time.Second)
	}
	s.insert(occurred[:]...)
	s.finds("when they occurred", outbox.EventFilter{Since: occurred[0].OccurredAt, Until: occurred[2].OccurredAt}, occurred[1].EventID, occurred[0].EventID)
}

func inspectListed(s *storeSuite) {
	id := s.as(outbox.StatusDead, time.Second, func(env *outbox.Envelope) { env.Headers = map[string]string{"source": "api"} })
	s.edit(id, func(row *RawRow) { row.LastError, row.Attempts = "it failed", 4 })
	event := s.page(outbox.EventQuery{}).Rows[0]
	if !event.Payload.IsZero() || len(event.Headers) > 0 {
		s.t.Fatalf("the listed event has a payload of %d bytes and the headers %v", event.Payload.Len(), event.Headers)
	}
	if event.LastError != "it failed" || event.Attempts != 4 || event.Status != outbox.StatusDead || !event.EndedAt.Equal(suiteTime.Add(time.Second)) {
		s.t.Fatalf("the listed event is %+v", event)
	}
	s.edit(id, func(row *RawRow) { row.LastError = strings.Repeat("é", 5000) })
	if event = s.page(outbox.EventQuery{}).Rows[0]; event.LastError != strings.Repeat("é", outbox.MaxErrorLength) {
		s.t.Fatalf("the listed event has an error of %d bytes", len(event.LastError))
	}
}

func inspectListener(s *storeSuite) {
	s.as(outbox.StatusDead, time.Second, func(env *outbox.Envelope) { env.Headers = listenerHeaders() })
	for _, statuses := range [][]outbox.Status{nil, deadStatuses} {
		s.onlyListener(s.page(outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: statuses}}).Rows[0].Headers)
	}
}

func inspectWhole(s *storeSuite) {
	for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead} {
		want := s.insertedAs(status, "node-1/7")
		for _, read := range []func() outbox.EventRow{
			func() outbox.EventRow {
				event, err := s.Store.FindEvent(s.ctx, s.DB, want.EventID)
				s.ok("FindEvent", err)
				return event
			},
			func() outbox.EventRow {
				event := s.page(outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: []outbox.Status{status}}}).Rows[0]
				event.Payload, event.Headers = want.Payload, want.Headers
				return event
			},
		} {
			got := read()
			env := want.Envelope
			env.Attempts = want.row.Attempts
			for _, d := range diffEnvelopes(got.Envelope, env) {
				s.t.Errorf("%s event: %s", status, d)
			}
			row := RawRow{
				Status: got.Status, Attempts: got.Attempts, AvailableAt: got.AvailableAt, CreatedAt: got.OccurredAt,
				DoneAt: got.EndedAt, LastError: got.LastError, LockedBy: got.Lease, LockedAt: got.LeasedAt,
			}
			if !sameRow(row, want.row) {
				s.t.Errorf("%s event:\n got %+v\nwant %+v", status, row, want.row)
			}
		}
	}
	if _, err := s.Store.FindEvent(s.ctx, s.DB, "no such event"); !errors.Is(err, outbox.ErrNotFound) {
		s.t.Fatalf("FindEvent without a row: got %v, want ErrNotFound", err)
	}
}

func inspectCorrupt(s *storeSuite) {
	if s.Spoil == nil {
		s.t.Skip("the store cannot hold headers that do not decode")
	}
	env := s.inserted()
	s.Spoil["headers"](s.t, env.EventID)
	event, err := s.Store.FindEvent(s.ctx, s.DB, env.EventID)
	s.ok("FindEvent", err)
	if event.Headers != nil || event.Payload.IsZero() {
		s.t.Fatalf("the event has %d headers and a payload of %d bytes", len(event.Headers), event.Payload.Len())
	}
	s.finds("listed", outbox.EventFilter{}, env.EventID)
}

func inspectThroughput(s *storeSuite) {
	now := s.now()
	since := now.Add(-outbox.ThroughputWindow)
	read := func() outbox.Throughput {
		t, err := s.Store.Throughput(s.ctx, s.DB, since)
		s.ok("Throughput", err)
		return t
	}
	if got := read(); got != (outbox.Throughput{}) {
		s.t.Fatalf("the throughput of an empty table is %+v", got)
	}
	delivered := func(ago, took time.Duration) {
		s.edit(s.as(outbox.StatusDone, 0), func(row *RawRow) {
			row.DoneAt = now.Add(-ago)
			row.AvailableAt = row.DoneAt.Add(-took)
		})
	}
	delivered(2*time.Minute, time.Hour) // before the window
	for i := range 100 {
		delivered(time.Second, time.Duration(i+1)*time.Millisecond)
	}
	s.as(outbox.StatusNew, 0)
	s.edit(s.as(outbox.StatusDead, 0), func(row *RawRow) { row.DoneAt = now.Add(-time.Second) })
	got := read()
	want := outbox.Throughput{Done: 100, Median: 51 * time.Millisecond, P95: 96 * time.Millisecond, Max: 100 * time.Millisecond}
	if got != want {
		s.t.Fatalf("throughput:\n got %+v\nwant %+v", got, want)
	}
	delivered(time.Second, -time.Hour) // done before it was due again, as a replay may leave it
	if got := read(); got.Done != 101 || got.Max != want.Max {
		s.t.Fatalf("throughput with an event that was done early: %+v", got)
	}
}
