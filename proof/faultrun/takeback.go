package faultrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// contentHeader has the content of an event, beside the payload; see [checker.Change].
const contentHeader = "content"

// content is the payload and the headers of an event that was not changed.
func content(e checker.Event) (outbox.Payload, map[string]string) {
	payload := map[string]any{"key": e.Key, "seq": e.Seq, "secret": Secrets[0]}
	headers := map[string]string{"secret": Secrets[1]}
	if e.Type == Reminder || e.Type == Latest {
		payload["content"], headers[contentHeader] = e.ID, e.ID
	}
	return outbox.JSON(payload), headers
}

// contentOf is the content of an event that is delivered. Payload and headers have the same content.
func contentOf(env outbox.Envelope) string {
	var payload struct{ Content string }
	if err := json.Unmarshal([]byte(env.Payload.String()), &payload); err != nil || payload.Content != env.Headers[contentHeader] {
		return fmt.Sprintf("payload %q, headers %q", payload.Content, env.Headers[contentHeader])
	}
	return payload.Content
}

// reminders are the events of type [Reminder] that a process has written lately.
type reminders struct {
	mu  sync.Mutex
	all []*reminder
}

// reminder is one or two events of an aggregate, whose id is that of the transaction.
type reminder struct {
	tx        string
	events    []checker.Event
	due       time.Time // the first due time
	committed bool      // perhaps
	// moves is the transaction that makes the events due at the time to.
	moves string
	to    time.Time
}

// end ends a transaction, which may have committed.
func (l *reminders) end(tx string, committed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(r *reminder) bool {
		if r.moves == tx && committed {
			r.due = r.to
		}
		r.committed = r.committed || r.tx == tx && committed
		return r.tx == tx && !committed || r.due.Before(time.Now().Add(-3*time.Second))
	})
}

// nearest is the reminder that is due nearest to a time; nil: there is none.
func (l *reminders) nearest(at time.Time) (nearest *reminder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all {
		if r.committed && (nearest == nil || r.due.Sub(at).Abs() < nearest.due.Sub(at).Abs()) {
			nearest = r
		}
	}
	return nearest
}

// remind writes one or two events that are due within three seconds, and sometimes cancels them in the
// same transaction.
func (n *node) remind(ctx context.Context, id string, tx transaction) error {
	if n.chance("remind", id) >= n.TakeBack {
		return nil
	}
	r := &reminder{tx: id, events: make([]checker.Event, 1+n.chance("reminders", id)%2)}
	for i := range r.events {
		r.events[i] = checker.Event{
			ID: fmt.Sprintf("%s-r%d", id, i), Type: Reminder, Key: id, Seq: i, Delayed: true, Due: n.soon("reminder", id, i),
		}
	}
	r.due = r.events[0].Due
	n.log.Add(checker.Record{Op: checker.OpWrite, Tx: id, Events: r.events})
	if _, err := tx.Write(ctx, n.envelopes(r.events)); err != nil {
		return err
	}
	if n.chance("at once", id) < 5 {
		_, err := n.change(ctx, id, tx, r, checker.Change{Does: checker.Cancel}, true)
		return err
	}
	n.reminders.mu.Lock()
	defer n.reminders.mu.Unlock()
	n.reminders.all = append(n.reminders.all, r)
	return nil
}

// soon is a time within three seconds, as databases store times.
func (n *node) soon(of ...any) time.Time {
	return n.clock().UTC().Truncate(time.Microsecond).Add(time.Duration(1+n.chance(of...)) * 30 * time.Millisecond)
}

// takeBack cancels, reschedules or replaces the events of a reminder, together with a business row. In a
// savepoint that is rolled back a transaction cancels them too. The outbox is not concerned with a
// transaction that changes nothing; see [node.orderAll].
func (n *node) takeBack(ctx context.Context, id string, w writes, tx transaction) (concerned bool, err error) {
	if err := tx.Exec(ctx, quoted("INSERT INTO fault_orders VALUES ('%s')", id)); err != nil {
		return false, err
	}
	now := n.clock()
	if n.chance("far", id) < 50 { // else the reminder may be claimed right now
		now = now.Add(time.Duration(n.chance("how far", id)-10) * 30 * time.Millisecond)
	}
	r := n.reminders.nearest(now)
	if r == nil {
		return false, nil
	}
	if n.chance("savepoint", id) < n.RollBack {
		err := w.InTx(ctx, func(ctx context.Context, tx transaction) error {
			if _, err := n.change(ctx, id, tx, r, checker.Change{Does: checker.Cancel}, false); err != nil {
				return err
			}
			return errRolledBack
		})
		if !errors.Is(err, errRolledBack) {
			return false, err
		}
	}
	var c checker.Change
	switch does := n.chance("does", id); {
	case does < 40:
		c = checker.Change{Does: checker.Cancel}
	case does < 70:
		c = checker.Change{Does: checker.Reschedule, Due: n.soon("to", id).Add(-500 * time.Millisecond)}
	default:
		c = checker.Change{Does: checker.Replace, Content: id}
		if does < 85 {
			c.Due = n.soon("to", id)
		}
	}
	return n.change(ctx, id, tx, r, c, true)
}

