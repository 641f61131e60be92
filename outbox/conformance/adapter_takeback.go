package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// AdapterThatTakesBack is an [AdapterUnderTest] whose adapter takes events back. [RunAdapter] tests these
// methods of the adapter if the adapter under test has them.
type AdapterThatTakesBack interface {
	Cancel(ctx context.Context, tx any, which outbox.Waiting) (outbox.TakenBack, error)
	Reschedule(ctx context.Context, tx any, which outbox.Waiting, at time.Time) (outbox.TakenBack, error)
	Replace(ctx context.Context, tx any, eventID string, with outbox.Replacement) (outbox.TakenBack, error)
}

var adapterTakeBackTests = []adapterTest{
	{name: "CommitsWithTheTransaction", run: func(s *adapterSuite) {
		a := s.takesBack()
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a", "b")
			return nil
		}))
		wantError(s.t, "RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			n, err := a.Cancel(ctx, tx, waitingFor("a", "b", "c"))
			s.ok("Cancel", err)
			s.tookBack(n, outbox.TakenBack{Changed: 2, Delivered: 1})
			return errSuite
		}), errSuite)
		s.rows("a", "b")
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			n, err := a.Cancel(ctx, tx, waitingFor("a"))
			s.tookBack(n, outbox.TakenBack{Changed: 1})
			return err
		}))
		s.rows("b")
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			n, err := a.Reschedule(ctx, tx, waitingFor("a", "b"), time.Now().Add(time.Hour))
			s.ok("Reschedule", err)
			s.tookBack(n, outbox.TakenBack{Changed: 1, Delivered: 1})
			n, err = a.Replace(ctx, tx, "b", outbox.Replacement{Payload: outbox.JSON("new")})
			s.tookBack(n, outbox.TakenBack{Changed: 1})
			return err
		}))
		s.rows("b")
	}},
	{name: "EventsOfTheTransaction", run: func(s *adapterSuite) {
		a := s.takesBack()
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, dueAtOnce+"a", dueAtOnce+"b", dueAtOnce+"c")
			n, err := a.Cancel(ctx, tx, waitingFor(dueAtOnce+"a"))
			s.ok("Cancel", err)
			s.tookBack(n, outbox.TakenBack{Changed: 1})
			n, err = a.Cancel(ctx, tx, waitingFor(dueAtOnce+"b"))
			s.tookBack(n, outbox.TakenBack{Changed: 1})
			return err
		}))
		s.rows(dueAtOnce + "c")
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			n, err := a.Cancel(ctx, tx, waitingFor(dueAtOnce+"c"))
			s.tookBack(n, outbox.TakenBack{InHand: 1})
			return err
		}))
		s.rows(dueAtOnce + "c")
	}},
	{name: "WithinASavepoint", run: func(s *adapterSuite) {
		a := s.takesBack()
		s.ok("RunInTx", s.RunInTx(s.ctx, s.writing("a", nil)))
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			wantError(s.t, "the inner RunInTx", s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				_, err := a.Cancel(ctx, tx, waitingFor("a"))
				s.ok("Cancel", err)
				return errSuite
			}), errSuite)
			return nil
		}))
		s.rows("a")
	}},
	{name: "WithoutATap", unmanaged: true, run: func(s *adapterSuite) {
		a := s.takesBack()
		s.ok("RunInTx", s.RunInTx(s.ctx, s.writing("a", nil)))
		tx := s.beginUnmanaged()
		n, err := a.Cancel(s.ctx, tx, waitingFor("a"))
		s.ok("Cancel", err)
		s.tookBack(n, outbox.TakenBack{Changed: 1})
		s.ok("Commit", s.Commit(tx))
		s.rows()
	}},
	{name: "RefusedInATransactionThatIsOver", run: func(s *adapterSuite) {
		a := s.takesBack()
		tx := s.begin(s.ctx, "a")
		s.ok("Rollback", s.Rollback(tx))
		_, err := a.Cancel(s.ctx, tx, waitingFor("a"))
		wantError(s.t, "Cancel", err, outbox.ErrNoTransaction)
	}},
}

// takesBack is the adapter's part that takes events back.
func (s *adapterSuite) takesBack() AdapterThatTakesBack {
	s.t.Helper()
	a, ok := s.AdapterUnderTest.(AdapterThatTakesBack)
	if !ok {
		s.t.Skipf("a %T has no Cancel, Reschedule and Replace", s.AdapterUnderTest)
	}
	return a
}

func waitingFor(ids ...string) outbox.Waiting { return outbox.Waiting{EventIDs: ids} }

func (s *adapterSuite) tookBack(got, want outbox.TakenBack) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("the result is %+v; want %+v", got, want)
	}
}

// dueAtOnce begins the ids of events that do not wait.
const dueAtOnce = "due-"

// TakeBack reads and deletes in the transaction, as stores do.
func (s adapterStore) TakeBack(ctx context.Context, tx outbox.Execer, w outbox.Waiting, c outbox.Change) (n outbox.TakenBack, err error) {
	place := "?"
	if s.dialect == Postgres {
		place = "$1"
	}
	for _, id := range w.EventIDs {
		there, err := outbox.QueryTexts(ctx, tx, "SELECT id FROM suite_event WHERE id = "+place, id)
		if err != nil {
			return n, err
		}
		if n.Delivered += 1 - len(there); strings.HasPrefix(id, dueAtOnce) && !c.Uncommitted {
			n.InHand += len(there)
			continue
		}
		n.Changed += len(there)
		if c.Cancel {
			if _, err := tx.ExecContext(ctx, "DELETE FROM suite_event WHERE id = "+place, id); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}
