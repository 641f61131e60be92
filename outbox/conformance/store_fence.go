package conformance

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var fenceTests = []storeTest{
	{"LostLeaseRefusesEveryOutcome", fenceLost},
	{"AnOldLeaseOfTheSameNodeRefusesEveryOutcome", fenceClaimedAgain},
	{"EachRowIsMarkedUnderItsOwnLease", fencePairs},
	{"MarksWithAndWithoutALeaseInOneBatch", fenceMixed},
	{"MarkingAgainLeavesTheRowAndSaysHowItStands", fenceTwice},
	{"LargeBatchOfManyLeases", fenceManyLeases},
	{"AwkwardIDsAndLeases", fenceAwkward},
	{"MarkingRenewingClaimingAndPurgingAtOnceDoNotFail", leaseConcurrently},
}

// allOutcomes are the kinds of outcomes.
var allOutcomes = []outbox.Outcome{
	outbox.OutcomeDone, outbox.OutcomeDelete, outbox.OutcomeRetry, outbox.OutcomeDead, outbox.OutcomeDeferred, outbox.OutcomeReleased,
}

// markFor is a mark with every field that an outcome may use.
func markFor(id string) outbox.Mark {
	return outbox.Mark{EventID: id, AvailableAt: suiteTime.Add(24 * time.Hour), Error: "it failed", Attempts: 7}
}

// markUnder is markFor with a lease.
func markUnder(lease, id string) outbox.Mark {
	mark := markFor(id)
	mark.Lease = lease
	return mark
}

func fenceLost(s *storeSuite) {
	for _, outcome := range allOutcomes {
		taken, takenRow := s.insertedAs(outbox.StatusRetry, "node-2/1")
		free, freeRow := s.insertedAs(outbox.StatusNew, "")
		done, doneRow := s.insertedAs(outbox.StatusDone, "")
		rows := map[string]RawRow{taken.EventID: takenRow, free.EventID: freeRow, done.EventID: doneRow}
		var all []outbox.Mark
		want := map[string]outbox.RowState{}
		for id, row := range rows {
			s.leaves(outcome, "node-1/1", []outbox.Mark{markFor(id)}, map[string]outbox.RowState{id: stateOf(row)})
			all, want[id] = append(all, markFor(id)), stateOf(row)
		}
		s.leaves(outcome, "node-1/1", all, want)
		for id, row := range rows {
			s.sameRow(outcome.String()+" under a lease that the row is not under", id, row)
		}
		// Next to a row that is under the marked lease.
		other, otherRow := s.insertedAs(outbox.StatusNew, "node-3/1")
		s.leaves(outcome, "node-2/1", []outbox.Mark{markFor(other.EventID), markFor(taken.EventID)}, map[string]outbox.RowState{other.EventID: stateOf(otherRow)})
		s.sameRow(outcome.String()+" beside a row that is under the lease", other.EventID, otherRow)
		if row, ok := s.Row(s.t, taken.EventID); ok && row.LockedBy != "" {
			s.t.Fatalf("%s under the row's lease: %+v", outcome, row)
		}
	}
}

// The node lost the row, or released it without knowing, and claimed it again. A
// late mark of the first lease changes nothing.
func fenceClaimedAgain(s *storeSuite) {
	for i, outcome := range allOutcomes {
		env := s.inserted()
		first, second := fmt.Sprintf("node-1/%d", 2*i), fmt.Sprintf("node-1/%d", 2*i+1)
		s.sameIDs("first claim", idsOf(s.claimFor(first, 10).Envelopes), []string{env.EventID})
		s.mark(outbox.OutcomeReleased, first, markFor(env.EventID))
		s.sameIDs("second claim", idsOf(s.claimFor(second, 10).Envelopes), []string{env.EventID})
		row := s.row(env.EventID)
		s.leaves(outcome, first, []outbox.Mark{markFor(env.EventID)}, map[string]outbox.RowState{env.EventID: stateOf(row)})
		s.sameRow(outcome.String()+" under the first lease", env.EventID, row)
		s.mark(outcome, second, markFor(env.EventID))
		s.mark(outbox.OutcomeDelete, "", markFor(env.EventID))
	}
}

