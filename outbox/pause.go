package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Pause is a kind of event that is paused.
type Pause struct {
	Kind EventKind
	// Since is when it was paused, by the clock of the process that was asked.
	Since time.Time
}

// Pause stops the deliveries of a kind of event, in all processes of the table, until
// [Outbox.Resume]. A delivery that has begun ends; an event that waits in a queue is
// given back without an attempt; further ones stay in the table, with their place in
// the order. In [Ordered] a paused event holds up those behind it, in [OrderedByKey] those
// of its key.
//
// When Pause returns, this process begins no more deliveries of the kind. Others follow
// at once when they have a [Notifier], else when their pollers read the table next: at
// the latest after [PollOptions].Interval, and within a second while they have a
// backlog. To pause a kind that is paused changes nothing. An empty aggregate type is
// [Global]; the kind needs no listener here.
func (o *Outbox) Pause(ctx context.Context, kind EventKind) error {
	return o.changePause(ctx, "pausing", kind, func(kind EventKind) error {
		return o.store.Pause(ctx, o.db, Pause{Kind: kind, Since: storedTime(o.clock.Now())})
	})
}

// Resume ends the pause of a kind of event. The events that stayed in the table are
// delivered, the oldest first. To resume a kind that is not paused changes nothing.
func (o *Outbox) Resume(ctx context.Context, kind EventKind) error {
	return o.changePause(ctx, "resuming", kind, func(kind EventKind) error {
		return o.store.Resume(ctx, o.db, kind)
	})
}

// Paused lists the kinds of events that are paused, by aggregate type and event type. It
// reads them from the database.
func (o *Outbox) Paused(ctx context.Context) ([]Pause, error) {
	list, err := o.store.Paused(ctx, o.db)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Pause) int { return strings.Compare(a.Kind.String(), b.Kind.String()) })
	return list, nil
}

func (o *Outbox) changePause(ctx context.Context, doing string, kind EventKind, change func(EventKind) error) error {
	kind = kind.orGlobal()
	v := validator{what: "kind"}
	kind.validate(&v)
	if err := v.err(); err != nil {
		return err
	}
	err := change(kind)
	if err == nil && o.dispatcher != nil {
		err = o.dispatcher.pauses.read(ctx)
	}
	if err != nil {
		return fmt.Errorf("outbox: %s %s: %w", doing, kind, err)
	}
	if o.poller != nil {
		o.poller.Wake()
	}
	o.notifications.Notify()
	return nil
}
