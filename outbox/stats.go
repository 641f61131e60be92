package outbox

import (
	"context"
	"time"
)

// Stats describes the table and this process. Each count of rows stops at
// [StatsLimit], so that reading them is cheap whatever the backlog.
type Stats struct {
	Pending int64 // Due + Delayed
	Due     int64 // NEW and RETRY rows that are due now
	Delayed int64 // NEW and RETRY rows that are due later
	Dead    int64
	// OldestDueAge is how long the oldest due event has been due whose kind is not
	// paused; zero when there is none.
	OldestDueAge time.Duration
	// HotDepth and ColdDepth are the events that wait in this node's queues. Those of
	// kinds that have a [Limit] count as ColdDepth.
	HotDepth, ColdDepth int
	// Paused are the kinds of events that are paused. Their events count as Pending
	// and Due like all others, and are left out of OldestDueAge.
	Paused []Pause
	// LastPoll is [Poller.LastPoll] of this node. In a mode without a poller it
	// is the zero time.
	LastPoll time.Time
	// WriteFailures counts the writes of this node in a row that the database did not take:
	// of its reports, one every ten seconds while the outbox runs. The database may answer
	// reads all the same, as a standby or a full disk does.
	WriteFailures int
	// PollInterval is how often the poller reads an idle table; zero in a mode
	// without one.
	PollInterval time.Duration
}

// Stats reads the table's counts and the queues' depths.
func (o *Outbox) Stats(ctx context.Context) (Stats, error) {
	now := storedTime(o.clock.Now())
	paused, err := o.Paused(ctx)
	if err != nil {
		return Stats{}, err
	}
	kinds := make([]EventKind, len(paused))
	for i := range paused {
		kinds[i] = paused[i].Kind
	}
	s, err := o.store.Stats(ctx, o.db, now, kinds)
	if err != nil {
		return Stats{}, err
	}
	st := Stats{Pending: s.Due + s.Delayed, Due: s.Due, Delayed: s.Delayed, Dead: s.Dead, Paused: paused}
	if !s.OldestDue.IsZero() {
		st.OldestDueAge = max(now.Sub(s.OldestDue), 0)
	}
	st.WriteFailures = int(o.announcer.failures.Load())
	if o.dispatcher != nil {
		st.HotDepth, st.ColdDepth = o.dispatcher.Depths()
	}
	if o.poller != nil {
		st.LastPoll, st.PollInterval = o.poller.LastPoll(), o.poller.opts.Interval
	}
	return st, nil
}
