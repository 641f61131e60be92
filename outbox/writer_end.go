package outbox

import "context"

// reserve keeps the poller's hands off the events of an open transaction.
func (w *Writer) reserve(p *pending) {
	if w.dispatcher != nil {
		w.dispatcher.reserve(p)
	}
}

func (w *Writer) unreserve(p *pending) {
	if w.dispatcher != nil {
		w.dispatcher.unreserve(p)
	}
}

// doubt lets go of events that may have been committed.
func (w *Writer) doubt(p *pending) {
	if w.dispatcher != nil {
		w.dispatcher.doubt(p)
	}
}

// enlist registers what is to happen at the end of the transaction: the events
// go to the hot queue within COMMIT, the hooks run after it.
func (w *Writer) enlist(scope TxScope, p *pending) error {
	err := scope.AfterRollback(func(ctx context.Context, cause error) {
		w.rolledBack(ctx, p, cause)
	})
	if err != nil {
		return err
	}
	if !w.observed {
		return scope.OnCommit(func() { w.committed(p) })
	}
	var copies [][]Envelope
	err = scope.OnCommit(func() {
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
	if w.dispatcher != nil {
		w.dispatcher.committed(p)
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
	if !w.poller.delivers() {
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
