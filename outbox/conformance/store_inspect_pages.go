package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// eachWalk calls fn for the statuses of each order.
func eachWalk(fn func(statuses []outbox.Status)) {
	for _, statuses := range [][]outbox.Status{nil, liveStatuses, doneStatuses, deadStatuses} {
		fn(statuses)
	}
}

// walk reads all pages, and calls between after each page but the last.
func (s *storeSuite) walk(q outbox.EventQuery, between func()) []string {
	s.t.Helper()
	var ids []string
	for pages := 0; ; pages++ {
		page := s.page(q)
		ids = append(ids, eventIDs(page.Rows)...)
		if page.Next == "" {
			return ids
		}
		if pages > 1000 {
			s.t.Fatalf("there are pages without end for %+v", q)
		}
		q.After = page.Next
		between()
	}
}

func inspectPages(s *storeSuite) {
	for i := range 7 { // with rows of the same time
		for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead} {
			s.as(status, time.Duration(i/3)*time.Second)
		}
	}
	eachWalk(func(statuses []outbox.Status) {
		filter := outbox.EventFilter{Statuses: statuses}
		want := eventIDs(s.page(outbox.EventQuery{EventFilter: filter}).Rows)
		for _, limit := range []int{1, 3, 7, 100} {
			got := s.walk(outbox.EventQuery{EventFilter: filter, Limit: limit}, func() {})
			s.sameIDs(fmt.Sprintf("%v, pages of %d", statuses, limit), got, want)
		}
	})
	if page := s.page(outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: doneStatuses}, Limit: 7}); page.Next != "" {
		s.t.Fatalf("the page with the last row has the next place %q", page.Next)
	}
}

func inspectChangingPages(s *storeSuite) {
	eachWalk(func(statuses []outbox.Status) {
		status := outbox.StatusNew
		if len(statuses) > 0 {
			status = statuses[0]
		}
		var stay, leave []string
		for i := range 12 {
			id := s.as(status, time.Duration(i/2)*time.Second)
			if i%3 == 2 {
				leave = append(leave, id)
			} else {
				stay = append(stay, id)
			}
		}
		between := func() {
			s.as(status, time.Duration(s.seq%9)*time.Second)
			if len(leave) > 0 {
				s.edit(leave[0], func(row *RawRow) { row.Status, row.DoneAt = (status+1)%4, suiteTime.Add(3*time.Second) })
				leave = leave[1:]
			}
		}
		rounds := 0
		got := s.walk(outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: statuses}, Limit: 2}, func() {
			if rounds++; rounds < 20 {
				between()
			}
		})
		seen := map[string]int{}
		for _, id := range got {
			seen[id]++
		}
		for _, id := range stay {
			s.count(fmt.Sprintf("%v: pages that have event %s", statuses, id), seen[id], 1)
		}
	})
}

// inspectBound finds the rarest event at the very end of the walk.
func inspectBound(s *storeSuite) {
	rare := s.event(2 * time.Hour) // the last event due, and the first id
	rare.AggregateType = "Rare"
	s.insert(rare)
	for range outbox.SearchLimit / 500 {
		s.insert(s.events(500)...)
	}
	for _, statuses := range [][]outbox.Status{nil, liveStatuses} {
		q := outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: statuses, AggregateType: "Rare"}}
		first := s.page(q)
		s.sameIDs("the first page", eventIDs(first.Rows), nil)
		s.count("rows that the first page looked at", first.Looked, outbox.SearchLimit)
		if q.After = first.Next; q.After == "" {
			s.t.Fatalf("%v: the first page looked at more than %d rows", statuses, outbox.SearchLimit)
		}
		second := s.page(q)
		s.sameIDs("the second page", eventIDs(second.Rows), []string{rare.EventID})
		if second.Next != "" {
			s.t.Fatalf("%v: the last page has the next place %q", statuses, second.Next)
		}
	}
}

func inspectPlaces(s *storeSuite) {
	for i := range 3 {
		s.as(outbox.StatusNew, time.Duration(i)*time.Second)
	}
	byDue := s.page(outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: liveStatuses}, Limit: 1}).Next
	for name, q := range map[string]outbox.EventQuery{
		"no text of a place":     {After: "no place"},
		"text of nothing":        {After: "MA"},
		"a place that is cut":    {After: byDue[:len(byDue)/2], EventFilter: outbox.EventFilter{Statuses: liveStatuses}},
		"a place of other order": {After: byDue},
		"a quote":                {After: "' OR 1 = 1 --"},
	} {
		q.Limit = 10
		_, err := s.Store.FindEvents(s.ctx, s.DB, q)
		if field := (*outbox.FieldError)(nil); !errors.As(err, &field) || field.Field != "EventQuery.After" {
			s.t.Fatalf("%s: got %v, want a FieldError for EventQuery.After", name, err)
		}
	}
}
