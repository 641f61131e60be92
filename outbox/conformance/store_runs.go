package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var runTests = []storeTest{
	{"WhatIsDeliveredNextOfAKey", runsOfEachState(outbox.RunQuery{}, func(c keyCase) []int { return c.run })},
	{"SkippedDeadRowsDoNotHoldBackTheirKeys", runsOfEachState(outbox.RunQuery{SkipDead: true}, keyCase.skipping)},
	{"TakeoversEndAtTheFirstRowThatIsNotLost", runsOfEachState(outbox.RunQuery{Takeovers: true}, func(c keyCase) []int { return c.takeover })},
	{"TakeoversBehindSkippedDeadRows", runsOfEachState(outbox.RunQuery{Takeovers: true, SkipDead: true}, keyCase.skippingTakeover)},
	{"LongerLeaseDuration", runsLeaseDuration},
	{"EventsWithoutAnAggregateIDAreUnordered", runsUnordered},
	{"EventsWithoutAnAggregateTypeAreGlobal", runsWithoutType},
	{"CreatedBefore", runsCreatedBefore},
	{"EachKeyOnceByPages", runsPages},
	{"PagesOfRunsThatAreCut", runsCut},
	{"ALeaseBehindTheLimitIsSeen", runsLeaseBehindLimit},
	{"PagesOfTakeovers", runsTakeoverPages},
	{"KeysThatAreHeldBackArePassed", runsHeldBack},
	{"AFirstRowThatFailsWhileItsKeyIsReadHoldsItBack", runsReadBetween},
	{"EventsThatBeginTheirKeys", runsBegin},
	{"TheIndexIsThere", func(s *storeSuite) { s.ok("CheckRuns", s.Store.(outbox.RunReader).CheckRuns(s.ctx, s.DB)) }},
}

// keyRow is a row of a key. The zero keyRow is NEW, due and free.
type keyRow struct {
	status outbox.Status
	lease  time.Duration // how long ago the lease began; zero: no lease
	due    time.Duration // after suiteTime
	kind   outbox.EventType
}

const live, expired = time.Second, time.Hour // leases that last a minute

// runLength is the length of the runs that the tests ask for.
const runLength = 3

// keyCase is a key: the rows in the order of writing, and the rows of the run of free rows and of
// takeovers, and of both with DEAD rows skipped if that differs.
type keyCase struct {
	name           string
	rows           []keyRow
	run            []int
	takeover       []int
	skip, skipOver []int
	behind         []int // the rows of Runs.Behind that are not in the run
}

func (c keyCase) skipping() []int {
	if c.skip != nil {
		return c.skip
	}
	return c.run
}

func (c keyCase) skippingTakeover() []int {
	if c.skipOver != nil {
		return c.skipOver
	}
	return c.takeover
}

var (
	retry  = keyRow{status: outbox.StatusRetry}
	dead   = keyRow{status: outbox.StatusDead}
	done   = keyRow{status: outbox.StatusDone}
	paused = keyRow{kind: "Paused"}
	held   = keyRow{lease: live}
	lost   = keyRow{lease: expired}
)

