package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var claimTests = []storeTest{
	{"DueRowsAndExpiredLeases", claims(outbox.ClaimQuery{}, claimable)},
	{"FreshRowsOnly", claims(outbox.ClaimQuery{FreshOnly: true}, map[string]int{"new": 0, "retry": 3})},
	{"ExpiredLeasesOnly", claims(outbox.ClaimQuery{ExpiredOnly: true}, map[string]int{"expired": 1, "expired retry": 4, "from the future": 1})},
	{"ExpiredLeasesOnlyOfTheEventsThatAreNamed", claims(
		outbox.ClaimQuery{ExpiredOnly: true, EventIDs: []string{"held", "expired retry", "new"}}, map[string]int{"expired retry": 4})},
	{"NeitherFreshRowsNorExpiredLeases", claims(outbox.ClaimQuery{FreshOnly: true, ExpiredOnly: true}, nil)},
	{"RowsMove", claims(outbox.ClaimQuery{Move: true}, claimable)},
	{"NamedRowsMove", claims(
		outbox.ClaimQuery{Move: true, FreshOnly: true, EventIDs: []string{"held", "expired", "done", "retry", "new"}}, map[string]int{"new": 0, "retry": 3})},
	{"RowsThatCannotBeReadDoNotMove", unreadableMoves},
	{"ALateClaimTakesNoRow", func(s *storeSuite) {
		rows := s.everyState()
		for _, by := range []time.Duration{-time.Hour, -time.Second, time.Minute} {
			b, err := s.Store.Claim(s.ctx, s.DB, outbox.ClaimQuery{
				Now: suiteTime.Add(later), Limit: 10, Lease: fmt.Sprint("late/", by), LeaseDuration: time.Minute, By: s.now().Add(by),
			})
			s.ok("Claim", err)
			if by > 0 {
				s.count("rows in time", b.Len(), len(claimable))
				return
			}
			s.count("rows of a late claim", b.Len(), 0)
			s.unchanged("row after a late claim", slices.Collect(maps.Values(rows))...)
		}
	}},
	{"OnlyClaimedRowsCountAnAttempt", func(s *storeSuite) {
		var rows []stored
		var ids []string
		for range 4 {
			rows = append(rows, s.leasedFor(2*time.Minute, outbox.StatusNew, "node-1/1"))
			ids = append(ids, rows[len(rows)-1].EventID)
		}
		s.sameIDs("the first two", idsOf(s.claimFor("node-2/1", 2).Envelopes), ids[:2])
		s.unchanged("row beyond the limit", rows[2:]...)
		b := s.claimFor("node-3/1", 10)
		s.sameIDs("the rest", idsOf(b.Envelopes), ids[2:])
		s.count("attempts of the rest", b.Envelopes[1].Attempts, 1)
	}},
	{"LeasesWhoseTimeCannotBeRead", unreadableLeases},
	{"LongerLeaseDuration", claims(outbox.ClaimQuery{LeaseDuration: 2 * time.Hour}, map[string]int{"new": 0, "retry": 3})},
	{"LeasesAreByTheDatabasesClock", claims(outbox.ClaimQuery{Now: suiteTime.AddDate(50, 0, 0)}, claimable)},
	{"OnlyRowsOfTheEventsThatAreNamed", claims(
		outbox.ClaimQuery{EventIDs: []string{"held", "expired retry", "done", "new", "no such event"}},
		map[string]int{"expired retry": 4, "new": 0})},
	{"ReleasedRowsAreClaimedAtOnce", func(s *storeSuite) {
		envs := s.events(3)
		s.insertFor("node-1/1", envs...)
		s.mark(outbox.OutcomeReleased, "node-1/1", marksOf(envs[:2])...)
		b := s.claimFor("node-2/1", 10)
		s.sameIDs("claimed by another node", idsOf(b.Envelopes), idsOf(envs[:2]))
		s.count("attempts: a release is no failure", b.Envelopes[0].Attempts, 0)
	}},
	{"RowsUnderALeaseAreFoundByItsName", func(s *storeSuite) {
		rows := s.everyState()
		lease := func(state, name string) outbox.Lease { return outbox.Lease{EventID: rows[state].EventID, Name: name} }
		for _, tt := range []struct {
			names []string
			want  []outbox.Lease
		}{
			{[]string{"node-1/1"}, []outbox.Lease{lease("expired", "node-1/1"), lease("held", "node-1/1")}},
			{[]string{"node-1/1", "node-3/1", "node-2/1"}, []outbox.Lease{
				lease("expired", "node-1/1"), lease("expired retry", "node-2/1"), lease("from the future", "node-3/1"),
				lease("held", "node-1/1"), lease("held from the future", "node-3/1"), lease("held retry", "node-2/1"),
			}},
			{[]string{"node-1/2", ""}, nil},
			{nil, nil},
		} {
			got, err := s.Store.Leased(s.ctx, s.DB, tt.names)
			s.ok("Leased", err)
			slices.SortFunc(got, byEventID)
			slices.SortFunc(tt.want, byEventID)
			if !slices.Equal(got, tt.want) {
				s.t.Errorf("rows under %q: %v, want %v", tt.names, got, tt.want)
			}
		}
		for _, state := range rowStates {
			s.unchanged("row that was read: "+state.name, rows[state.name])
		}
	}},
	{"RenewStartsItsLeasesAgainAndLeavesOthersAlone", func(s *storeSuite) {
		rows := s.everyState()
		lease := func(state, name string) outbox.Lease { return outbox.Lease{EventID: rows[state].EventID, Name: name} }
		before := s.now()
		s.ok("Renew", s.Store.Renew(s.ctx, s.DB, []outbox.Lease{
			lease("expired retry", "node-2/1"), // not taken over: still held
			lease("held", "node-1/1"),
			lease("expired", "node-1/2"), // another lease of the same node
			lease("held retry", "node-1/1"),
			lease("new", "node-1/1"),
			{EventID: "no such event", Name: "node-1/1"},
		}))
		s.ok("Renew of one", s.Store.Renew(s.ctx, s.DB, []outbox.Lease{lease("expired", "node-1/2")}))
		s.ok("Renew of nothing", s.Store.Renew(s.ctx, s.DB, nil))
		for _, state := range []string{"expired retry", "held"} {
			r := rows[state]
			s.leasedRow(r.EventID, r.row.LockedBy, before, r.row)
		}
		s.unchanged("row of another lease, or of none", rows["expired"], rows["held retry"], rows["new"])
		s.sameIDs("rows that another node claims", idsOf(s.claimFor("node-3/1", 10).Envelopes),
			[]string{rows["expired"].EventID, rows["from the future"].EventID, rows["new"].EventID, rows["retry"].EventID})
	}},
	// A mix of NEW and RETRY rows is claimed in batches, each batch behind the batch before.
	{"BehindAPlaceNoRowIsPassedOver", func(s *storeSuite) {
		envs := s.events(12)
		for i := range envs[8:] { // due at the same time
			envs[8+i].AvailableAt = envs[8].AvailableAt
		}
		s.insert(envs...)
		for _, env := range envs[3:7] { // several RETRY rows in a row, and mixed
			s.edit(env.EventID, func(row *RawRow) { row.Status = outbox.StatusRetry })
		}
		s.edit(envs[10].EventID, func(row *RawRow) { row.Status = outbox.StatusRetry })
		for _, limit := range []int{1, 2, 3, 5} {
			q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: limit, LeaseDuration: time.Minute, Move: limit%2 == 0}
			var claimed []string
			for n := 0; ; n++ {
				q.Lease = fmt.Sprintf("node-%d/%d", limit, n)
				b := s.claim(q)
				claimed = append(claimed, idsOf(b.Envelopes)...)
				if b.Len() < limit {
					break
				}
				q.After = b.Next
			}
			slices.Sort(claimed)
			s.sameIDs(fmt.Sprintf("claimed by %d at a time", limit), claimed, idsOf(envs))
			for _, env := range envs {
				s.edit(env.EventID, func(row *RawRow) { row.LockedBy, row.LockedAt, row.AvailableAt = "", time.Time{}, env.AvailableAt })
			}
		}
		place := outbox.Cursor{AvailableAt: envs[5].AvailableAt, CreatedAt: envs[5].OccurredAt, EventID: envs[5].EventID}
		b := s.claim(outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 12, Lease: "node-0/1", LeaseDuration: time.Minute, After: place})
		s.sameIDs("claimed behind the sixth", idsOf(b.Envelopes), idsOf(envs[6:]))
	}},
	{"ConcurrentClaimsAreDisjointAndComplete", func(s *storeSuite) {
		const nodes, rows = 4, 200
		envs := s.events(rows)
		s.insert(envs...)
		var (
			wg      sync.WaitGroup
			mu      sync.Mutex
			claimed []string
			failure error
		)
		left := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(claimed) < rows && failure == nil && s.ctx.Err() == nil
		}
		for node := range nodes {
			n := 0
			q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 7, LeaseDuration: time.Minute}
			wg.Go(func() {
				for left() {
					n++
					q.Lease = fmt.Sprintf("node-%d/%d", node, n)
					b, err := s.Store.Claim(s.ctx, s.DB, q)
					mu.Lock()
					claimed = append(claimed, idsOf(b.Envelopes)...)
					if err != nil {
						failure = err
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		s.ok("Claim", failure)
		slices.Sort(claimed)
		s.sameIDs("what all nodes claimed", claimed, idsOf(envs))
	}},
	{"LockedRowsAreSkippedWithoutWaiting", func(s *storeSuite) {
		if s.LockRow == nil {
			s.t.Skip("the harness has no LockRow: this database has no locks on rows")
		}
		envs := s.events(6)
		s.insert(envs...)
		unlock := s.LockRow(s.t, envs[1].EventID)
		b := s.claimFor("node-1/1", 3)
		s.sameIDs("claimed beside the locked row", idsOf(b.Envelopes), []string{envs[0].EventID, envs[2].EventID, envs[3].EventID})
		unlock()
		s.sameIDs("claimed afterwards", idsOf(s.claimFor("node-2/1", 10).Envelopes), []string{envs[1].EventID, envs[4].EventID, envs[5].EventID})
	}},
}

// leasedUnder are the events under a lease.
func (s *storeSuite) leasedUnder(lease string) (ids []string) {
	s.t.Helper()
	leases, err := s.Store.Leased(s.ctx, s.DB, []string{lease})
	s.ok("Leased", err)
	for _, l := range leases {
		ids = append(ids, l.EventID)
	}
	slices.Sort(ids)
	return ids
}

func byEventID(a, b outbox.Lease) int { return cmp.Compare(a.EventID, b.EventID) }

// rowStates are the states of rows that polls and claims distinguish, with a lock
// timeout of a minute.
var rowStates = []struct {
	name   string
	age    time.Duration // of the lease
	status outbox.Status
	lease  string
}{
	{"expired", 2 * time.Minute, outbox.StatusNew, "node-1/1"},
	{"expired retry", 2 * time.Minute, outbox.StatusRetry, "node-2/1"},
	{"from the future", -2 * time.Minute, outbox.StatusNew, "node-3/1"}, // as after a clock stepped back
	{"held", 0, outbox.StatusNew, "node-1/1"},
	{"held from the future", -30 * time.Second, outbox.StatusNew, "node-3/1"},
	{"held retry", 30 * time.Second, outbox.StatusRetry, "node-2/1"},
	{"new", 0, outbox.StatusNew, ""},
	{"retry", 0, outbox.StatusRetry, ""},
	{"done", 0, outbox.StatusDone, ""},
	{"done expired", 2 * time.Minute, outbox.StatusDone, "node-1/1"},
	{"dead", 0, outbox.StatusDead, ""},
}

// everyState adds a row in each state.
func (s *storeSuite) everyState() map[string]stored {
	s.t.Helper()
	rows := map[string]stored{}
	for _, state := range rowStates {
		rows[state.name] = s.leasedFor(state.age, state.status, state.lease)
	}
	return rows
}

// claimable are the states of the rows that a claim takes, with the attempts that the rows then
// have: an expired lease costs an attempt, even a lease of the same node.
var claimable = map[string]int{"expired": 1, "expired retry": 4, "from the future": 1, "new": 0, "retry": 3}

// claims makes a test of a claim on rows in every state. The query names events by their states;
// zero fields of the query are filled in.
func claims(q outbox.ClaimQuery, want map[string]int) func(s *storeSuite) {
	return func(s *storeSuite) {
		rows := s.everyState()
		q := q
		q.EventIDs = slices.Clone(q.EventIDs)
		for i, state := range q.EventIDs {
			q.EventIDs[i] = cmp.Or(rows[state].EventID, state)
		}
		if q.Now.IsZero() {
			q.Now = suiteTime.Add(later)
		}
		q.Limit, q.LeaseDuration, q.Lease = 10, cmp.Or(q.LeaseDuration, time.Minute), "node-1/2"
		before := s.now()
		s.claimsRows(q, rows, want, before)
		var rest []string
		for _, state := range rowStates {
			_, taken := want[state.name]
			if _, can := claimable[state.name]; can && !taken {
				rest = append(rest, rows[state.name].EventID)
			}
		}
		s.sameIDs("rows for the next claim", idsOf(s.claimFor("node-1/3", 10).Envelopes), rest)
	}
}

// claimsRows fails the test unless a claim takes the rows in the given states, with these attempts,
// and leaves the other rows alone.
func (s *storeSuite) claimsRows(q outbox.ClaimQuery, rows map[string]stored, want map[string]int, before time.Time) {
	s.t.Helper()
	claimed := s.claim(q).Envelopes
	s.count("claimed rows", len(claimed), len(want))
	for _, state := range rowStates {
		r := rows[state.name]
		attempts, taken := want[state.name]
		if !taken {
			s.unchanged("row that is not claimed: "+state.name, r)
			continue
		}
		r.Attempts, r.row.Attempts = attempts, attempts
		if q.Move {
			moved := r.row.AvailableAt.Add(time.Microsecond)
			r.AvailableAt, r.row.AvailableAt = moved, moved
		}
		for _, d := range diffEnvelopes(claimed[0], r.Envelope) {
			s.t.Errorf("claimed event, %s: %s", state.name, d)
		}
		s.leasedRow(r.EventID, q.Lease, before, r.row)
		claimed = claimed[1:]
	}
}
