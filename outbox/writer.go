package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox/internal/notify"
)

// Writer writes events into the outbox table, within the caller's transaction. Write and WriteAll
// use the transaction that the context carries. The other methods are for adapters, whose own
// methods take a transaction value. A writer is safe for concurrent use.
type Writer struct {
	store      Store
	source     any
	hooks      []WriterHook
	observed   bool        // a hook has AfterCommit
	requireKey bool        // see [OrderedByKey]
	hot        *dispatcher // nil: no hot path
	poller     *poller     // nil: nothing is delivered
	counts     *counts
	log        *slog.Logger
	clock      Clock
	// notifications are nil without a notifier.
	notifications *notify.Notifications
}

// Write writes an event in the transaction that ctx carries and returns the id of the event; "" and
// no error when a hook suppressed the event. Write fails with [ErrNoTransaction] when ctx carries
// no active transaction of the writer's source; the error is [ErrForeignTransaction] too when ctx
// carries a transaction of another source. Write fails with [ErrInvalidEnvelope] for an invalid
// envelope, and with [ErrDuplicateEvent] for an EventID that is in the table: then nothing is
// written, and the transaction goes on. If a pending event has the UniqueKey of the envelope, Write
// returns the id of that event, and writes nothing, or replaces the content of that event; see
// [Envelope].KeepLatest.
func (w *Writer) Write(ctx context.Context, env Envelope) (string, error) {
	scope, err := w.ambient(ctx)
	if err != nil {
		return "", err
	}
	return first(w.WriteScope(ctx, scope, []Envelope{env}))
}

// WriteAll writes events in the transaction that ctx carries, all or none, and returns their ids in
// order. Errors are the same as in [Writer.Write]. An event that its UniqueKey keeps out does not
// keep out the others.
func (w *Writer) WriteAll(ctx context.Context, envs []Envelope) ([]string, error) {
	scope, err := w.ambient(ctx)
	if err != nil {
		return nil, err
	}
	return w.WriteScope(ctx, scope, envs)
}

func (w *Writer) ambient(ctx context.Context) (TxScope, error) {
	if scope, ok := ScopeFromContext(ctx, w.source); ok {
		return scope, nil
	}
	if hasForeignScope(ctx) {
		return nil, fmt.Errorf("%w of this writer's data source in the context: %w; write with that source's writer, or begin a transaction on this one", ErrNoTransaction, ErrForeignTransaction)
	}
	if reason, ok := ctx.Value(noTxKey{}).(string); ok {
		return nil, fmt.Errorf("%w in the context: %s", ErrNoTransaction, reason)
	}
	return nil, fmt.Errorf("%w in the context; begin one with the adapter or a web middleware, or call the adapter's Write with your transaction", ErrNoTransaction)
}

// Source is the connection pool whose transactions this writer writes in. An adapter compares the
// pool with its own.
func (w *Writer) Source() any { return w.source }

// Store is the writer's store. An adapter asks it for the dialect of the database.
func (w *Writer) Store() Store { return w.store }

// WriteScope is WriteAll in a scope that the caller, an adapter, has found.
func (w *Writer) WriteScope(ctx context.Context, scope TxScope, envs []Envelope) ([]string, error) {
	if err := w.usable(scope); err != nil {
		return nil, err
	}
	p, err := w.prepare(ctx, envs)
	if err != nil || p == nil {
		return []string{}, err
	}
	w.reserve(p)
	ids, err := w.insert(ctx, scope, p)
	if err != nil {
		w.unreserve(p)
		return nil, err
	}
	if err := w.enlist(scope, p); err != nil {
		w.doubt(p) // somebody ended the transaction, perhaps with the rows in it
		return nil, fmt.Errorf("outbox: the transaction ended while %d events were being written: %w", len(ids), err)
	}
	if len(p.envs) > 0 {
		w.afterWrite(ctx, p.envs)
	}
	return ids, nil
}

// insert inserts the rows and returns the ids of the events in order. Events that were skipped leave
// the write.
func (w *Writer) insert(ctx context.Context, tx Execer, p *pending) (ids []string, err error) {
	if !p.once {
		return eventIDs(p.envs), w.store.Insert(ctx, tx, p.envs, p.lease, p.due)
	}
	ids, err = w.store.InsertOnce(ctx, tx, p.envs, p.lease, p.due)
	if err != nil {
		return nil, err
	}
	written := make([]Envelope, 0, len(ids))
	for i, id := range ids {
		env := &p.envs[i]
		if env.KeepLatest && id != env.EventID && (p.replaced.IsZero() || env.AvailableAt.Before(p.replaced)) {
			p.replaced = env.AvailableAt
		}
		env.UniqueKey, env.KeepLatest = "", false // listeners get what a row has
		if id == p.envs[i].EventID {
			written = append(written, *env)
		}
	}
	switch {
	case len(written) == len(p.envs):
	case w.hot != nil:
		w.hot.keep(p, written)
	default:
		p.envs = written
	}
	return ids, nil
}