var keyCases = []keyCase{
	{name: "one", rows: []keyRow{{}}, run: []int{0}},
	{name: "no more than a run", rows: []keyRow{{}, {}, {}, {}, {}}, run: []int{0, 1, 2}},
	{name: "by due time", rows: []keyRow{{due: time.Minute}, {}, {due: time.Second}}, run: []int{1, 2, 0}},
	{name: "delayed ones hold nothing back", rows: []keyRow{{due: 2 * later}, {}}, run: []int{1}},
	{name: "all delayed", rows: []keyRow{{due: 2 * later}}},
	{name: "delivered ones do not count", rows: []keyRow{done, {}, done, {}}, run: []int{1, 3}},
	{name: "delivered", rows: []keyRow{done}},
	{name: "a retry first", rows: []keyRow{{}, {}, {status: outbox.StatusRetry, due: time.Minute}}, run: []int{2, 0, 1}},
	{name: "a retry that is not due", rows: []keyRow{{}, {status: outbox.StatusRetry, due: 2 * later}}},
	{name: "a second retry that is not due", rows: []keyRow{{}, retry, {status: outbox.StatusRetry, due: 2 * later}}, run: []int{1}},
	{name: "dead", rows: []keyRow{dead}},
	{name: "behind a dead one", rows: []keyRow{dead, {}, dead, {}}, skip: []int{1, 3}},
	{name: "a dead one behind", rows: []keyRow{{}, retry, dead}, skip: []int{1, 0}},
	{name: "in delivery", rows: []keyRow{held, held, {}}},
	{name: "the second in delivery", rows: []keyRow{{}, held}},
	{name: "a lease behind the run", rows: []keyRow{{}, {}, {}, held}, run: []int{0, 1, 2}},
	{name: "many retries before one in delivery", rows: []keyRow{held, retry, retry, retry, retry}},
	{name: "many retries before a lost one", rows: []keyRow{lost, retry, retry, retry, retry}, run: []int{1, 2, 3}},
	{name: "a lost lease", rows: []keyRow{lost, {}}, takeover: []int{0}},
	{name: "a lease from the future", rows: []keyRow{{lease: -expired}, {}}, takeover: []int{0}},
	{name: "a lost retry", rows: []keyRow{{}, {status: outbox.StatusRetry, lease: expired}}, takeover: []int{1}},
	{name: "a lost run", rows: []keyRow{lost, lost, lost, lost}, takeover: []int{0, 1, 2}},
	{name: "a gap in a lost run", rows: []keyRow{lost, {}, lost}, takeover: []int{0}, behind: []int{2}},
	{name: "a gap farther in a lost run", rows: []keyRow{lost, lost, {}, lost}, takeover: []int{0, 1}},
	{name: "a delayed one in a lost run", rows: []keyRow{lost, {due: 2 * later, lease: expired}, lost}, takeover: []int{0, 2}, behind: []int{1}},
	{name: "paused in a lost run", rows: []keyRow{lost, {kind: "Paused", lease: expired}, lost}, takeover: []int{0}, behind: []int{1, 2}},
	{name: "a lost lease behind", rows: []keyRow{{}, lost, {}}, run: []int{0}},
	{name: "a lost lease before one in delivery", rows: []keyRow{lost, held}},
	{name: "a lost lease behind a dead one", rows: []keyRow{dead, {}, lost, {}}, skip: []int{1}},
	{name: "a lost run behind a dead one", rows: []keyRow{dead, lost, lost}, skipOver: []int{1, 2}},
	{name: "paused", rows: []keyRow{paused, {}}},
	{name: "paused behind", rows: []keyRow{{}, paused, {}}, run: []int{0}},
	{name: "paused and lost", rows: []keyRow{{kind: "Paused", lease: expired}, {}}},
}

// keyed adds the rows of a key and returns their ids.
func (s *storeSuite) keyed(key string, rows ...keyRow) []string {
	s.t.Helper()
	envs := s.events(len(rows))
	for i, row := range rows {
		envs[i].AggregateType, envs[i].AggregateID = "Order", key
		envs[i].EventType = cmp.Or(row.kind, envs[i].EventType)
		if row.due != 0 {
			envs[i].AvailableAt = suiteTime.Add(row.due)
		}
	}
	s.insert(envs...)
	for i, row := range rows {
		if row.status == outbox.StatusNew && row.lease == 0 {
			continue
		}
		s.edit(envs[i].EventID, func(r *RawRow) {
			if r.Status = row.status; r.Status.Terminal() {
				r.DoneAt = suiteTime
			}
			if row.lease != 0 {
				r.LockedBy, r.LockedAt = "node-1/"+envs[i].EventID, s.now().Add(-row.lease)
			}
		})
	}
	return idsOf(envs)
}

