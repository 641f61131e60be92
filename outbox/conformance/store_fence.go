package conformance

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var fenceTests = []storeTest{
	// An answer may be lost, so that the outcome is stored again. The second mark leaves the row as
	// the first mark left it. A mark with a lease reports this state, and each mark reports a row
	// that is gone.
	{"MarkingAgainLeavesTheRowAndSaysHowItStands", func(s *storeSuite) {
		for _, outcome := range allOutcomes {
			for _, lease := range []string{"", "node-1/1"} {
				env, beside := s.insertedAs(outbox.StatusNew, lease), s.insertedAs(outbox.StatusNew, lease)
				mark := markUnder(lease, env.EventID)
				s.leaves(outcome, []outbox.Mark{mark}, nil)
				once, found := s.Row(s.t, env.EventID)
				left := map[string]outbox.RowState{}
				if !found {
					left[env.EventID] = outbox.RowState{}
				} else if lease != "" {
					left[env.EventID] = stateOf(once)
				}
				s.leaves(outcome, []outbox.Mark{mark}, left)
				if row, still := s.Row(s.t, env.EventID); still != found || !sameRow(row, once) {
					s.t.Fatalf("%s twice under lease %q:\n got %+v\nwant %+v", outcome, lease, row, once)
				}
				// Of two rows that show the outcome, a single row is reported: only a single row
				// was changed.
				reported, err := s.Store.Mark(s.ctx, s.DB, outcome, []outbox.Mark{mark, markUnder(lease, beside.EventID)})
				s.ok("Mark", err)
				s.count(outcome.String()+": rows left alone", len(reported), len(left))
			}
		}
	}},
	// As on the hot path, each row has its own lease.
	{"LargeBatchOfManyLeases", func(s *storeSuite) {
		const rows = 1050
		outcomes := []outbox.Outcome{outbox.OutcomeReleased, outbox.OutcomeRetry, outbox.OutcomeDelete}
		envs := make([][]outbox.Envelope, len(outcomes))
		for o := range outcomes {
			envs[o] = s.events(rows)
		}
		lease := func(i int) string {
			if i%100 == 99 {
				return "node-2/1"
			}
			return fmt.Sprintf("node-1/%d", i)
		}
		tx, commit, _ := s.Begin(s.t)
		for i := range rows { // a lease has an event for each outcome
			s.ok("Insert", s.Store.Insert(s.ctx, tx, []outbox.Envelope{envs[0][i], envs[1][i], envs[2][i]}, lease(i), suiteTime.Add(later)))
		}
		s.ok("commit", commit())
		for o, outcome := range outcomes {
			marks := make([]outbox.Mark, rows)
			want := map[string]outbox.RowState{}
			for i, env := range envs[o] {
				marks[i] = markUnder(fmt.Sprintf("node-1/%d", i), env.EventID)
				if i%100 == 99 {
					want[env.EventID] = outbox.RowState{Exists: true, Lease: lease(i), DueAt: env.AvailableAt}
				}
			}
			slices.Reverse(marks)
			s.leaves(outcome, marks, want)
			if outcome != outbox.OutcomeDelete {
				s.mark(outbox.OutcomeDelete, "", markFor(envs[o][0].EventID))
			}
		}
	}},
	{"AwkwardIDsAndLeases", func(s *storeSuite) {
		for _, outcome := range allOutcomes {
			var marks []outbox.Mark
			want := map[string]outbox.RowState{}
			for i, text := range []string{`"`, `\`, `\"`, `\u0041`, `'`, "{}", "a,b", "<&>", "$.key", "é🎉", "\t\n", "?", "$1", "null", "1"} {
				env := s.event(0)
				env.EventID = fmt.Sprintf("%s %d %s", text, i, outcome)
				lease := "node " + text + "/1"
				s.insertFor(lease, env)
				marks = append(marks, markUnder(lease, env.EventID))
				if i%5 == 4 {
					marks[i].Lease = "node-1/1"
					want[env.EventID] = outbox.RowState{Exists: true, Lease: lease, DueAt: env.AvailableAt}
				}
			}
			s.leaves(outcome, marks, want)
		}
	}},
	// Several nodes work on the same rows in different orders. No statement may fail, for example
	// by a deadlock, and every row is marked once.
	{"MarkingRenewingClaimingAndPurgingAtOnceDoNotFail", func(s *storeSuite) {
		const rows, batch = 300, 30
		envs := s.events(rows)
		s.insertFor("node-1/1", envs...)
		s.insert(s.events(batch)...) // for the neighbour to claim
		var backwards []outbox.Lease
		for _, env := range slices.Backward(envs) {
			backwards = append(backwards, outbox.Lease{EventID: env.EventID, Name: "node-1/1"})
		}

		var neighbours, marking sync.WaitGroup
		var done atomic.Bool
		var leftAlone atomic.Int64
		until := func(doing string, fn func() error) {
			neighbours.Go(func() {
				for !done.Load() {
					if err := fn(); err != nil {
						s.t.Errorf("%s: %v", doing, err)
						return
					}
				}
			})
		}
		until("Renew", func() error { return s.Store.Renew(s.ctx, s.DB, backwards) })
		claims := 0
		until("Claim", func() error {
			claims++
			q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 5, Lease: fmt.Sprintf("node-2/%d", claims), LeaseDuration: time.Hour}
			return errorOf(s.Store.Claim(s.ctx, s.DB, q))
		})
		until("Purge", func() error {
			return errorOf(s.Store.Purge(s.ctx, s.DB, outbox.PurgeQuery{Before: suiteTime, Limit: 50}))
		})
		for i, outcome := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeRetry, outbox.OutcomeDead} {
			marking.Go(func() {
				for from := i * rows / 3; from < (i+1)*rows/3; from += batch {
					marks := marksOf(envs[from:min(from+batch, (i+1)*rows/3)])
					for i := range marks {
						marks[i].Lease = "node-1/1"
					}
					left, err := s.Store.Mark(s.ctx, s.DB, outcome, marks)
					if err != nil {
						s.t.Errorf("Mark: %v", err)
					}
					leftAlone.Add(int64(len(left)))
				}
			})
		}
		marking.Wait()
		done.Store(true)
		neighbours.Wait()
		s.count("rows left alone", int(leftAlone.Load()), 0)
	}},
}
