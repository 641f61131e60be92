package conformance

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var rangeTests = []storeTest{
	{"ATableThatHasNone", func(s *storeSuite) {
		before := s.now()
		got := s.ranges()
		s.duringCall("Now", got.Now, before)
		s.sameRanges("the ranges of a new table", got, outbox.Ranges{})
		if got.Now.Location() != time.UTC || got.Now.Nanosecond()%1000 != 0 {
			s.t.Fatalf("Now is %v, want UTC and whole microseconds", got.Now)
		}
	}},
	{"AreReadAsTheyWereSet", func(s *storeSuite) {
		was := ""
		for _, n := range []int{0, 1, 100, 3, 0} {
			next := s.someRanges(fmt.Sprintf("node \"1\"/%d of %d é🎉", n, len(was)), n)
			if !s.sets(was, next) {
				s.t.Fatalf("%d ranges are not set", n)
			}
			before := s.now()
			got := s.ranges()
			s.duringCall("Now", got.Now, before)
			s.sameRanges(fmt.Sprintf("%d ranges", n), got, next)
			was = next.Version
		}
	}},
	{"AVersionIsReplacedOnce", func(s *storeSuite) {
		first, second, third := s.someRanges("node-1/1", 1), s.someRanges("node-2/1", 2), s.someRanges("node-3/1", 3)
		for _, tt := range []struct {
			was  string
			next outbox.Ranges
			want bool
		}{
			{"node-0/1", second, false}, // no call has set this version
			{"", first, true},
			{"", first, false}, // late
			{"", second, false},
			{"node-1/1", second, true},
			{"node-1/1", second, false},
			{"node-1/1", third, false}, // two calls that read the same version
			{"", third, false},
			{"node-2/1", third, true},
			{"node-1/1", second, false},
		} {
			now := s.ranges()
			if set := s.sets(tt.was, tt.next); set != tt.want {
				s.t.Fatalf("setting %s after %q: %t, want %t", tt.next.Version, tt.was, set, tt.want)
			}
			if tt.want {
				now = tt.next
			}
			s.sameRanges("afterwards", s.ranges(), now)
		}
	}},
	{"ALateSetChangesNothing", func(s *storeSuite) {
		first := s.someRanges("node-1/1", 1)
		for by, want := range map[time.Duration]bool{-time.Hour: false, -time.Second: false, time.Minute: true} {
			was := s.ranges()
			first.Version = fmt.Sprintf("node-1/%s", by)
			set, err := s.Store.SetRanges(s.ctx, s.DB, was.Version, s.now().Add(by), first)
			s.ok("SetRanges", err)
			if set != want {
				s.t.Fatalf("setting by %s: %t, want %t", by, set, want)
			}
			if !want {
				s.sameRanges("afterwards", s.ranges(), was)
			}
		}
	}},
	{"OfManyAtOnceOneSets", func(s *storeSuite) {
		const callers = 8
		was := ""
		for round := range 6 {
			var (
				wg    sync.WaitGroup
				start = make(chan struct{})
				set   [callers]bool
				errs  [callers]error
				next  [callers]outbox.Ranges
			)
			for i := range callers {
				next[i] = s.someRanges(fmt.Sprintf("%s/%d", callerName(i), round), i)
				by := s.now().Add(time.Hour)
				wg.Go(func() {
					<-start
					set[i], errs[i] = s.Store.SetRanges(s.ctx, s.DB, was, by, next[i])
				})
			}
			close(start)
			wg.Wait()
			var winners []int
			for i := range callers {
				s.ok("SetRanges", errs[i])
				if set[i] {
					winners = append(winners, i)
				}
			}
			if len(winners) != 1 {
				s.t.Fatalf("the ranges are set by %d callers, want one: %v", len(winners), winners)
			}
			s.sameRanges("afterwards", s.ranges(), next[winners[0]])
			was = next[winners[0]].Version
		}
	}},
}

