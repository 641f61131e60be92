package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var purgeTests = []storeTest{
	{"ByStatusOnlyOldDoneAndDeadRowsGo", func(s *storeSuite) {
		before := suiteTime
		old, young := before.Add(-time.Microsecond), before.Add(time.Microsecond)
		ancient := before.AddDate(-1, 0, 0)
		gone := []string{
			s.rowAt(outbox.StatusDone, ancient, old),
			s.rowAt(outbox.StatusDead, ancient, old),
			s.rowAt(outbox.StatusDone, young, old), // done_at counts, whatever created_at says
		}
		kept := []string{
			s.rowAt(outbox.StatusDone, ancient, before), // not earlier than before
			s.rowAt(outbox.StatusDone, ancient, young),
			s.rowAt(outbox.StatusDead, ancient, young),
			s.rowAt(outbox.StatusNew, ancient, time.Time{}),
			s.rowAt(outbox.StatusRetry, ancient, time.Time{}),
		}
		s.count("deleted", s.purge(outbox.PurgeQuery{Before: before, Limit: 100}), len(gone))
		s.left("rows left", slices.Concat(gone, kept), kept)
	}},
	{"ByStatusCreatedAtStandsInForDoneAt", func(s *storeSuite) {
		before := suiteTime
		gone := []string{
			s.rowAt(outbox.StatusDone, before.Add(-time.Microsecond), time.Time{}),
			s.rowAt(outbox.StatusDead, before.Add(-time.Microsecond), time.Time{}),
		}
		kept := []string{
			s.rowAt(outbox.StatusDone, before, time.Time{}),
			s.rowAt(outbox.StatusDead, before.Add(time.Hour), time.Time{}),
		}
		s.count("deleted", s.purge(outbox.PurgeQuery{Before: before, Limit: 100}), len(gone))
		s.left("rows left", slices.Concat(gone, kept), kept)
	}},
	{"ByAgeTheStatusDoesNotMatter", func(s *storeSuite) {
		before := suiteTime
		old, young := before.Add(-time.Microsecond), before.Add(time.Hour)
		gone := []string{
			s.rowAt(outbox.StatusNew, old, time.Time{}),
			s.rowAt(outbox.StatusRetry, old, time.Time{}),
			s.rowAt(outbox.StatusDone, old, young), // created_at counts, whatever done_at says
			s.rowAt(outbox.StatusDead, old, young),
		}
		kept := []string{
			s.rowAt(outbox.StatusNew, before, time.Time{}),
			s.rowAt(outbox.StatusDone, young, old),
		}
		s.count("deleted", s.purge(outbox.PurgeQuery{Before: before, ByAge: true, Limit: 100}), len(gone))
		s.left("rows left", slices.Concat(gone, kept), kept)
	}},
	{"OfSomeKindsAndAllButThese", func(s *storeSuite) {
		before := suiteTime
		kinds := []outbox.EventKind{{AggregateType: "order", EventType: "Paid"}, {AggregateType: outbox.Global, EventType: "Paid"}, {AggregateType: "order", EventType: "Sent"}}
		rows := map[outbox.Status]map[outbox.EventKind][]string{outbox.StatusDone: {}, outbox.StatusDead: {}}
		var all []string
		for status, of := range rows {
			for _, kind := range kinds {
				for n := range 4 {
					id := s.rowOf(kind, status, before.Add(time.Duration(n-3)*time.Minute))
					of[kind], all = append(of[kind], id), append(all, id)
				}
			}
		}
		gone := map[string]bool{}
		purge := func(q outbox.PurgeQuery, ids ...string) {
			s.t.Helper()
			q.Before = before
			purged, err := s.Store.Purge(s.ctx, s.DB, q)
			s.ok("Purge", err)
			s.count("deleted", purged.Rows, len(ids))
			for _, id := range ids {
				gone[id] = true
			}
			s.left("rows left", all, slices.DeleteFunc(slices.Clone(all), func(id string) bool { return gone[id] }))
			if want := before.Add(-time.Minute); len(ids) > 1 && !purged.Last.IsZero() && !purged.Last.Equal(want) {
				s.t.Fatalf("the last row is of %v, not of %v", purged.Last, want)
			}
		}
		done, dead := rows[outbox.StatusDone], rows[outbox.StatusDead]
		purge(outbox.PurgeQuery{Status: outbox.StatusDone, Only: kinds[:1], Limit: 1}, done[kinds[0]][0])
		purge(outbox.PurgeQuery{Status: outbox.StatusDone, Only: kinds[:1], Limit: 100, Since: before.Add(-time.Minute)}, done[kinds[0]][2])
		purge(outbox.PurgeQuery{Status: outbox.StatusDone, Only: kinds[:2], Limit: 100}, slices.Concat(done[kinds[0]][1:2], done[kinds[1]][:3])...)
		purge(outbox.PurgeQuery{Status: outbox.StatusDead, Except: kinds[1:], Limit: 100}, dead[kinds[0]][:3]...)
		purge(outbox.PurgeQuery{ByAge: true, Except: kinds[:1], Limit: 100, Since: before.Add(-time.Minute)}, done[kinds[2]][2], dead[kinds[1]][2], dead[kinds[2]][2])
		purge(outbox.PurgeQuery{Limit: 100}, slices.Concat(done[kinds[2]][:2], dead[kinds[1]][:2], dead[kinds[2]][:2])...)
	}},
	{"OfARowWithoutAnAggregateType", func(s *storeSuite) {
		if s.NullType == nil {
			s.t.Skip("the store cannot hold a row without an aggregate type")
		}
		global := []outbox.EventKind{{AggregateType: outbox.Global, EventType: "Paid"}}
		id := s.rowOf(global[0], outbox.StatusDone, suiteTime.Add(-time.Minute))
		s.NullType(s.t, id)
		s.count("deleted of the other kinds", s.purge(outbox.PurgeQuery{Before: suiteTime, Status: outbox.StatusDone, Except: global, Limit: 10}), 0)
		s.count("deleted", s.purge(outbox.PurgeQuery{Before: suiteTime, Status: outbox.StatusDone, Only: global, Limit: 10}), 1)
	}},
	{"BatchesUntilOneIsShort", func(s *storeSuite) {
		for _, byAge := range []bool{false, true} {
			envs := s.events(7)
			s.insert(envs...)
			s.mark(outbox.OutcomeDone, "", marksOf(envs)...)
			for _, want := range []int{3, 3, 1, 0} {
				n := s.purge(outbox.PurgeQuery{Before: s.now().Add(time.Hour), ByAge: byAge, Limit: 3})
				s.count("deleted in a batch", n, want)
			}
		}
	}},
}

