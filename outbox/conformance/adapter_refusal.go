package conformance

import (
	"context"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

var adapterRefusalTests = []adapterTest{
	{name: "Unmanaged", run: func(s *adapterSuite) {
		tx, err := s.Unmanaged(s.ctx)
		s.ok("beginning behind the adapter's back", err)
		defer func() { _ = s.Rollback(tx) }()
		_, err = s.Write(s.ctx, tx, s.event())
		wantError(s.t, "Write", err, outbox.ErrUnmanagedTransaction)
		if err != nil && !strings.Contains(err.Error(), "AllowUnmanaged") {
			s.t.Errorf("the error %q does not name the way out", err)
		}
	}},
	{name: "UnmanagedAllowed", unmanaged: true, run: func(s *adapterSuite) {
		tx, err := s.Unmanaged(s.ctx)
		s.ok("beginning behind the adapter's back", err)
		defer func() { _ = s.Rollback(tx) }()
		id := s.write(s.ctx, tx)
		s.ok("Commit", s.Commit(tx))
		s.wantCalls(nil, nil)
		s.rows(id)
	}},
	{name: "ManagedWhereUnmanagedIsAllowed", unmanaged: true, run: func(s *adapterSuite) {
		tx := s.begin()
		id := s.write(s.ctx, tx)
		s.ok("Commit", s.Commit(tx))
		s.wantCalls([]string{id}, nil)
	}},
	{name: "Foreign", run: func(s *adapterSuite) {
		other := s.another()
		tx := other.begin()
		_, err := s.Write(s.ctx, tx, s.event())
		wantError(s.t, "Write", err, outbox.ErrForeignTransaction)
		s.wantCalls(nil, nil)
	}},
	{name: "AfterCommit", run: func(s *adapterSuite) {
		tx := s.begin()
		s.ok("Commit", s.Commit(tx))
		_, err := s.Write(s.ctx, tx, s.event())
		wantError(s.t, "Write", err, outbox.ErrNoTransaction)
		_, err = s.WriteAll(s.ctx, tx, nil)
		wantError(s.t, "WriteAll of nothing", err, outbox.ErrNoTransaction)
		s.rows()
	}},
	{name: "AfterRollback", run: func(s *adapterSuite) {
		tx := s.begin()
		s.ok("Rollback", s.Rollback(tx))
		_, err := s.Write(s.ctx, tx, s.event())
		wantError(s.t, "Write", err, outbox.ErrNoTransaction)
		s.rows()
	}},
	{name: "InvalidEnvelope", run: func(s *adapterSuite) {
		tx := s.begin()
		_, err := s.Write(s.ctx, tx, outbox.Envelope{})
		wantError(s.t, "Write", err, outbox.ErrInvalidEnvelope)
		id := s.write(s.ctx, tx) // the transaction is still usable
		s.ok("Commit", s.Commit(tx))
		s.wantCalls([]string{id}, nil)
	}},
	{name: "EmptyList", run: func(s *adapterSuite) {
		tx := s.begin()
		ids, err := s.WriteAll(s.ctx, tx, nil)
		s.ok("WriteAll of nothing", err)
		if ids == nil || len(ids) > 0 {
			s.t.Errorf("WriteAll of nothing returned %#v", ids)
		}
		s.ok("Commit", s.Commit(tx))
		s.wantCalls(nil, nil)
	}},
	{name: "AmbientWrite", run: func(s *adapterSuite) {
		var id string
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) (err error) {
			id, err = s.writer.Write(ctx, s.event())
			return err
		}))
		s.wantCalls([]string{id}, nil)
		s.rows(id)
	}},
	{name: "AmbientWriteWithoutTransaction", run: func(s *adapterSuite) {
		_, err := s.writer.Write(s.ctx, s.event())
		wantError(s.t, "Write", err, outbox.ErrNoTransaction)
	}},
	{name: "AmbientWriteAfterTheEnd", run: func(s *adapterSuite) {
		var kept context.Context
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			kept = ctx //nolint:fatcontext // what the test is about.
			return nil
		}))
		_, err := s.writer.Write(context.WithoutCancel(kept), s.event())
		wantError(s.t, "Write", err, outbox.ErrNoTransaction)
		s.rows()
	}},
	{name: "AmbientWriteInForeignTransaction", run: func(s *adapterSuite) {
		other := s.another()
		s.ok("RunInTx", other.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			_, err := s.writer.Write(ctx, s.event())
			wantError(s.t, "Write", err, outbox.ErrForeignTransaction)
			wantError(s.t, "Write", err, outbox.ErrNoTransaction)
			return nil
		}))
	}},
	{name: "TwoSourcesAtOnce", run: func(s *adapterSuite) {
		other := s.another()
		var here, there string
		s.ok("RunInTx", s.RunInTx(s.ctx, func(ctx context.Context, _ any) error {
			wantError(s.t, "the other RunInTx", other.RunInTx(ctx, func(ctx context.Context, _ any) (err error) {
				here, err = s.writer.Write(ctx, s.event())
				s.ok("Write", err)
				there, err = other.writer.Write(ctx, s.event())
				s.ok("Write", err)
				return errSuite
			}), errSuite)
			return nil
		}))
		s.wantCalls([]string{here}, nil)
		other.wantCalls(nil, []string{there})
		s.rows(here)
		other.rows()
	}},
}