// fencePairs has two rows under two leases, and also marks each under the other's
// lease: a statement with a list of ids and a list of leases would apply all four
// marks.
func fencePairs(s *storeSuite) {
	for _, outcome := range allOutcomes {
		a, _ := s.insertedAs(outbox.StatusNew, "node-1/1")
		b, _ := s.insertedAs(outbox.StatusNew, "node-1/2")
		c, cRow := s.insertedAs(outbox.StatusNew, "node-1/1")
		d, dRow := s.insertedAs(outbox.StatusNew, "node-1/2")
		s.leavesOf(outcome, []outbox.Mark{
			markUnder("node-1/2", c.EventID), markUnder("node-1/2", b.EventID),
			markUnder("node-1/1", a.EventID), markUnder("node-1/1", d.EventID),
		}, map[string]outbox.RowState{c.EventID: stateOf(cRow), d.EventID: stateOf(dRow)})
		s.sameRow(outcome.String()+" under the other lease", c.EventID, cRow)
		s.sameRow(outcome.String()+" under the other lease", d.EventID, dRow)
		for _, id := range []string{a.EventID, b.EventID} {
			if row, ok := s.Row(s.t, id); ok && row.LockedBy != "" {
				s.t.Fatalf("%s under the row's own lease: %+v", outcome, row)
			}
		}
	}
}

func fenceMixed(s *storeSuite) {
	for _, outcome := range allOutcomes {
		mine, _ := s.insertedAs(outbox.StatusNew, "node-1/1")
		free, _ := s.insertedAs(outbox.StatusNew, "")
		unnamed, _ := s.insertedAs(outbox.StatusRetry, "node-2/1")
		lost, lostRow := s.insertedAs(outbox.StatusNew, "node-2/1")
		s.leavesOf(outcome, []outbox.Mark{
			markUnder("node-1/1", lost.EventID), markFor(free.EventID), markUnder("node-1/1", mine.EventID),
			markFor(unnamed.EventID), markFor("no such event"),
		}, map[string]outbox.RowState{lost.EventID: stateOf(lostRow)})
		s.sameRow(outcome.String()+" under a lost lease", lost.EventID, lostRow)
		for _, id := range []string{mine.EventID, free.EventID, unnamed.EventID} {
			row, ok := s.Row(s.t, id)
			if ok && (row.LockedBy != "" || outcome == outbox.OutcomeDone && row.Status != outbox.StatusDone) {
				s.t.Fatalf("%s in a mixed batch: %+v", outcome, row)
			}
		}
	}
}

// An answer may be lost, and the outcome stored again. The second mark leaves the
// row as the first one left it; a mark with a lease reports that state.
func fenceTwice(s *storeSuite) {
	for _, outcome := range allOutcomes {
		for _, lease := range []string{"", "node-1/1"} {
			env, _ := s.insertedAs(outbox.StatusNew, lease)
			beside, _ := s.insertedAs(outbox.StatusNew, lease)
			s.mark(outcome, lease, markFor(env.EventID))
			once, found := s.Row(s.t, env.EventID)
			left := map[string]outbox.RowState{}
			if lease != "" {
				left[env.EventID] = outbox.RowState{}
				if found {
					left[env.EventID] = stateOf(once)
				}
			}
			s.leaves(outcome, lease, []outbox.Mark{markFor(env.EventID)}, left)
			if row, still := s.Row(s.t, env.EventID); still != found || !sameRow(row, once) {
				s.t.Fatalf("%s twice under lease %q:\n got %+v\nwant %+v", outcome, lease, row, once)
			}
			// Of two rows that show the outcome, one is reported: only one was changed.
			marks := []outbox.Mark{markUnder(lease, env.EventID), markUnder(lease, beside.EventID)}
			reported, err := s.Store.Mark(s.ctx, s.DB, outcome, marks)
			s.ok("Mark", err)
			s.count(outcome.String()+": rows left alone", len(reported), len(left))
		}
	}
}