var statsTests = []storeTest{
	{"CountsDueDelayedAndDead", func(s *storeSuite) {
		stats := func(after time.Duration) outbox.StoreStats {
			st, err := s.Store.Stats(s.ctx, s.DB, suiteTime.Add(after), nil)
			s.ok("Stats", err)
			return st
		}
		same := func(what string, got, want outbox.StoreStats) {
			s.t.Helper()
			if !got.OldestDue.Equal(want.OldestDue) || got.Due != want.Due || got.Delayed != want.Delayed || got.Dead != want.Dead {
				s.t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
			}
		}
		same("empty table", stats(0), outbox.StoreStats{})
		for minute, status := range []outbox.Status{
			outbox.StatusDone, outbox.StatusDead, outbox.StatusDead, outbox.StatusRetry, outbox.StatusNew, outbox.StatusRetry, outbox.StatusNew,
		} {
			env := s.insertedAs(status, "")
			s.edit(env.EventID, func(row *RawRow) { row.AvailableAt = suiteTime.Add(time.Duration(minute) * time.Minute) })
		}
		same("before all", stats(-time.Hour), outbox.StoreStats{Delayed: 4, Dead: 2})
		same("when the second one is due", stats(4*time.Minute), outbox.StoreStats{Due: 2, Delayed: 2, Dead: 2, OldestDue: suiteTime.Add(3 * time.Minute)})
		same("after all", stats(time.Hour), outbox.StoreStats{Due: 4, Dead: 2, OldestDue: suiteTime.Add(3 * time.Minute)})
	}},
	{"TheOldestDueRowIsOfNoPausedKind", func(s *storeSuite) {
		kinds := make([]outbox.EventKind, 3)
		for i, aggregate := range []outbox.AggregateType{"order", outbox.Global, "order"} {
			kinds[i] = outbox.EventKind{AggregateType: aggregate, EventType: []outbox.EventType{"Paid", "Paid", "Sent"}[i]}
			for range 2 {
				env := s.event(time.Duration(i) * time.Minute)
				env.AggregateType, env.EventType = kinds[i].AggregateType, kinds[i].EventType
				s.insert(env)
			}
		}
		for n, want := range []time.Time{suiteTime, suiteTime.Add(time.Minute), suiteTime.Add(2 * time.Minute), {}} {
			st, err := s.Store.Stats(s.ctx, s.DB, suiteTime.Add(time.Hour), kinds[:n])
			s.ok("Stats", err)
			if st.Due != 6 || st.DuePaused != int64(2*n) || !st.OldestDue.Equal(want) {
				s.t.Fatalf("with %d kinds paused: got %+v, want the oldest of 6 at %v", n, st, want)
			}
		}
	}},
	{"DueRowsAreGroupedByKind", func(s *storeSuite) {
		paid, global, sent := outbox.EventKind{AggregateType: "order", EventType: "Paid"}, outbox.EventKind{AggregateType: outbox.Global, EventType: "Paid"}, outbox.EventKind{AggregateType: "order", EventType: "Sent"}
		for _, kind := range []outbox.EventKind{paid, global, sent} {
			for i, status := range []outbox.Status{outbox.StatusRetry, outbox.StatusNew, outbox.StatusNew, outbox.StatusDead, outbox.StatusDone} {
				id := s.rowOf(kind, status, suiteTime)
				s.edit(id, func(row *RawRow) { row.AvailableAt = suiteTime.Add(time.Duration(i+1) * time.Minute) })
			}
		}
		at := func(minutes int) time.Time { return suiteTime.Add(time.Duration(minutes) * time.Minute) }
		due := func(kind outbox.EventKind, n int64) outbox.DueKind {
			return outbox.DueKind{Kind: kind, Events: n, Oldest: at(1)}
		}
		limit := func(kind outbox.EventKind, before time.Time) outbox.DueLimit {
			return outbox.DueLimit{Kind: kind, Before: before}
		}
		for name, c := range map[string]struct {
			q    outbox.DueKindsQuery
			want []outbox.DueKind
		}{
			"nothing is due":     {outbox.DueKindsQuery{Now: at(0)}, nil},
			"some rows":          {outbox.DueKindsQuery{Now: at(2)}, []outbox.DueKind{due(global, 2), due(paid, 2), due(sent, 2)}},
			"all rows":           {outbox.DueKindsQuery{Now: at(9)}, []outbox.DueKind{due(global, 3), due(paid, 3), due(sent, 3)}},
			"without some kinds": {outbox.DueKindsQuery{Now: at(9), Except: []outbox.EventKind{paid, global}}, []outbox.DueKind{due(sent, 3)}},
			"with limits": {
				outbox.DueKindsQuery{Now: at(9), Limits: []outbox.DueLimit{limit(paid, at(1)), limit(global, at(1).Add(-time.Microsecond))}},
				[]outbox.DueKind{due(paid, 1), due(sent, 3)},
			},
			"with a limit of a kind that is left out": {
				outbox.DueKindsQuery{Now: at(9), Except: []outbox.EventKind{sent}, Limits: []outbox.DueLimit{limit(sent, at(9)), limit(global, at(2))}},
				[]outbox.DueKind{due(global, 2), due(paid, 3)},
			},
		} {
			got, err := s.Store.DueKinds(s.ctx, s.DB, c.q)
			s.ok("DueKinds", err)
			slices.SortFunc(got, func(a, b outbox.DueKind) int { return strings.Compare(a.Kind.String(), b.Kind.String()) })
			slices.SortFunc(c.want, func(a, b outbox.DueKind) int { return strings.Compare(a.Kind.String(), b.Kind.String()) })
			if !slices.EqualFunc(got, c.want, func(a, b outbox.DueKind) bool {
				return a.Kind == b.Kind && a.Events == b.Events && a.Oldest.Equal(b.Oldest)
			}) {
				s.t.Fatalf("%s:\n got %+v\nwant %+v", name, got, c.want)
			}
		}
	}},
	{"ARowWithoutAnAggregateTypeIsDueAsGlobal", func(s *storeSuite) {
		if s.NullType == nil {
			s.t.Skip("the store cannot hold a row without an aggregate type")
		}
		global := outbox.EventKind{AggregateType: outbox.Global, EventType: "Paid"}
		for range 2 {
			id := s.rowOf(global, outbox.StatusNew, suiteTime)
			s.edit(id, func(row *RawRow) { row.AvailableAt = suiteTime })
			s.NullType(s.t, id)
			s.rowOf(global, outbox.StatusNew, suiteTime)
		}
		got, err := s.Store.DueKinds(s.ctx, s.DB, outbox.DueKindsQuery{Now: suiteTime.Add(time.Hour), Limits: []outbox.DueLimit{{Kind: global, Before: suiteTime.Add(time.Hour)}}})
		s.ok("DueKinds", err)
		if len(got) != 1 || got[0].Kind != global || got[0].Events != 4 {
			s.t.Fatalf("got %+v, want 4 rows of %s", got, global)
		}
	}},
}

