package conformance

import (
	"context"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// A store reads in the caller's transaction to find the event that keeps another one out.
var adapterOnceTests = []adapterTest{
	{name: "ReadsInTheTransaction", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.write(ctx, tx, "a")
			s.skips(ctx, tx, "a")
			s.write(ctx, tx, "b")
			return nil
		}))
		s.wantEnded("a b", "")
	}},
	{name: "ReadsWithinASavepoint", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			wantError(s.t, "the inner RunInTx", s.RunInTx(ctx, func(ctx context.Context, tx any) error {
				s.write(ctx, tx, "a")
				s.skips(ctx, tx, "a")
				return errSuite
			}), errSuite)
			env := suiteEvent("b")
			env.UniqueKey = "a" // which is gone
			id, err := s.Write(ctx, tx, env)
			s.ok("Write", err)
			s.follow(ctx, tx, "b")
			if id != "b" {
				s.t.Errorf("Write returned the id %q; want b", id)
			}
			return nil
		}))
		s.wantEnded("b", "a")
	}},
	{name: "OfAnEventOfAnotherTransaction", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, s.writing("a", nil)))
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, tx any) error {
			s.skips(ctx, tx, "a")
			return nil
		}))
		s.ok("InTx", outbox.InTx(s.ctx, s, func(ctx context.Context) error {
			env := suiteEvent("")
			env.UniqueKey = "a"
			id, err := s.writer.Write(ctx, env)
			if err == nil && id != "a" {
				s.t.Errorf("the writer returned the id %q; want a", id)
			}
			return err
		}))
		s.wantEnded("a", "")
	}},
	{name: "ReadsWithoutATap", unmanaged: true, run: func(s *adapterSuite) {
		tx := s.beginUnmanaged()
		s.write(s.ctx, tx, "a")
		s.skips(s.ctx, tx, "a")
		s.ok("Commit", s.Commit(tx))
		s.rows("a")
	}},
	{name: "RefusedInATransactionThatIsOver", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx, "a")
		s.ok("Rollback", s.Rollback(tx))
		env := suiteEvent("b")
		env.UniqueKey = "a"
		_, err := s.Write(s.ctx, tx, env)
		wantError(s.t, "Write", err, outbox.ErrNoTransaction)
		s.wantEnded("", "a")
	}},
}

// skips writes events of which one is skipped, because the event of an id is there.
func (s *adapterSuite) skips(ctx context.Context, tx any, id string) {
	s.t.Helper()
	env := suiteEvent("skipped")
	env.UniqueKey = id
	got, err := s.Write(ctx, tx, env)
	s.ok("Write", err)
	ids, err := s.WriteAll(ctx, tx, []outbox.Envelope{env})
	s.ok("WriteAll", err)
	if got != id || strings.Join(ids, " ") != id {
		s.t.Errorf("Write returned the id %q and WriteAll %q; want %s", got, ids, id)
	}
}
