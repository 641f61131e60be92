package outbox

import (
	"context"
	"fmt"
)

// Stage seals envelopes for a write whose INSERT an adapter sends later, among other
// statements. The BeforeWrite hooks run now; the write is nil when they left no
// event. Errors are those of [Writer.WriteScope], apart from the transaction's.
func (w *Writer) Stage(ctx context.Context, envs []Envelope) (*StagedWrite, error) {
	sealed, sealedAt, err := w.prepare(ctx, envs)
	if err != nil || len(sealed) == 0 {
		return nil, err
	}
	return &StagedWrite{w: w, p: &pending{envs: sealed, due: sealedAt}}, nil
}

// StagedWrite is one write of [Writer.Stage]. An adapter calls Send when it sends
// the INSERT, and then one of the three others. A write that is never sent needs no
// call. It is for one goroutine at a time.
type StagedWrite struct {
	w    *Writer
	p    *pending
	sent bool
}

// EventIDs are the events' ids in order.
func (s *StagedWrite) EventIDs() []string { return eventIDs(s.p.envs) }

// Send reserves the events and gives tx the INSERT. A write is sent once, unless the
// INSERT failed.
func (s *StagedWrite) Send(ctx context.Context, tx Execer) error {
	if s.sent {
		return fmt.Errorf("outbox: event %s was sent already; queue it again for another transaction", s.p.envs[0].EventID)
	}
	s.w.reserve(s.p)
	if err := s.w.store.Insert(ctx, tx, s.p.envs, s.p.lease, s.p.due); err != nil {
		s.w.unreserve(s.p)
		return err
	}
	s.sent = true
	return nil
}

// Inserted says that the INSERT has succeeded in the transaction.
func (s *StagedWrite) Inserted(ctx context.Context, scope TxScope) {
	if err := s.w.enlist(scope, s.p); err != nil {
		s.Failed(ctx, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)) // somebody ended it, perhaps with the rows in it
		return
	}
	s.w.afterWrite(ctx, s.p.envs)
}

// Uncertain says that the INSERT may have succeeded in the transaction: its commit
// does not tell whether the rows are there, and leaves the events to the poller.
func (s *StagedWrite) Uncertain(ctx context.Context, scope TxScope) {
	err := scope.AfterRollback(func(ctx context.Context, cause error) { s.Failed(ctx, cause) })
	if err == nil {
		err = scope.AfterCommit(func(ctx context.Context) { s.Failed(ctx, ErrOutcomeUnknown) })
	}
	if err != nil {
		s.Failed(ctx, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err))
	}
}

// Failed says that the rows are not there or, when cause is [ErrOutcomeUnknown],
// that they may be.
func (s *StagedWrite) Failed(ctx context.Context, cause error) {
	s.sent = false
	s.w.rolledBack(ctx, s.p, cause)
}
