package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// TakeBack implements [outbox.Store]. On PostgreSQL and SQLite the statement returns the ids of the
// rows that it changed. MySQL, which has no such statement, locks the rows first.
func (s *Store) TakeBack(ctx context.Context, tx outbox.Execer, w outbox.Waiting, c outbox.Change) (n outbox.TakenBack, err error) {
	if s.err != nil {
		return n, s.err
	}
	if len(w.EventIDs) > 0 {
		for ids := range slices.Chunk(w.EventIDs, markRows) {
			some, err := s.takeBack(ctx, tx, outbox.Waiting{EventIDs: ids}, c)
			if err != nil {
				return outbox.TakenBack{}, err
			}
			n.Changed, n.InHand, n.Dead, n.Delivered = n.Changed+some.Changed, n.InHand+some.InHand, n.Dead+some.Dead, n.Delivered+some.Delivered
		}
		return n, nil
	}
	if !s.hasOption("key") && !s.hasOption("search") {
		return n, &outbox.FieldError{Field: "Waiting.AggregateID", Problem: "needs an index: give the store the option sqlstore.WithKeyIndex() or sqlstore.WithSearchIndex(), whose index CreateSchema then adds; or run: " +
			strings.Join(s.indexDDL("search"), "; ")}
	}
	return s.takeBack(ctx, tx, w, c)
}

func (s *Store) takeBack(ctx context.Context, tx outbox.Execer, w outbox.Waiting, c outbox.Change) (n outbox.TakenBack, err error) {
	what := "changing events that wait"
	if len(w.EventIDs) > 0 {
		what = fmt.Sprintf("changing %d events that wait, from %s on", len(w.EventIDs), w.EventIDs[0])
	}
	changed, err := s.changeWaiting(ctx, tx, what, c, func(q *query) *query { return q.waiting(s, w).add(" AND status IN (0, 2)") })
	if err != nil {
		return n, err
	}
	n.Changed = len(changed)
	left := len(w.EventIDs) - len(changed)
	if left == 0 && len(w.EventIDs) > 0 {
		return n, nil
	}
	others := func(condition string) (int, error) {
		q := s.query(512).add("SELECT event_id FROM ").table(s).add(" WHERE ").waiting(s, w).add(" AND ", condition).locked()
		ids, err := s.readTexts(ctx, tx, "looking at events that are not changed", q)
		return len(slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(changed, id) })), err
	}
	if n.InHand, err = others("status IN (0, 2)"); err != nil {
		return n, err
	}
	if n.Dead, err = others("status = 3"); err != nil {
		return n, err
	}
	n.Delivered = max(left-n.InHand-n.Dead, 0)
	return n, nil
}

// waits is the condition for a pending row that a transaction may change: the row is postponed, and has
// no lease.
const waits = "locked_by IS NULL AND locked_at IS NULL AND available_at > created_at"

// changeWaiting changes the rows that wait, of the pending rows that pending chooses, and returns their
// ids.
func (s *Store) changeWaiting(ctx context.Context, tx outbox.Execer, what string, c outbox.Change, pending func(q *query) *query) (ids []string, err error) {
	postponed := func(q *query) *query { return pending(q.add(" WHERE ")).add(" AND ", waits) }
	if s.d.name == "mysql" {
		q := postponed(s.query(512).add("SELECT event_id FROM ").table(s))
		if ids, err = s.readTexts(ctx, tx, what, q.add(" FOR UPDATE")); err != nil || len(ids) == 0 {
			return nil, err
		}
		for some := range slices.Chunk(ids, markRows) {
			q := s.query(512)
			if err := q.changed(s, c); err != nil {
				return nil, s.fail(what, err)
			}
			if _, err := s.exec(ctx, struct{ outbox.Execer }{tx}, what, q.add(" WHERE ").ids("event_id", some)); err != nil {
				return nil, err
			}
		}
		return ids, nil
	}
	q := s.query(512)
	if err := q.changed(s, c); err != nil {
		return nil, s.fail(what, err)
	}
	return s.readTexts(ctx, tx, what, postponed(q).add(" RETURNING event_id"))
}

// changed writes the beginning of a DELETE, or of an UPDATE, of rows that wait.
func (q *query) changed(s *Store, c outbox.Change) error {
	if c.Cancel {
		q.add("DELETE FROM ").table(s)
		return nil
	}
	q.add("UPDATE ").table(s).add(" SET ")
	if !c.AvailableAt.IsZero() {
		soonest := strings.ReplaceAll(s.d.moved, "available_at", "created_at")
		q.add("available_at = CASE WHEN created_at < ").time(c.AvailableAt).add(" THEN ").time(c.AvailableAt).add(" ELSE ", soonest, " END")
	}
	if c.Content == nil {
		return nil
	}
	headers, err := s.encodeHeaders(c.Content)
	if err != nil {
		return err
	}
	if !c.AvailableAt.IsZero() {
		q.add(", ")
	}
	q.add("payload = ").arg(c.Content.Payload.String()).add(", headers = ").arg(nullable(headers))
	return nil
}

// waiting writes the condition for the events of a choice, whatever their state. The conditions of the
// index of [WithKeyIndex] are among them.
func (q *query) waiting(s *Store, w outbox.Waiting) *query {
	if len(w.EventIDs) > 0 {
		return q.ids("event_id", w.EventIDs)
	}
	q.add("event_type = ").arg(string(w.Kind.EventType)).add(" AND aggregate_type = ").arg(string(w.Kind.AggregateType)).
		add(" AND aggregate_id = ").arg(w.AggregateID)
	if s.d != mysql && s.hasOption("key") {
		q.add(" AND status <> 1 AND COALESCE(aggregate_id, event_id) = ").arg(w.AggregateID)
	}
	if !w.DueAfter.IsZero() {
		q.add(" AND available_at >= ").time(w.DueAfter)
	}
	if !w.DueBefore.IsZero() {
		q.add(" AND available_at < ").time(w.DueBefore)
	}
	return q
}