var reachTests = []storeTest{
	{"CountsWhatAPollReads", func(s *storeSuite) {
		s.reaches("an empty table", outbox.PollQuery{Limit: 10}, 0, 0)
		rows := s.everyState()
		all := outbox.PollQuery{Limit: 10}
		s.reaches("all rows", all, 2, 3)
		s.reaches("rows under a longer lease", outbox.PollQuery{Limit: 10, LeaseDuration: 2 * time.Hour}, 2, 0)
		s.reaches("a row", outbox.PollQuery{Limit: 1}, 0, 1)
		s.reaches("fresh rows", outbox.PollQuery{Limit: 10, FreshOnly: true}, 2, 0)
		place := placeOf(rows["new"].Envelope)
		s.reaches("rows up to a place", outbox.PollQuery{Limit: 10, Upto: place}, 1, 3)
		s.reaches("rows behind a place", outbox.PollQuery{Limit: 10, After: place}, 1, 0)
		s.reaches("no row behind a place", outbox.PollQuery{Limit: 10, After: place, Upto: place}, 0, 0)
		s.reaches("rows that are due earlier", outbox.PollQuery{Limit: 10, Now: suiteTime.Add(-time.Microsecond)}, 0, 0)
		for _, r := range rows {
			s.unchanged("row after Reach", r)
		}
	}},
	{"LeavesOutWhatAPollLeavesOut", func(s *storeSuite) {
		envs := s.events(6)
		for i := range envs {
			envs[i].EventType = outbox.EventType(fmt.Sprint("T", i%2))
		}
		s.insert(envs...)
		s.edit(envs[1].EventID, func(row *RawRow) { row.Status = outbox.StatusRetry })
		s.edit(envs[4].EventID, func(row *RawRow) { row.AvailableAt = suiteTime.Add(2 * later) })
		s.reaches("a kind left out", outbox.PollQuery{Limit: 10, Except: []outbox.EventKind{{AggregateType: outbox.Global, EventType: "T0"}}}, 3, 0)
		s.reaches("rows created early", outbox.PollQuery{Limit: 10, CreatedBefore: envs[2].OccurredAt}, 3, 0)
		s.reaches("some rows", outbox.PollQuery{Limit: 3}, 3, 0)
	}},
	{"CountsRowsThatCannotBeRead", func(s *storeSuite) {
		sp := s.spoilt()
		for limit := 1; limit <= len(sp.good)+len(sp.bad)+1; limit += 3 {
			s.reachesAsPolled(fmt.Sprintf("%d rows that cannot be read, and others", limit), outbox.PollQuery{Limit: limit})
		}
		last := sp.good[len(sp.good)-1]
		s.reachesAsPolled("up to a place", outbox.PollQuery{Limit: 100, Upto: placeOf(last)})
		s.reachesAsPolled("behind a place", outbox.PollQuery{Limit: 100, After: placeOf(last)})
	}},
}

// ranges reads the ranges.
func (s *storeSuite) ranges() outbox.Ranges {
	s.t.Helper()
	ranges, err := s.Store.Ranges(s.ctx, s.DB)
	s.ok("Ranges", err)
	return ranges
}

// sets sets the ranges and reports whether they were set.
func (s *storeSuite) sets(was string, next outbox.Ranges) bool {
	s.t.Helper()
	set, err := s.Store.SetRanges(s.ctx, s.DB, was, s.now().Add(time.Minute), next)
	s.ok("SetRanges", err)
	return set
}

