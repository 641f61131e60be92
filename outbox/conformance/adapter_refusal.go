package conformance

import (
	"context"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

var adapterRefusalTests = []adapterTest{
	{name: "Unmanaged", run: func(s *adapterSuite) {
		err := s.wantRefused(s.beginUnmanaged(), outbox.ErrUnmanagedTransaction)
		if err != nil && !strings.Contains(err.Error(), "AllowUnmanaged") {
			s.t.Errorf("the error does not name the option AllowUnmanaged: %v", err)
		}
	}},
	{name: "UnmanagedAllowed", unmanaged: true, run: func(s *adapterSuite) {
		tx := s.beginUnmanaged()
		s.write(s.ctx, tx, "a")
		s.ok("Commit", s.Commit(tx))
		s.wantCalls("", "")
		s.rows("a")
	}},
	{name: "ManagedWhereUnmanagedIsAllowed", unmanaged: true, run: func(s *adapterSuite) {
		s.ok("Commit", s.Commit(s.begin(s.ctx, "a")))
		s.wantEnded("a", "")
	}},
	{name: "Foreign", run: func(s *adapterSuite) {
		_ = s.wantRefused(s.another().begin(s.ctx), outbox.ErrForeignTransaction)
		s.wantCalls("", "")
	}},
	{name: "AfterTheEnd", run: func(s *adapterSuite) {
		for _, end := range []func(tx any) error{s.Commit, s.Rollback} {
			tx := s.begin(s.ctx)
			s.ok("ending the transaction", end(tx))
			_ = s.wantRefused(tx, outbox.ErrNoTransaction)
			_, err := s.WriteAll(s.ctx, tx, nil)
			wantError(s.t, "WriteAll of nothing", err, outbox.ErrNoTransaction)
		}
		s.rows()
	}},
	{name: "InvalidEnvelope", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx)
		_, err := s.Write(s.ctx, tx, outbox.Envelope{})
		wantError(s.t, "Write", err, outbox.ErrInvalidEnvelope)
		s.write(s.ctx, tx, "a") // the transaction is still usable
		s.ok("Commit", s.Commit(tx))
		s.wantEnded("a", "")
	}},
	{name: "EmptyList", run: func(s *adapterSuite) {
		tx := s.begin(s.ctx)
		ids, err := s.WriteAll(s.ctx, tx, nil)
		s.ok("WriteAll of nothing", err)
		if ids == nil || len(ids) > 0 {
			s.t.Errorf("WriteAll of nothing returned %#v", ids)
		}
		s.ok("Commit", s.Commit(tx))
		s.wantCalls("", "")
	}},
	{name: "AmbientWrite", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error { return s.writingAmbient("a", nil)(ctx) }))
		s.wantEnded("a", "")
	}},
	{name: "AmbientWriteWithoutTransaction", run: func(s *adapterSuite) {
		_, err := s.writer.Write(s.ctx, suiteEvent("a"))
		wantError(s.t, "Write", err, outbox.ErrNoTransaction)
	}},
	{name: "AmbientWriteAfterTheEnd", run: func(s *adapterSuite) {
		var kept context.Context
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			kept = ctx //nolint:fatcontext // the subject of the test.
			return nil
		}))
		_, err := s.writer.Write(context.WithoutCancel(kept), suiteEvent("a"))
		wantError(s.t, "Write", err, outbox.ErrNoTransaction)
		s.rows()
	}},
	{name: "AmbientWriteInForeignTransaction", run: func(s *adapterSuite) {
		s.ok("RunInTx", s.another().RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			_, err := s.writer.Write(ctx, suiteEvent("a"))
			wantError(s.t, "Write", err, outbox.ErrForeignTransaction)
			wantError(s.t, "Write", err, outbox.ErrNoTransaction)
			return nil
		}))
	}},
	{name: "TwoSourcesAtOnce", run: func(s *adapterSuite) {
		other := s.another()
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			wantError(s.t, "the other RunInTx", other.RunInTx(ctx, func(ctx context.Context, _ any) error {
				s.ok("Write", s.writingAmbient("here", nil)(ctx))
				return other.writingAmbient("there", errSuite)(ctx)
			}), errSuite)
			return nil
		}))
		s.wantEnded("here", "")
		other.wantEnded("", "there")
	}},
}

// beginUnmanaged begins a transaction that no tap follows, until the test ends.
func (s *adapterSuite) beginUnmanaged() any {
	s.t.Helper()
	tx, err := s.Unmanaged(s.ctx)
	s.ok("Unmanaged", err)
	s.t.Cleanup(func() { _ = s.Rollback(tx) })
	return tx
}

// wantRefused checks the error of Write in a transaction, and returns it.
func (s *adapterSuite) wantRefused(tx any, target error) error {
	s.t.Helper()
	_, err := s.Write(s.ctx, tx, suiteEvent("a"))
	wantError(s.t, "Write", err, target)
	return err
}