func (s *storeSuite) purge(q outbox.PurgeQuery) int {
	s.t.Helper()
	purged, err := s.Store.Purge(s.ctx, s.DB, q)
	s.ok("Purge", err)
	return purged.Rows
}

// rowOf adds an event of a kind and a status that was written and ended at a time.
func (s *storeSuite) rowOf(kind outbox.EventKind, status outbox.Status, at time.Time) string {
	s.t.Helper()
	env := s.event(0)
	env.AggregateType, env.EventType = kind.AggregateType, kind.EventType
	s.insert(env)
	s.edit(env.EventID, func(row *RawRow) { row.Status, row.CreatedAt, row.DoneAt = status, at, at })
	return env.EventID
}

// rowAt adds an event of a status with these times; a zero done_at is missing.
func (s *storeSuite) rowAt(status outbox.Status, created, done time.Time) string {
	s.t.Helper()
	env := s.insertedAs(status, "")
	s.edit(env.EventID, func(row *RawRow) { row.CreatedAt, row.DoneAt = created, done })
	return env.EventID
}

// left fails the test unless exactly the given candidates remain.
func (s *storeSuite) left(what string, candidates, want []string) {
	s.t.Helper()
	var got []string
	for _, id := range candidates {
		if _, ok := s.Row(s.t, id); ok {
			got = append(got, id)
		}
	}
	s.sameIDs(what, got, want)
}