// sameRanges compares ranges, apart from Now.
func (s *storeSuite) sameRanges(what string, got, want outbox.Ranges) {
	s.t.Helper()
	same := got.Version == want.Version && slices.EqualFunc(got.Ranges, want.Ranges, func(x, y outbox.Range) bool {
		return x.Name == y.Name && samePlace(x.After, y.After) && samePlace(x.Upto, y.Upto) && x.Until.Equal(y.Until) && x.Until.Location() == time.UTC
	})
	if !same {
		s.t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func samePlace(x, y outbox.Cursor) bool {
	return x.AvailableAt.Equal(y.AvailableAt) && x.CreatedAt.Equal(y.CreatedAt) && x.EventID == y.EventID
}

// someRanges are n ranges, of which the first begins before all rows, and the second ends behind
// them.
func (s *storeSuite) someRanges(version string, n int) outbox.Ranges {
	ranges := outbox.Ranges{Version: version}
	var after outbox.Cursor
	for i := range n {
		upto := placeOf(s.event(time.Duration(i) * time.Microsecond))
		upto.EventID += " \"é🎉\\<&>"
		if i == 1 {
			upto = outbox.Cursor{}
		}
		ranges.Ranges = append(ranges.Ranges, outbox.Range{
			Name: fmt.Sprintf("%s/%d", version, i), After: after, Upto: upto, Until: suiteTime.Add(time.Duration(i) * time.Microsecond).UTC(),
		})
		after = upto
	}
	return ranges
}

// placeOf is the place of an event's row.
func placeOf(env outbox.Envelope) outbox.Cursor {
	return outbox.Cursor{AvailableAt: env.AvailableAt, CreatedAt: env.OccurredAt, EventID: env.EventID}
}

// reaches calls Reach and compares the answer with the numbers, and with a poll.
func (s *storeSuite) reaches(what string, q outbox.PollQuery, fresh, expired int) {
	s.t.Helper()
	got := s.reachesAsPolled(what, q)
	if got.Fresh != fresh || got.Expired != expired {
		s.t.Fatalf("%s: Reach counts %+v, want %d fresh and %d expired", what, got, fresh, expired)
	}
}

// reachesAsPolled calls Reach and compares the answer with a poll.
func (s *storeSuite) reachesAsPolled(what string, q outbox.PollQuery) outbox.Reach {
	s.t.Helper()
	if q.Now.IsZero() {
		q.Now = suiteTime.Add(later)
	}
	if q.LeaseDuration == 0 {
		q.LeaseDuration = time.Minute
	}
	got, err := s.Store.Reach(s.ctx, s.DB, q)
	s.ok("Reach", err)
	b := s.poll(q)
	want := outbox.Reach{End: b.Next, Fresh: len(b.Envelopes) + len(b.Undecodable), Expired: len(b.Expired)}
	if !samePlace(got.End, want.End) || got.Fresh != want.Fresh || got.Expired != want.Expired {
		s.t.Fatalf("%s: Reach is %+v, and a poll reads %+v", what, got, want)
	}
	return got
}

// dueUpto polls and claims between places, of rows with many ties.
func dueUpto(s *storeSuite) {
	envs := cursorEvents(s)
	s.insert(envs...)
	for _, env := range envs[10:30] {
		s.edit(env.EventID, func(row *RawRow) { row.Status = outbox.StatusRetry })
	}
	q := outbox.PollQuery{Now: suiteTime.Add(later), Limit: 1}
	var places []outbox.Cursor
	for range envs {
		b := s.poll(q)
		s.count("rows of a page", b.Len(), 1)
		q.After = b.Next
		places = append(places, b.Next)
	}
	idsTo := func(from, to int) (ids []string) {
		for _, place := range places[from:to] {
			ids = append(ids, place.EventID)
		}
		slices.Sort(ids)
		return ids
	}
	for _, bounds := range [][2]int{{0, 1}, {0, 8}, {3, 30}, {20, 21}, {5, 5}, {40, len(places)}, {0, len(places)}} {
		q := outbox.PollQuery{Now: suiteTime.Add(later), Limit: 1000, Upto: places[max(bounds[1]-1, 0)]}
		if bounds[0] > 0 {
			q.After = places[bounds[0]-1]
		}
		what := fmt.Sprintf("places %d to %d", bounds[0], bounds[1])
		want := idsTo(bounds[0], bounds[1])
		got := idsOf(s.poll(q).Envelopes)
		slices.Sort(got)
		s.sameIDs("polled: "+what, got, want)
		s.reaches(what, q, len(want), 0)
		claim := claimOf(q)
		claim.Lease = what
		got = idsOf(s.claim(claim).Envelopes)
		slices.Sort(got)
		s.sameIDs("claimed: "+what, got, want)
		claim.Lease, claim.LeaseDuration = what+" again", 24*time.Hour
		s.count("claimed again", s.claim(claim).Len(), 0)
		for _, id := range want {
			s.edit(id, func(row *RawRow) { row.LockedBy, row.LockedAt = "", time.Time{} })
		}
	}
	q = outbox.PollQuery{Now: places[5].AvailableAt.Add(-time.Microsecond), Limit: 1000, Upto: places[len(places)-1]}
	s.count("polled: places that are not due", s.poll(q).Len(), 0)
	s.count("claimed: places that are not due", s.claim(claimOf(q)).Len(), 0)
}

// unreadableMoves: a value that is no time stays as it is.
func unreadableMoves(s *storeSuite) {
	sp := s.spoilt()
	claim := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 10_000, Lease: "node-1/1", LeaseDuration: time.Minute, Move: true}
	for range 2 {
		b := s.claim(claim)
		sp.reads(s, "claim", b.Envelopes, b.Undecodable)
		s.mark(outbox.OutcomeReleased, claim.Lease, append(marksOf(b.Envelopes), deadOf(b.Undecodable)...)...)
		claim.Lease += "again"
	}
	for _, env := range sp.good {
		if at := s.row(env.EventID).AvailableAt; !at.Equal(env.AvailableAt.Add(2 * time.Microsecond)) {
			s.t.Fatalf("a row that moved twice from %v is due at %v", env.AvailableAt, at)
		}
	}
}

var dueAtTests = []storeTest{
	{"MarkingAgainLeavesTheRowAndSaysHowItStands", func(s *storeSuite) {
		for _, outcome := range allOutcomes {
			row := s.insertedAs(outbox.StatusNew, "")
			mark := markDue(row.AvailableAt, row.EventID)
			s.leaves(outcome, []outbox.Mark{mark}, nil)
			once, found := s.Row(s.t, row.EventID)
			left := map[string]outbox.RowState{row.EventID: {}}
			switch {
			case outcome == outbox.OutcomeReleased: // the row is still as the mark demands
				left = nil
			case found:
				left[row.EventID] = stateOf(once)
			}
			s.leaves(outcome, []outbox.Mark{mark}, left)
			if again, still := s.Row(s.t, row.EventID); still != found || !sameRow(again, once) {
				s.t.Fatalf("%s twice:\n got %+v\nwant %+v", outcome, again, once)
			}
		}
	}},
	{"ALateMarkOfAClaimedRow", func(s *storeSuite) {
		for _, outcome := range allOutcomes {
			env := s.inserted()
			mark := markDue(env.AvailableAt, env.EventID)
			claimed := s.claim(outbox.ClaimQuery{
				Now: suiteTime.Add(later), Limit: 1, Lease: "node-2/1", LeaseDuration: time.Minute, EventIDs: []string{env.EventID}, Move: true,
			})
			s.count("claimed", len(claimed.Envelopes), 1)
			s.leaves(outcome, []outbox.Mark{mark}, map[string]outbox.RowState{env.EventID: stateOf(s.row(env.EventID))})
			s.mark(outbox.OutcomeReleased, "node-2/1", mark)
			s.leaves(outcome, []outbox.Mark{mark}, map[string]outbox.RowState{env.EventID: stateOf(s.row(env.EventID))})
			mark.DueAt = claimed.Envelopes[0].AvailableAt
			s.leaves(outcome, []outbox.Mark{mark}, nil)
			s.mark(outbox.OutcomeDelete, "", s.marksLeft()...)
		}
	}},
	{"ALeaseGoesBeforeDueAt", func(s *storeSuite) {
		for _, outcome := range allOutcomes {
			row := s.insertedAs(outbox.StatusNew, "node-1/1")
			mark := markUnder("node-1/1", row.EventID)
			mark.DueAt = row.AvailableAt.Add(time.Hour)
			s.leaves(outcome, []outbox.Mark{mark}, nil)
		}
	}},
	{"LargeBatchOfEveryFence", func(s *storeSuite) {
		const rows = 1050
		for _, tt := range []struct {
			outcome  outbox.Outcome
			sameTime bool
		}{{outbox.OutcomeDone, false}, {outbox.OutcomeDone, true}, {outbox.OutcomeRetry, false}, {outbox.OutcomeDelete, false}} {
			envs := s.events(rows)
			marks := make([]outbox.Mark, rows)
			want := map[string]outbox.RowState{}
			byLease := map[string][]outbox.Envelope{}
			for i := range envs {
				env := &envs[i]
				if tt.sameTime {
					env.AvailableAt = suiteTime
				}
				marks[i] = markFor(env.EventID)
				marks[i].AvailableAt = suiteTime.Add(24*time.Hour + time.Duration(i)*time.Microsecond)
				lease := ""
				switch refused := i%100 > 97; {
				case i%10 == 3:
					lease = "node-1/1"
					marks[i].Lease = lease
				case i%10 == 5: // no fence
				case refused && i%2 == 0:
					lease = "node-2/1"
					want[env.EventID] = outbox.RowState{Exists: true, Lease: lease, DueAt: env.AvailableAt}
					marks[i].DueAt = env.AvailableAt
				case refused:
					want[env.EventID] = outbox.RowState{Exists: true, DueAt: env.AvailableAt}
					marks[i].DueAt = env.AvailableAt.Add(-time.Microsecond)
				default:
					marks[i].DueAt = env.AvailableAt
				}
				byLease[lease] = append(byLease[lease], *env)
			}
			tx, commit, _ := s.Begin(s.t)
			for lease, leased := range byLease {
				s.ok("Insert", s.Store.Insert(s.ctx, tx, leased, lease, suiteTime.Add(later)))
			}
			s.ok("commit", commit())
			slices.Reverse(marks)
			s.leaves(tt.outcome, marks, want)
		}
	}},
	{"AwkwardIDs", func(s *storeSuite) {
		for _, outcome := range allOutcomes {
			var marks []outbox.Mark
			want := map[string]outbox.RowState{}
			for i, text := range []string{`"`, `\`, `\"`, `\u0041`, `'`, "{}", "a,b", "<&>", "$.key", "é🎉", "\t\n", "?", "$1", "null", "1"} {
				env := s.event(time.Duration(i) * time.Microsecond)
				env.EventID = fmt.Sprintf("%s %d %s", text, i, outcome)
				s.insert(env)
				marks = append(marks, markDue(env.AvailableAt, env.EventID))
				if i%5 == 4 {
					marks[i].DueAt = env.AvailableAt.Add(time.Second)
					want[env.EventID] = outbox.RowState{Exists: true, DueAt: env.AvailableAt}
				}
			}
			s.leaves(outcome, marks, want)
		}
	}},
	// A process marks the rows of its range while another process, for which the range has expired,
	// claims the rows: each row has a single end.
	{"MarksAndClaimsAtOnceShareTheRows", func(s *storeSuite) {
		const rows, batch = 300, 20
		envs := s.events(rows)
		s.insert(envs...)
		var wg sync.WaitGroup
		var marking atomic.Bool
		var accepted, claimed []string
		marking.Store(true)
		wg.Go(func() {
			defer marking.Store(false)
			for chunk := range slices.Chunk(envs, batch) {
				marks := make([]outbox.Mark, len(chunk))
				for i, env := range chunk {
					marks[i] = markDue(env.AvailableAt, env.EventID)
				}
				left, err := s.Store.Mark(s.ctx, s.DB, outbox.OutcomeDone, marks)
				if err != nil {
					s.t.Errorf("Mark: %v", err)
					return
				}
				for _, m := range marks {
					if _, refused := left[m.EventID]; !refused {
						accepted = append(accepted, m.EventID)
					}
				}
			}
		})
		wg.Go(func() {
			q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 7, LeaseDuration: time.Hour, Move: true, FreshOnly: true}
			for n := 0; ; n++ {
				last := !marking.Load()
				q.Lease = fmt.Sprintf("node-2/%d", n)
				b, err := s.Store.Claim(s.ctx, s.DB, q)
				if err != nil {
					s.t.Errorf("Claim: %v", err)
					return
				}
				claimed = append(claimed, idsOf(b.Envelopes)...)
				if last && b.Len() == 0 {
					return
				}
			}
		})
		wg.Wait()
		for _, id := range accepted {
			if s.row(id).Status != outbox.StatusDone {
				s.t.Fatalf("event %s was marked, and is not DONE", id)
			}
		}
		all := slices.Concat(accepted, claimed)
		slices.Sort(all)
		s.sameIDs("marked or claimed", all, idsOf(envs))
	}},
}

// marksLeft are marks for all rows that are due.
func (s *storeSuite) marksLeft() []outbox.Mark {
	s.t.Helper()
	b := s.pollAt(48 * time.Hour)
	return marksOf(b.Envelopes)
}

func callerName(i int) string { return "node-" + string(rune('a'+i)) }
