package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// markRows is the most rows of one statement that spells each out; more are
// several statements in a transaction.
const markRows = 1000

// caseRows is that for statements whose cost grows with the square of the rows.
const caseRows = 64

// lockWait has MariaDB give up soon when somebody else holds one of the rows. The
// statement of a caller who gave up goes on waiting there, and holds the rows that
// it has come to. To MySQL, which cannot do this, it is a comment.
const lockWait = "/*M!100101 SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ "

const unlock = "locked_by = NULL, locked_at = NULL"

// Mark implements [outbox.Store].
func (s *Store) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, owner string, marks []outbox.Mark) (int, error) {
	if len(marks) == 0 {
		return 0, s.err
	}
	// In one order, so that two nodes that mark do not wait for each other.
	marks = slices.Clone(marks)
	slices.SortFunc(marks, func(x, y outbox.Mark) int { return strings.Compare(x.EventID, y.EventID) })
	limit := markRows
	if s.d != postgres && (kind == outbox.OutcomeRetry || kind == outbox.OutcomeDead || kind == outbox.OutcomeDeferred) {
		limit = caseRows
	}
	return changed(ctx, func() (int, error) {
		if len(marks) <= limit {
			return s.markChunk(ctx, db, kind, owner, marks)
		}
		return s.markChunks(ctx, db, kind, owner, marks, limit)
	})
}

// markChunks is more than one statement takes, in a transaction.
func (s *Store) markChunks(ctx context.Context, db outbox.DB, kind outbox.Outcome, owner string, marks []outbox.Mark, limit int) (int, error) {
	total := 0
	err := s.inTx(ctx, db, "marking events "+kind.String(), nil, func(tx *sql.Tx) error {
		for chunk := range slices.Chunk(marks, limit) {
			n, err := s.markChunk(ctx, tx, kind, owner, chunk)
			if err != nil {
				return err
			}
			total += n
		}
		return nil
	})
	return total, err
}

func (s *Store) markChunk(ctx context.Context, db outbox.Execer, kind outbox.Outcome, owner string, marks []outbox.Mark) (int, error) {
	what := fmt.Sprintf("marking %d events from %s on %s", len(marks), marks[0].EventID, kind)
	q := s.query(512 + 16*len(marks))
	open := "status IN (0, 2)"
	if s.d == mysql {
		q.add(lockWait)
	}
	if kind == outbox.OutcomeDelete {
		q.add("DELETE FROM ").table(s)
	} else {
		q.add("UPDATE ").table(s).add(" SET ")
	}
	ids := make([]string, len(marks))
	for i := range marks {
		ids[i] = marks[i].EventID
	}
	switch kind {
	case outbox.OutcomeDone:
		q.add("status = 1, done_at = ").now().add(", ", unlock)
		open = "status <> 1"
	case outbox.OutcomeDelete:
		open = "status <> 1"
	case outbox.OutcomeReleased:
		q.add(unlock)
	case outbox.OutcomeRetry:
		q.add("status = 2, ", unlock).attempts(marks).add(", available_at = ").perRow("at", marks).
			add(", last_error = ").perRow("err", marks)
	case outbox.OutcomeDead:
		q.add("status = 3, ", unlock, ", done_at = ").now().attempts(marks).add(", last_error = ").perRow("err", marks)
	case outbox.OutcomeDeferred:
		q.add("status = 0, ", unlock, ", available_at = ").perRow("at", marks)
	default:
		return 0, s.fail(what, fmt.Errorf("unknown kind %d", kind))
	}
	switch kind {
	case outbox.OutcomeRetry, outbox.OutcomeDead, outbox.OutcomeDeferred:
		q.whereRows(s, marks, ids)
	default:
		q.add(" WHERE ").ids("event_id", ids)
	}
	q.add(" AND ", open)
	if owner != "" {
		q.add(" AND locked_by = ").arg(owner)
	}
	return s.exec(ctx, db, what, q)
}

// attempts writes the attempts that the rows get. Where each row's value costs a
// CASE, those of a batch that are all the same, as they mostly are, cost one
// argument.
func (q *query) attempts(marks []outbox.Mark) *query {
	n := marks[0].Attempts
	same := !slices.ContainsFunc(marks, func(m outbox.Mark) bool { return m.Attempts != n })
	switch {
	case q.d == postgres || !same:
		return q.add(", attempts = COALESCE(NULLIF(").perRow("n", marks).add(", 0), attempts)")
	case n == 0:
		return q
	default:
		return q.add(", attempts = ").arg(n)
	}
}

// perRow writes a value that each row has its own of: a column of the joined
// arrays on PostgreSQL, a CASE elsewhere.
func (q *query) perRow(column string, marks []outbox.Mark) *query {
	if q.d == postgres {
		return q.add("marks.", column)
	}
	q.add("CASE event_id")
	for i := range padded(len(marks)) {
		m := &marks[min(i, len(marks)-1)]
		q.add(" WHEN ").arg(m.EventID).add(" THEN ")
		switch column {
		case "at":
			q.time(m.AvailableAt)
		case "err":
			q.arg(m.Error)
		default:
			q.arg(m.Attempts)
		}
	}
	return q.add(" END")
}

// whereRows writes which rows are meant.
func (q *query) whereRows(s *Store, marks []outbox.Mark, ids []string) {
	if q.d != postgres {
		q.add(" WHERE ").ids("event_id", ids)
		return
	}
	times, errs, counts := make([]string, len(marks)), make([]string, len(marks)), make([]string, len(marks))
	for i := range marks {
		times[i] = marks[i].AvailableAt.UTC().Format(q.d.layout)
		errs[i] = marks[i].Error
		counts[i] = strconv.Itoa(marks[i].Attempts)
	}
	q.add(" FROM unnest(CAST(").arg(textArray(ids)).add(" AS TEXT[]), CAST(").arg(textArray(times)).
		add(" AS TIMESTAMPTZ[]), CAST(").arg(textArray(errs)).add(" AS TEXT[]), CAST(").arg(textArray(counts)).
		add(" AS INT[])) AS marks (id, at, err, n) WHERE ").table(s).add(".event_id = marks.id")
}

// Renew implements [outbox.Store].
func (s *Store) Renew(ctx context.Context, db outbox.DB, owner string, eventIDs []string) (int, error) {
	total := 0
	for chunk := range slices.Chunk(slices.Sorted(slices.Values(eventIDs)), markRows) {
		q := s.query(256 + 2*len(chunk))
		q.add("UPDATE ").table(s).add(" SET locked_at = ").now().add(" WHERE ").ids("event_id", chunk).
			add(" AND status IN (0, 2) AND locked_by = ").arg(owner)
		n, err := changed(ctx, func() (int, error) {
			return s.exec(ctx, db, fmt.Sprintf("renewing the leases of %d events from %s", len(chunk), chunk[0]), q)
		})
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, s.err
}

// States implements [outbox.StateReader].
func (s *Store) States(ctx context.Context, db outbox.DB, eventIDs []string) (map[string]outbox.RowState, error) {
	states := make(map[string]outbox.RowState, len(eventIDs))
	for ids := range slices.Chunk(eventIDs, markRows) {
		q := s.query(256)
		q.add("SELECT event_id, status, locked_by FROM ").table(s).add(" WHERE ").ids("event_id", ids)
		err := s.rows(ctx, db, fmt.Sprintf("reading the states of %d events from %s", len(ids), ids[0]), q, func(rows *sql.Rows) error {
			var id string
			var state outbox.RowState
			var owner sql.NullString
			err := rows.Scan(&id, &state.Status, &owner)
			state.Owner = owner.String
			states[id] = state
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}