func fenceAwkward(s *storeSuite) {
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
				want[env.EventID] = outbox.RowState{Exists: true, Lease: lease}
			}
		}
		s.leavesOf(outcome, marks, want)
	}
}

// fenceManyLeases does what the hot path does: each row has its own lease.
func fenceManyLeases(s *storeSuite) {
	const rows = 1500
	for _, outcome := range []outbox.Outcome{outbox.OutcomeReleased, outbox.OutcomeRetry, outbox.OutcomeDelete} {
		envs := s.events(rows)
		marks := make([]outbox.Mark, rows)
		want := map[string]outbox.RowState{}
		for i := range envs {
			marks[i] = markUnder(fmt.Sprintf("node-1/%d", i), envs[i].EventID)
			if i%100 == 99 {
				want[envs[i].EventID] = outbox.RowState{Exists: true, Lease: "node-2/1"}
			}
		}
		tx, commit, _ := s.Begin(s.t)
		for i, env := range envs {
			lease := marks[i].Lease
			if i%100 == 99 {
				lease = "node-2/1"
			}
			s.ok("Insert", s.Store.Insert(s.ctx, tx, []outbox.Envelope{env}, lease, suiteTime.Add(later)))
		}
		s.ok("commit", commit())
		slices.Reverse(marks)
		s.leavesOf(outcome, marks, want)
		s.leavesOf(outbox.OutcomeDelete, []outbox.Mark{markFor(envs[0].EventID)}, nil)
	}
}

// leaseConcurrently runs concurrently what several nodes do, on the same rows in
// different orders. Nothing may fail, for example by a deadlock, and every row is
// marked once.
func leaseConcurrently(s *storeSuite) {
	const rows, batch = 300, 30
	envs := s.events(rows)
	s.insertFor("node-1/1", envs...)
	s.insert(s.events(batch)...) // for the neighbour to claim
	var backwards []outbox.Lease
	for _, env := range slices.Backward(envs) {
		backwards = append(backwards, outbox.Lease{EventID: env.EventID, Name: "node-1/1"})
	}

	var neighbours, marking sync.WaitGroup
	var mu sync.Mutex
	var failures []error
	done := make(chan struct{})
	fail := func(err error) {
		if err != nil {
			mu.Lock()
			failures = append(failures, err)
			mu.Unlock()
		}
	}
	until := func(fn func()) {
		neighbours.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					fn()
				}
			}
		})
	}
	until(func() { fail(s.Store.Renew(s.ctx, s.DB, backwards)) })
	claims := 0
	until(func() {
		claims++
		q := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: 5, Lease: fmt.Sprintf("node-2/%d", claims), LockTimeout: time.Hour}
		_, err := s.Store.Claim(s.ctx, s.DB, q)
		fail(err)
	})
	until(func() {
		_, err := s.Store.Purge(s.ctx, s.DB, outbox.PurgeQuery{Before: suiteTime, Limit: 50})
		fail(err)
	})
	leftAlone := 0
	for i, outcome := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeRetry, outbox.OutcomeDead} {
		marking.Go(func() {
			for from := i * rows / 3; from < (i+1)*rows/3; from += batch {
				marks := marksOf(envs[from:min(from+batch, (i+1)*rows/3)])
				for i := range marks {
					marks[i].Lease = "node-1/1"
				}
				left, err := s.Store.Mark(s.ctx, s.DB, outcome, marks)
				fail(err)
				mu.Lock()
				leftAlone += len(left)
				mu.Unlock()
			}
		})
	}
	marking.Wait()
	close(done)
	neighbours.Wait()
	if len(failures) > 0 {
		s.t.Fatalf("%d of the calls failed, the first: %v", len(failures), failures[0])
	}
	s.count("rows left alone", leftAlone, 0)
}