// runs reads all pages and fails the test if a page is too large.
func (s *storeSuite) runs(q outbox.RunQuery) (all outbox.Runs) {
	s.t.Helper()
	q.Now, q.LeaseDuration = suiteTime.Add(later), cmp.Or(q.LeaseDuration, time.Minute)
	q.Length, q.Limit = cmp.Or(q.Length, runLength), cmp.Or(q.Limit, 1000)
	for {
		page, err := s.Store.(outbox.RunReader).ReadRuns(s.ctx, s.DB, q)
		s.ok("ReadRuns", err)
		n, what := len(slices.Concat(page.EventIDs...)), "rows"
		if q.Takeovers {
			n, what = len(page.EventIDs), "takeovers"
		}
		if n > q.Limit {
			s.t.Fatalf("a page of %d %s, want at most %d", n, what, q.Limit)
		}
		all.EventIDs, all.Behind = append(all.EventIDs, page.EventIDs...), append(all.Behind, page.Behind...)
		if all.End = page.End; all.End {
			return all
		}
		if page.Next == q.After {
			s.t.Fatalf("the page behind %+v ends where it begins, and is not the last", q.After)
		}
		q.After = page.Next
	}
}

// sameRuns compares runs, whatever the order of their keys.
func (s *storeSuite) sameRuns(what string, got, want [][]string) {
	s.t.Helper()
	text := func(runs [][]string) (lines []string) {
		for _, run := range runs {
			lines = append(lines, strings.Join(run, " "))
		}
		slices.Sort(lines)
		return lines
	}
	s.sameIDs(what, text(got), text(want))
}

// runsOfEachState makes a test of a query on all cases.
func runsOfEachState(q outbox.RunQuery, want func(keyCase) []int) func(s *storeSuite) {
	return func(s *storeSuite) {
		q := q
		q.Except = []outbox.EventKind{{AggregateType: "Order", EventType: "Paused"}, {AggregateType: "Cart", EventType: "Happened"}}
		var free, claimable []string
		wanted, behind, names := map[string][]string{}, map[string][]string{}, map[string]string{}
		for _, c := range keyCases {
			ids := s.keyed(c.name, c.rows...)
			var run []string
			for _, i := range want(c) {
				run = append(run, ids[i])
			}
			for _, id := range ids {
				names[id], wanted[id] = c.name, run
			}
			for _, i := range c.behind {
				behind[c.name] = append(behind[c.name], ids[i])
			}
			free = append(free, ids...)
		}
		before := s.allRows(free)
		runs := s.runs(q)
		got := map[string][]string{}
		for i, run := range runs.EventIDs {
			got[names[run[0]]] = run
			claimable = append(claimable, run...)
			if q.Takeovers {
				var leased []string
				for _, lease := range runs.Behind[i] {
					s.sameIDs(names[run[0]]+": the lease behind", []string{lease.Name}, []string{"node-1/" + lease.EventID})
					leased = append(leased, lease.EventID)
				}
				s.sameIDs(names[run[0]]+": rows with leases behind", leased, slices.Concat(run[1:], behind[names[run[0]]]))
			}
		}
		for id, run := range wanted {
			s.sameIDs(names[id], got[names[id]], run)
		}
		for i, row := range s.allRows(free) {
			if !sameRow(row, before[i]) {
				s.t.Fatalf("reading changed the row of %s", free[i])
			}
		}
		b := s.claim(outbox.ClaimQuery{
			Now: suiteTime.Add(later), Limit: 1000, Lease: "node-2/1", LeaseDuration: time.Minute,
			EventIDs: claimable, FreshOnly: !q.Takeovers, Except: q.Except,
		})
		s.count("rows of runs that are claimed by their ids", b.Len(), len(claimable))
		s.count("runs of keys that are claimed", len(slices.DeleteFunc(s.runs(q).EventIDs, func(run []string) bool {
			return !slices.Contains(claimable, run[0])
		})), 0)
	}
}

func (s *storeSuite) allRows(ids []string) []RawRow {
	s.t.Helper()
	rows := make([]RawRow, len(ids))
	for i, id := range ids {
		rows[i] = s.row(id)
	}
	return rows
}