// change changes the events of a reminder: one event, or all events by their ids or by their aggregate id.
// change reports whether any event was changed.
func (n *node) change(ctx context.Context, id string, tx transaction, r *reminder, c checker.Change, record bool) (changed bool, err error) {
	events := r.events
	if n.chance("single", id) < 50 || c.Does == checker.Replace {
		i := n.chance("which", id) % len(events)
		events = events[i : i+1]
	}
	var which outbox.Waiting
	if c.ByKey = len(events) == len(r.events) && c.Does != checker.Replace && n.chance("by key", id) < 50; c.ByKey {
		which.Kind, which.AggregateID = Kind(Reminder), r.tx
	} else {
		for _, e := range events {
			which.EventIDs = append(which.EventIDs, e.ID)
		}
	}
	how := outbox.Change{Cancel: c.Does == checker.Cancel, AvailableAt: c.Due}
	if c.Content != "" {
		how.Content = &outbox.Envelope{}
		how.Content.Payload, how.Content.Headers = content(checker.Event{ID: c.Content, Type: Reminder})
	}
	got, err := tx.Change(ctx, which, how)
	if err != nil || !record {
		return false, err
	}
	c.Changed, c.InHand, c.Dead, c.Delivered = got.Changed, got.InHand, got.Dead, got.Delivered
	p, ok := tx.(pgxTx)
	c.Only = ok && p.queues(how)
	n.log.Add(checker.Record{Op: checker.OpChanged, Tx: id, Events: events, Change: &c})
	if !c.Due.IsZero() {
		n.reminders.mu.Lock()
		defer n.reminders.mu.Unlock()
		r.moves, r.to = id, c.Due
	}
	return c.Changed > 0, nil
}

// latest writes one or two events with KeepLatest, perhaps with the same key.
func (n *node) latest(ctx context.Context, id, where string, tx transaction, _ checker.Event) error {
	if n.chance("latest", id) >= n.Latest {
		return nil
	}
	events := make([]checker.Event, 1+n.chance("latests", id)%2)
	key := n.chance("latest key", id) % uniqueKeys
	for i := range events {
		unique := fmt.Sprintf("l%d", key)
		events[i] = checker.Event{
			ID: fmt.Sprintf("%s%s-l%d", id, where, i), Type: Latest, Key: unique, Unique: unique, Latest: true, Delayed: true,
			Due: n.clock().UTC().Truncate(time.Microsecond),
		}
		if n.chance("latest due", id, i) < 70 {
			events[i].Due = n.soon("latest", id, i)
		}
		if key+1 < uniqueKeys {
			key += n.chance("next latest key", id) % 2
		}
	}
	n.log.Add(checker.Record{Op: checker.OpWrite, Tx: id, Events: events})
	ids, err := tx.Write(ctx, n.envelopes(events))
	if err != nil {
		return err
	}
	if where != "" {
		n.log.Add(checker.Record{Op: checker.OpSavepoint, Tx: id, Events: events})
		return nil
	}
	for i, e := range events {
		if ids[i] == e.ID {
			continue
		}
		n.log.Add(checker.Record{Op: checker.OpKeptOut, Tx: id, Events: events[i : i+1], Event: ids[i]})
		n.log.Add(checker.Record{Op: checker.OpChanged, Tx: id, Events: []checker.Event{{ID: ids[i]}}, Change: &checker.Change{
			Does: checker.Replace, Due: e.Due, Content: e.ID, Changed: 1, Only: true,
		}})
	}
	return nil
}

// takesBack is an adapter, for transactions of its type.
type takesBack[T any] interface {
	Cancel(ctx context.Context, tx T, which outbox.Waiting) (outbox.TakenBack, error)
	Reschedule(ctx context.Context, tx T, which outbox.Waiting, at time.Time) (outbox.TakenBack, error)
	Replace(ctx context.Context, tx T, eventID string, with outbox.Replacement) (outbox.TakenBack, error)
}

// takeBack changes events through an adapter.
func takeBack[T any](ctx context.Context, a takesBack[T], tx T, which outbox.Waiting, c outbox.Change) (outbox.TakenBack, error) {
	switch {
	case c.Cancel:
		return a.Cancel(ctx, tx, which)
	case c.Content != nil:
		return a.Replace(ctx, tx, which.EventIDs[0], outbox.Replacement{Payload: c.Content.Payload, Headers: c.Content.Headers, AvailableAt: c.AvailableAt})
	default:
		return a.Reschedule(ctx, tx, which, c.AvailableAt)
	}
}
