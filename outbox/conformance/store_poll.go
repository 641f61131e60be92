package conformance

import (
	"maps"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var pollTests = []storeTest{
	{"FreeRowsAreReadExpiredLeasesAreNamedAndNothingChanges", func(s *storeSuite) {
		rows := s.everyState()
		q := outbox.PollQuery{Now: suiteTime.Add(later), Limit: 10}
		for range 2 {
			b := s.poll(q)
			s.sameIDs("ids", idsOf(b.Envelopes), []string{rows["new"].EventID, rows["retry"].EventID})
			s.count("attempts of the event in retry", b.Envelopes[1].Attempts, 3)
			expired := eventsOf(b.Expired)
			s.sameIDs("ids whose lease expired", expired, []string{rows["expired"].EventID, rows["expired retry"].EventID, rows["from the future"].EventID})
			s.count("rows", b.Len(), 5)
			if !slices.Contains(b.Expired, outbox.Lease{EventID: rows["expired retry"].EventID, Name: "node-2/1"}) {
				s.t.Fatalf("the leases that expired are %v, without that of the retry", b.Expired)
			}
			s.unchanged("row after the poll", slices.Collect(maps.Values(rows))...)
		}
		q.LeaseDuration = 2 * time.Hour
		s.count("rows under a longer lease", s.poll(q).Len(), 2)
	}},
	{"FreshRowsOnly", func(s *storeSuite) {
		rows := s.everyState()
		b := s.poll(outbox.PollQuery{Now: suiteTime.Add(later), Limit: 10, FreshOnly: true})
		s.sameIDs("ids", idsOf(b.Envelopes), []string{rows["new"].EventID, rows["retry"].EventID})
		s.count("rows", b.Len(), 2)
		s.unchanged("row after the poll", slices.Collect(maps.Values(rows))...)
	}},
	{"CursorCoversEveryRowOnce", func(s *storeSuite) {
		envs := cursorEvents(s)
		s.insert(envs...)
		want := idsOf(envs)
		slices.Sort(want)
		for _, limit := range []int{1, 7, len(envs)} {
			var got []string
			q := outbox.PollQuery{Now: suiteTime.Add(later), Limit: limit}
			for page := 0; page <= len(envs); page++ {
				b := s.poll(q)
				if b.Len() > limit {
					s.t.Fatalf("a page of %d rows, want at most %d", b.Len(), limit)
				}
				got = append(got, idsOf(b.Envelopes)...)
				if b.Len() < limit {
					break
				}
				q.After = b.Next
			}
			slices.Sort(got)
			s.sameIDs("ids of all pages", got, want)
		}
	}},
	{"CursorGoesOnWhileRowsAreMarked", func(s *storeSuite) {
		envs := s.events(25)
		s.insert(envs...)
		var got []string
		q := outbox.PollQuery{Now: suiteTime.Add(later), Limit: 10}
		for {
			b := s.poll(q)
			got = append(got, idsOf(b.Envelopes)...)
			if b.Len() < q.Limit {
				break
			}
			s.mark(outbox.OutcomeDone, "", marksOf(b.Envelopes)...)
			q.After = b.Next
		}
		s.sameIDs("ids of all pages", got, idsOf(envs))
	}},
	{"UndecodableRowsBesideGoodOnes", undecodableRows},
	{"NextDue", func(s *storeSuite) {
		next := func(after time.Duration) time.Time {
			at, err := s.Store.NextDue(s.ctx, s.DB, suiteTime.Add(after))
			s.ok("NextDue", err)
			return at
		}
		same := func(what string, got, want time.Time) {
			s.t.Helper()
			if !got.Equal(want) || got.Location() != time.UTC && !got.IsZero() {
				s.t.Fatalf("%s: got %v, want %v", what, got, want)
			}
		}
		same("empty table", next(0), time.Time{})
		for i, status := range []outbox.Status{outbox.StatusDone, outbox.StatusDead, outbox.StatusRetry, outbox.StatusNew} {
			env := s.insertedAs(status, "node-1/1")
			s.edit(env.EventID, func(row *RawRow) { row.AvailableAt = suiteTime.Add(time.Duration(i) * time.Minute) })
		}
		same("from the start: terminal rows do not count", next(-later), suiteTime.Add(2*time.Minute))
		same("just before", next(2*time.Minute-time.Microsecond), suiteTime.Add(2*time.Minute))
		same("at the time", next(2*time.Minute), suiteTime.Add(3*time.Minute))
		same("behind the last", next(3*time.Minute), time.Time{})
	}},
}

// cursorEvents are events with many ties in both times and ids that collations
// sort in different ways.
func cursorEvents(s *storeSuite) []outbox.Envelope {
	ids := []string{"a", "B", "b", "A", "_x", "-x", "Zz", "zZ", "é", "e", "f", "01", "1", "10", "ß", "ss", "a-b", "ab", "aB"}
	var envs []outbox.Envelope
	for group := range 3 {
		for _, id := range ids {
			env := s.event(time.Duration(group/2) * time.Second)
			env.EventID = id + "-" + string(rune('0'+group))
			env.AvailableAt = suiteTime.Add(time.Duration(2-group/2) * time.Second)
			envs = append(envs, env)
		}
	}
	return envs
}

// eventsOf are the ids of the events that have the leases, in order.
func eventsOf(leases []outbox.Lease) (ids []string) {
	for _, l := range leases {
		ids = append(ids, l.EventID)
	}
	slices.Sort(ids)
	return ids
}