func runsLeaseDuration(s *storeSuite) {
	s.keyed("lost", lost, keyRow{})
	s.keyed("lost behind", keyRow{}, lost)
	for _, takeovers := range []bool{false, true} {
		runs := s.runs(outbox.RunQuery{LeaseDuration: 2 * expired, Takeovers: takeovers})
		s.count("runs while the leases last", len(runs.EventIDs), 0)
	}
}

// runsUnordered has unordered events in each state, in two types, beside a key.
func runsUnordered(s *storeSuite) {
	key := s.keyed("key", keyRow{}, keyRow{})
	want := [][]string{key}
	states := []keyRow{{}, {}, retry, {}, dead, held, lost, {due: 2 * later}, {status: outbox.StatusRetry, due: 2 * later}, paused, {}}
	var takeovers [][]string
	for _, aggregate := range []outbox.AggregateType{"Order", outbox.Global} {
		envs := s.events(len(states))
		for i := range envs {
			envs[i].AggregateType, envs[i].EventType = aggregate, cmp.Or(states[i].kind, envs[i].EventType)
			if states[i].due != 0 {
				envs[i].AvailableAt = suiteTime.Add(states[i].due)
			}
		}
		s.insert(envs...)
		for i, state := range states {
			id := envs[i].EventID
			s.edit(id, func(r *RawRow) {
				r.Status = state.status
				if state.lease != 0 {
					r.LockedBy, r.LockedAt = "node-1/1", s.now().Add(-state.lease)
				}
			})
			switch state {
			case lost:
				takeovers = append(takeovers, []string{id})
			case keyRow{}, retry:
				want = append(want, []string{id})
			}
		}
	}
	except := []outbox.EventKind{{AggregateType: "Order", EventType: "Paused"}, {AggregateType: outbox.Global, EventType: "Paused"}}
	for _, limit := range []int{1000, 3, 2} {
		q := outbox.RunQuery{Except: except, Limit: limit, SkipDead: limit == 3}
		s.sameRuns(fmt.Sprint("runs by ", limit), s.runs(q).EventIDs, want)
		q.Takeovers = true
		s.sameRuns(fmt.Sprint("takeovers by ", limit), s.runs(q).EventIDs, takeovers)
	}
}

// runsWithoutType: rows whose aggregate type is NULL have their place in the keys of Global.
func runsWithoutType(s *storeSuite) {
	if s.NullType == nil {
		s.t.Skip("the harness has no NullType: this store cannot hold such a row")
	}
	envs := s.events(6)
	for i := range envs[:4] {
		envs[i].AggregateID = "one"
	}
	s.insert(envs...)
	for _, i := range []int{0, 2, 3, 4} {
		s.NullType(s.t, envs[i].EventID)
	}
	s.edit(envs[3].EventID, func(r *RawRow) { r.Status = outbox.StatusDone })
	s.runs(outbox.RunQuery{Takeovers: true})
	ids := idsOf(envs)
	want := [][]string{ids[:3], {ids[4]}, {ids[5]}}
	s.sameRuns("runs", s.runs(outbox.RunQuery{}).EventIDs, want)
	b := s.claim(outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 10, Lease: "node-1/1", LeaseDuration: time.Minute, EventIDs: slices.Concat(want...)})
	s.sameIDs("claimed", idsOf(b.Envelopes), slices.Concat(want...))
	s.count("runs of keys that are claimed", len(s.runs(outbox.RunQuery{}).EventIDs), 0)
}

func runsCreatedBefore(s *storeSuite) {
	early, late := s.keyed("early", keyRow{}, keyRow{}, keyRow{}), s.event(time.Second)
	late.AggregateType, late.AggregateID = "Order", "late"
	unordered := s.event(time.Second)
	s.insert(late, unordered)
	s.sameRuns("runs", s.runs(outbox.RunQuery{CreatedBefore: suiteTime.Add(time.Millisecond)}).EventIDs, [][]string{early[:2]})
	s.sameRuns("runs a second later", s.runs(outbox.RunQuery{CreatedBefore: suiteTime.Add(time.Second)}).EventIDs,
		[][]string{early, {late.EventID}, {unordered.EventID}})
}