// usable reports a reason that keeps the writer from using a transaction.
func (w *Writer) usable(scope TxScope) error {
	switch {
	case nilness.IsNil(scope):
		return ErrNoTransaction
	case scope.Source() != w.source:
		return ErrForeignTransaction
	case !scope.Active():
		return fmt.Errorf("%w: it has ended", ErrNoTransaction)
	default:
		return nil
	}
}

// WriteUnmanaged writes events through a transaction whose end the outbox does not see. The poller
// delivers the events and looks again after 10 ms, 100 ms and 1 s. AfterCommit and AfterRollback
// hooks do not run. Adapters call WriteUnmanaged where their AllowUnmanaged option permits.
func (w *Writer) WriteUnmanaged(ctx context.Context, tx Execer, envs []Envelope) ([]string, error) {
	if nilness.IsNil(tx) {
		return nil, ErrNoTransaction
	}
	p, err := w.prepare(ctx, envs)
	if err != nil || p == nil {
		return []string{}, err
	}
	ids, err := w.insert(ctx, tx, p)
	if err != nil {
		return nil, err
	}
	if len(p.envs) > 0 {
		w.counts.written.Add(int64(len(p.envs)))
		w.afterWrite(ctx, p.envs)
	}
	if len(p.envs) > 0 || !p.replaced.IsZero() {
		w.lookAgain()
	}
	return ids, nil
}

// prepare seals the envelopes and passes them through the BeforeWrite hooks. prepare returns nil
// when no event is left.
func (w *Writer) prepare(ctx context.Context, envs []Envelope) (p *pending, err error) {
	if len(envs) == 0 {
		return nil, nil
	}
	p = &pending{due: w.clock.Now(), once: slices.ContainsFunc(envs, isOnce)}
	if p.envs, err = w.sealAll(envs, p.due); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(w.hooks, func(h WriterHook) bool { return h.BeforeWrite != nil }) {
		return p, nil
	}
	made := eventIDs(p.envs)
	for i, h := range w.hooks {
		if h.BeforeWrite == nil {
			continue
		}
		if p.envs, err = w.beforeWrite(ctx, i, p.envs); err != nil || len(p.envs) == 0 {
			return nil, err
		}
	}
	p.once = p.once || isChosen(p.envs, made)
	p.envs, err = w.sealAll(p.envs, p.due)
	return p, err
}

// isOnce reports whether the caller gave the event an id or a unique key.
func isOnce(env Envelope) bool { return env.EventID != "" || env.UniqueKey != "" }

// isChosen reports whether BeforeWrite hooks gave an event a unique key, or an id in place of the
// made one. The ids of events in another order count as given, too.
func isChosen(envs []Envelope, made []string) bool {
	for i := range envs {
		for len(made) > 0 && made[0] != envs[i].EventID { // the hooks left this event out
			made = made[1:]
		}
		if envs[i].UniqueKey != "" || envs[i].EventID != "" && len(made) == 0 {
			return true
		}
	}
	return false
}

func (w *Writer) beforeWrite(ctx context.Context, i int, envs []Envelope) (_ []Envelope, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("outbox: BeforeWrite hook %d aborted the write: %w", i, panicError(r))
		}
	}()
	envs, err = w.hooks[i].BeforeWrite(ctx, envs)
	if err != nil {
		return nil, fmt.Errorf("outbox: BeforeWrite hook %d aborted the write: %w", i, sound(err))
	}
	return envs, nil
}

