package conformance

import (
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var completeTests = []storeTest{
	{"OnlyAnOpenRowUnderTheLease", completeEach},
	{"OnlyDoneAndDelete", completeWithAnotherOutcome},
	{"EndsWithItsTransaction", completeInTransaction},
}

func completeEach(s *storeSuite) {
	for _, outcome := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeDelete} {
		for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead} {
			for _, lease := range []string{"", "node-1/1", "node-1/2"} {
				rowLease := "node-1/1"
				if status.Terminal() {
					rowLease = ""
				}
				env, was := s.insertedAs(status, rowLease)
				what := fmt.Sprintf("%s under lease %q of a %s row under lease %q", outcome, lease, status, rowLease)
				before := s.now()
				changed, err := s.Store.Complete(s.ctx, s.DB, outcome, outbox.Mark{EventID: env.EventID, Lease: lease})
				s.ok(what, err)
				if want := !status.Terminal() && (lease == "" || lease == rowLease); changed != want {
					s.t.Fatalf("%s: changed is %t", what, changed)
				}
				if !changed {
					s.sameRow(what, env.EventID, was)
					continue
				}
				row, there := s.Row(s.t, env.EventID)
				if outcome == outbox.OutcomeDelete {
					if there {
						s.t.Fatalf("%s: the row is still there", what)
					}
					continue
				}
				s.duringCall(what+": done_at", row.DoneAt, before)
				was.Status, was.DoneAt, was.LockedBy, was.LockedAt = outbox.StatusDone, row.DoneAt, "", time.Time{}
				was.LastError = row.LastError // free to keep or clear
				if !sameRow(row, was) {
					s.t.Fatalf("%s:\n got %+v\nwant %+v", what, row, was)
				}
			}
		}
	}
	changed, err := s.Store.Complete(s.ctx, s.DB, outbox.OutcomeDone, outbox.Mark{EventID: "no such event"})
	s.ok("completing an unknown event", err)
	if changed {
		s.t.Fatal("an unknown event was completed")
	}
}

func completeWithAnotherOutcome(s *storeSuite) {
	env, was := s.insertedAs(outbox.StatusNew, "")
	if _, err := s.Store.Complete(s.ctx, s.DB, outbox.OutcomeRetry, outbox.Mark{EventID: env.EventID}); err == nil {
		s.t.Fatal("an event was completed with the outcome retry")
	}
	s.sameRow("row", env.EventID, was)
}

func completeInTransaction(s *storeSuite) {
	env, was := s.insertedAs(outbox.StatusNew, "node-1/1")
	complete := func() (commit, rollback func() error) {
		tx, commit, rollback := s.Begin(s.t)
		changed, err := s.Store.Complete(s.ctx, tx, outbox.OutcomeDone, outbox.Mark{EventID: env.EventID, Lease: "node-1/1"})
		if err != nil || !changed {
			_ = rollback()
			s.t.Fatalf("Complete: changed is %t, error %v", changed, err)
		}
		return commit, rollback
	}
	_, rollback := complete()
	s.ok("rolling back", rollback())
	s.sameRow("row after the rollback", env.EventID, was)
	commit, _ := complete()
	s.ok("committing", commit())
	if row := s.row(env.EventID); row.Status != outbox.StatusDone || row.LockedBy != "" {
		s.t.Fatalf("row after the commit: %+v", row)
	}
}
