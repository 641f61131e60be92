package conformance

import (
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

var completeTests = []storeTest{
	{"OnlyAnOpenRowUnderTheLease", func(s *storeSuite) {
		for _, outcome := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeDelete} {
			for _, m := range s.everyMark() {
				what := fmt.Sprintf("completing as %s under lease %q a %s row under lease %q", outcome, m.mark.Lease, m.row.Status, m.row.LockedBy)
				before := s.now()
				changed, err := s.Store.Complete(s.ctx, s.DB, outcome, m.mark)
				s.ok(what, err)
				if want := m.applies(outcome) && !m.row.Status.Terminal(); changed != want {
					s.t.Fatalf("%s: changed is %t", what, changed)
				}
				if changed {
					s.wasMarked(outcome, m, before)
				} else {
					s.unchanged(what, m.stored)
				}
			}
		}
		changed, err := s.Store.Complete(s.ctx, s.DB, outbox.OutcomeDone, outbox.Mark{EventID: "no such event"})
		s.ok("completing an unknown event", err)
		if changed {
			s.t.Fatal("an unknown event was completed")
		}
	}},
	{"OnlyDoneAndDelete", func(s *storeSuite) {
		row := s.insertedAs(outbox.StatusNew, "")
		if _, err := s.Store.Complete(s.ctx, s.DB, outbox.OutcomeRetry, outbox.Mark{EventID: row.EventID}); err == nil {
			s.t.Fatal("an event was completed with the outcome retry")
		}
		s.unchanged("row", row)
	}},
	{"EndsWithItsTransaction", func(s *storeSuite) {
		env := s.insertedAs(outbox.StatusNew, "node-1/1")
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
		s.unchanged("row after the rollback", env)
		commit, _ := complete()
		s.ok("committing", commit())
		if row := s.row(env.EventID); row.Status != outbox.StatusDone || row.LockedBy != "" {
			s.t.Fatalf("row after the commit: %+v", row)
		}
	}},
}