// sealAll seals every envelope and reports all that is wrong, up to a few.
func (w *Writer) sealAll(envs []Envelope, now time.Time) ([]Envelope, error) {
	const reported = 10
	sealed := make([]Envelope, len(envs))
	var errs []error
	given := false // an id; the ids that seal makes differ
	for i := range envs {
		given = given || envs[i].EventID != ""
		sealed[i] = envs[i]
		err := sealed[i].seal(now)
		if err == nil && w.requireKey {
			err = requireAggregateID(&sealed[i])
		}
		if err != nil {
			if len(envs) > 1 {
				err = fmt.Errorf("event %d of %d: %w", i, len(envs), err)
			}
			if errs = append(errs, err); len(errs) == reported {
				break
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if given && len(sealed) > 1 {
		seen := make(map[string]int, len(sealed))
		for i := range sealed {
			if j, twice := seen[sealed[i].EventID]; twice {
				return nil, &FieldError{Field: "Envelope.EventID", Problem: fmt.Sprintf("%q is given twice: to events %d and %d of %d", sealed[i].EventID, j, i, len(sealed))}
			}
			seen[sealed[i].EventID] = i
		}
	}
	return sealed, nil
}

// requireAggregateID is the check of [OrderedByKey].RequireKey.
func requireAggregateID(env *Envelope) error {
	if env.AggregateID != "" {
		return nil
	}
	return &FieldError{Field: "Envelope.AggregateID", Problem: "is empty, but OrderedByKey.RequireKey is set; give the id of what the event is about, or leave RequireKey out for events without an order"}
}

func first(ids []string, err error) (string, error) {
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}

// reserve keeps the poller's hands off the events of an open transaction.
func (w *Writer) reserve(p *pending) {
	if w.hot != nil {
		w.hot.reserve(p)
	}
}

func (w *Writer) unreserve(p *pending) {
	if w.hot != nil {
		w.hot.unreserve(p)
	}
}

// doubt lets go of events that may have been committed.
func (w *Writer) doubt(p *pending) {
	if w.hot != nil {
		w.hot.doubt(p)
	}
}

// enlist registers the work for the end of the transaction: the events go to the hot queue within
// COMMIT, the hooks run after COMMIT.
func (w *Writer) enlist(scope TxScope, p *pending) error {
	if !p.replaced.IsZero() {
		if err := w.enlistChange(scope, false, p.replaced); err != nil {
			return err
		}
	}
	if len(p.envs) == 0 {
		return nil
	}
	p.writes = scope.Writes()
	p.writes.add(p.envs)
	err := scope.AfterRollback(func(ctx context.Context, cause error) {
		w.rolledBack(ctx, p, cause)
	})
	if err != nil {
		return err
	}
	if w.notifications.IsUnstarted() { // the process may end before it starts the outbox
		err := scope.AfterCommit(func(ctx context.Context) { w.notifications.SendNow(ctx) })
		if err != nil {
			return err
		}
	}
	if !w.observed {
		return scope.AtCommit(func() { w.committed(p) })
	}
	var copies [][]Envelope
	err = scope.AtCommit(func() {
		// From then on the events are the dispatcher's, and their listener may
		// change them before the hooks run.
		copies = w.copies(p.envs)
		w.committed(p)
	})
	if err != nil {
		return err
	}
	return scope.AfterCommit(func(ctx context.Context) { w.afterCommit(ctx, copies) })
}

// committed hands the events over to the hot path.
func (w *Writer) committed(p *pending) {
	w.counts.written.Add(int64(len(p.envs)))
	if w.hot != nil && !w.hot.isNew() {
		w.hot.committed(p)
		return
	}
	w.notifications.Notify()
	if w.poller == nil {
		return
	}
	for i := range p.envs {
		if !p.isDue(&p.envs[i]) {
			w.poller.DueAt(p.envs[i].AvailableAt)
		}
	}
}

// lookAgain makes the poller that delivers look soon, for events of a transaction
// that the outbox does not see end.
func (w *Writer) lookAgain() {
	if w.poller != nil {
		w.poller.LookAgain()
	}
	if !w.poller.delivers() || w.notifications.IsUnstarted() {
		w.notifications.NotifyLater()
	}
}

func (w *Writer) rolledBack(ctx context.Context, p *pending, cause error) {
	if outcomeUnknown(cause) {
		w.doubt(p)
		w.lookAgain()
	} else {
		w.unreserve(p)
	}
	for _, h := range w.hooks {
		if h.AfterRollback != nil {
			w.shield("AfterRollback", func() { h.AfterRollback(ctx, cloneAll(p.envs), cause) })
		}
	}
}

// Stage seals envelopes for a write whose INSERT an adapter sends later, among other statements.
// The BeforeWrite hooks run now; the write is nil when they left no event. Errors are the same as
// in [Writer.WriteScope], apart from the transaction's errors. An event with a UniqueKey is refused:
// its id would be known only when the answer is there.
func (w *Writer) Stage(ctx context.Context, envs []Envelope) (*StagedWrite, error) {
	p, err := w.prepare(ctx, envs)
	if err != nil || p == nil {
		return nil, err
	}
	if slices.ContainsFunc(p.envs, func(env Envelope) bool { return env.UniqueKey != "" }) {
		return nil, &FieldError{Field: "Envelope.UniqueKey", Problem: "is set for a write that is sent later, in a batch of statements, whose event could turn out to be another; write the event with Write or WriteAll"}
	}
	return &StagedWrite{w: w, p: p}, nil
}

// StagedWrite is a write of [Writer.Stage]. An adapter calls Send when it sends the INSERT, and
// then one of the three other methods. A write that is never sent needs no call. A write is for one
// goroutine at a time.
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
	if _, err := s.w.insert(ctx, tx, s.p); err != nil {
		s.w.unreserve(s.p)
		return err
	}
	s.sent = true
	return nil
}

// Inserted says that the INSERT has succeeded in the transaction, and how many rows it inserted. If
// an event whose id the caller gave has no row, the error is a [DuplicateEventError]: then nothing
// is written, and the transaction goes on.
func (s *StagedWrite) Inserted(ctx context.Context, scope TxScope, rows int64) error {
	if s.p.once && rows < int64(len(s.p.envs)) {
		s.sent = false
		s.w.unreserve(s.p)
		return &DuplicateEventError{EventID: s.p.envs[0].EventID}
	}
	if err := s.w.enlist(scope, s.p); err != nil {
		s.Failed(ctx, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)) // somebody ended the transaction, perhaps with the rows in it
		return nil
	}
	s.w.afterWrite(ctx, s.p.envs)
	return nil
}

// Uncertain says that the INSERT may have succeeded in the transaction: the commit does not tell
// whether the rows are there, so the events are left to the poller.
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
