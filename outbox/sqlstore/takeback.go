package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// TakeBack implements [outbox.Store]. On PostgreSQL and SQLite the statement returns the ids of the
// rows that it changed. MySQL, which has no such statement, locks the rows first. In the pool nothing
// keeps the locks, so the UPDATE repeats the condition. In the pool no statement waits for rows that
// another transaction has locked: they count as in hand. A statement that waits would lock further rows
// meanwhile, on MySQL also gaps into which other transactions insert.
func (s *Store) TakeBack(ctx context.Context, tx outbox.Execer, w outbox.Waiting, c outbox.Change) (n outbox.TakenBack, err error) {
	if s.err != nil {
		return n, s.err
	}
	if _, isPool := tx.(outbox.DB); isPool {
		_, err = s.changed(ctx, func() (_ int, err error) {
			n, err = s.takeBackIn(ctx, tx, w, c)
			return n.Changed, err
		})
		return n, err
	}
	return s.takeBackIn(ctx, tx, w, c)
}

func (s *Store) takeBackIn(ctx context.Context, tx outbox.Execer, w outbox.Waiting, c outbox.Change) (n outbox.TakenBack, err error) {
	if len(w.EventIDs) > 0 {
		size := markRows
		if c.Content != nil { // each row keeps headers of its own
			size = 1
		}
		for ids := range slices.Chunk(w.EventIDs, size) {
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
	var changed []string
	there := true
	if c.Content != nil {
		if there, err = s.keepListener(ctx, tx, w.EventIDs[0], &c); err != nil {
			return n, err
		}
	}
	if there {
		what := "changing events that wait"
		if len(w.EventIDs) > 0 {
			what = fmt.Sprintf("changing %d events that wait, from %s on", len(w.EventIDs), w.EventIDs[0])
		}
		postponed := func(q *query) *query { return q.waiting(s, w).inState(mayChange(c)) }
		if changed, err = s.changeWaiting(ctx, tx, what, c, postponed); err != nil {
			return n, err
		}
	}
	if n.Changed = len(changed); c.Uncommitted {
		return n, nil
	}
	left := len(w.EventIDs) - len(changed)
	if left == 0 && len(w.EventIDs) > 0 {
		return n, nil
	}
	isChanged := make(map[string]bool, len(changed))
	for _, id := range changed {
		isChanged[id] = true
	}
	// A single statement: between two statements an event in hand may die, and a DEAD event be replayed.
	texts := "CASE status WHEN 3 THEN 'D' ELSE 'H' END || event_id"
	if s.d == mysql {
		texts = "CONCAT(CASE status WHEN 3 THEN 'D' ELSE 'H' END, event_id)"
	}
	q := s.query(512).add("SELECT ", texts, " FROM ").table(s).add(" WHERE ").waiting(s, w).inState("status IN (0, 2, 3)")
	if _, isPool := tx.(outbox.DB); !isPool {
		q.locked()
	}
	others, err := s.readTexts(ctx, tx, "looking at events that are not changed", q)
	if err != nil {
		return n, err
	}
	for _, text := range others {
		switch {
		case isChanged[text[1:]]:
		case text[0] == 'D':
			n.Dead++
		default:
			n.InHand++
		}
	}
	n.Delivered = max(left-n.InHand-n.Dead, 0)
	return n, nil
}

// keepListener adds to the new content the headers that say for which of several listeners the row is,
// and for which event: no change of the row changes them. there is false if the transaction sees no such
// row.
func (s *Store) keepListener(ctx context.Context, tx outbox.Execer, eventID string, c *outbox.Change) (there bool, err error) {
	content := *c.Content
	content.Headers = make(map[string]string, len(c.Content.Headers)+2)
	maps.Copy(content.Headers, c.Content.Headers)
	for _, key := range []string{outbox.HeaderListener, outbox.HeaderEventID} {
		q := s.query(256).add("SELECT COALESCE(").header(key).add(", ' ') FROM ").table(s).add(" WHERE event_id = ").arg(eventID)
		if s.d.name == "mysql" { // reads the row as it is now, as the change does
			q.add(" FOR UPDATE")
		}
		values, err := s.readTexts(ctx, tx, "reading for which listener event "+eventID+" is", q)
		if err != nil || len(values) == 0 {
			return false, err
		}
		if values[0] == " " { // for all listeners: no name is blank. MariaDB may take '' for NULL
			return true, nil
		}
		content.Headers[key] = values[0]
	}
	c.Content = &content
	return true, nil
}

// waits is the condition for a pending row that a transaction may change: the row is postponed, and has
// no lease.
const waits = "locked_by IS NULL AND locked_at IS NULL AND available_at > created_at"

// mayChange is the condition for the state of the rows that a change changes.
func mayChange(c outbox.Change) string {
	if c.Uncommitted {
		return "status = 0"
	}
	return "status IN (0, 2) AND " + waits
}

// changeWaiting changes the rows that wait and that the condition chooses, and returns their ids.
func (s *Store) changeWaiting(ctx context.Context, tx outbox.Execer, what string, c outbox.Change, condition func(q *query) *query) (ids []string, err error) {
	postponed := func(q *query) *query { return condition(q.add(" WHERE ")) }
	_, isPool := tx.(outbox.DB)
	if s.d.name == "mysql" {
		q := postponed(s.query(512).add("SELECT event_id FROM ").table(s))
		switch {
		case !isPool:
			q.add(" FOR UPDATE")
		case !s.claimsWait.Load():
			q.add(skipLocked)
		}
		if ids, err = s.readTexts(ctx, tx, what, q); err != nil || len(ids) == 0 {
			return nil, err
		}
		for some := range slices.Chunk(ids, markRows) {
			q := s.query(512)
			if err := q.changed(s, c); err != nil {
				return nil, s.fail(what, err)
			}
			if _, err := s.exec(ctx, struct{ outbox.Execer }{tx}, what, q.add(" WHERE ").ids("event_id", some).add(" AND "+mayChange(c))); err != nil {
				return nil, err
			}
		}
		return ids, nil
	}
	q := s.query(512)
	if err := q.changed(s, c); err != nil {
		return nil, s.fail(what, err)
	}
	if isPool && s.d == postgres {
		q.add(" WHERE event_id = ANY(ARRAY(SELECT event_id FROM ").table(s)
		postponed(q).add(skipLocked, "))")
	} else {
		postponed(q)
	}
	return s.readTexts(ctx, tx, what, q.add(" RETURNING event_id"))
}

// inState writes the condition for the state of the rows of a choice. MySQL's index of [WithKeyIndex] begins
// with the status. PostgreSQL would take another index that begins with the status, and read all pending
// rows; see [query.still].
func (q *query) inState(condition string) *query {
	if q.d == mysql {
		return q.add(" AND ", condition)
	}
	return q.still(condition)
}

// changed writes the beginning of a DELETE, or of an UPDATE, of rows that wait.
func (q *query) changed(s *Store, c outbox.Change) error {
	if c.Cancel {
		q.add("DELETE FROM ").table(s)
		return nil
	}
	q.add("UPDATE ").table(s).add(" SET ")
	if c.Uncommitted {
		q.add("locked_by = NULL, locked_at = NULL, ")
	}
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
