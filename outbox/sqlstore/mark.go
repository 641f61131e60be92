package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// markRows is the most rows that a statement lists; more rows take several statements in a
// transaction.
const markRows = 1000

// caseRows is the same limit for statements whose cost grows with the square of the rows.
const caseRows = 64

// lockWait makes MariaDB give up soon when a row is locked. Otherwise, after the caller gave up,
// the statement would go on waiting and hold the rows that it has locked. MySQL has no such
// setting, reads the text as a comment, and has lockNow.
const lockWait = "/*M!100101 SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ "

// lockNow joins the table with the marked rows, which MySQL locks before it changes any row. When
// another transaction has locked a marked row, the statement fails at once, and [Store.changed]
// repeats the statement. LIMIT makes MySQL read the marked rows first, and FORCE INDEX keeps MySQL
// from locking other rows.
func (q *query) lockNow(s *Store, marked func(*query)) *query {
	const byID = " FORCE INDEX (PRIMARY)"
	q.add("(SELECT event_id AS id FROM ").table(s).add(byID)
	marked(q)
	return q.add(" LIMIT ", strconv.Itoa(markRows), " FOR UPDATE NOWAIT) AS marked STRAIGHT_JOIN ").table(s).add(byID, " ON event_id = id")
}

const unlock = "locked_by = NULL, locked_at = NULL"

// Mark implements [outbox.Store]. A batch that is too large for a single statement, or in which
// only some marks name a lease, takes several statements in a transaction.
func (s *Store) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if len(marks) == 0 {
		return nil, s.err
	}
	chunks, fenced, free := s.markChunks(outcome, marks)
	if s.d == sqlite && outcome == outbox.OutcomeDead {
		if err := s.rekey(ctx, db, marks); err != nil {
			return nil, err
		}
	}
	underLease := 0
	all, err := s.changed(ctx, func() (all int, err error) {
		underLease, all, err = s.markAll(ctx, db, outcome, chunks)
		return all, err
	})
	if err != nil || all >= len(marks) {
		return nil, err
	}
	return s.leftAlone(ctx, db, outcome, fenced, len(fenced)-underLease, free, len(free)-(all-underLease))
}

// rekey gives rows of SQLite a text as their id when they are about to be DEAD, if another program
// wrote the id as bytes or left it NULL: no statement finds a row by such an id. Marks name these
// rows as [Store.idOf] does.
func (s *Store) rekey(ctx context.Context, db outbox.DB, marks []outbox.Mark) error {
	for i := range marks {
		m := &marks[i]
		id, err := hex.DecodeString(m.EventID)
		if err != nil {
			continue
		}
		q := s.query(256).add("UPDATE OR IGNORE ").table(s).add(" SET event_id = ")
		if m.EventID == "" { // the rows get random ids, which no mark names, so this statement makes them DEAD
			q.add("lower(hex(randomblob(16))), status = 3, ", unlock, ", done_at = ").now().add(", last_error = ").arg(m.Error).
				add(" WHERE event_id IS NULL AND status IN (0, 2)")
		} else {
			q.arg(m.EventID).add(" WHERE event_id = ").arg(id)
		}
		_, err = s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "marking events whose ids are no texts", q) })
		if err != nil {
			return err
		}
	}
	return nil
}

// markChunks returns the marks of each statement, the marks that name a lease, and the other marks.
func (s *Store) markChunks(outcome outbox.Outcome, marks []outbox.Mark) (chunks [][]outbox.Mark, fenced, free []outbox.Mark) {
	marks = slices.Clone(marks)
	sortRows(marks, leasedFirst)
	first := slices.IndexFunc(marks, func(m outbox.Mark) bool { return m.Lease == "" })
	if first < 0 {
		first = len(marks)
	}
	fenced, free = marks[:first], marks[first:]
	limit := markRows
	if s.d != postgres && hasValues(outcome) {
		limit = caseRows
	}
	return slices.AppendSeq(slices.Collect(slices.Chunk(fenced, limit)), slices.Chunk(free, limit)), fenced, free
}

// leasedFirst orders marks: marks with a lease first, then by id, so that two nodes that mark do
// not wait for each other.
func leasedFirst(x, y outbox.Mark) int {
	switch {
	case (x.Lease == "") == (y.Lease == ""):
		return strings.Compare(x.EventID, y.EventID)
	case x.Lease == "":
		return 1
	default:
		return -1
	}
}

// hasValues reports whether an outcome gives each row its own values.
func hasValues(outcome outbox.Outcome) bool {
	return outcome == outbox.OutcomeRetry || outcome == outbox.OutcomeDead || outcome == outbox.OutcomeDeferred
}

// markAll marks rows and returns how many rows changed, under a lease and in all.
func (s *Store) markAll(ctx context.Context, db outbox.DB, outcome outbox.Outcome, chunks [][]outbox.Mark) (fenced, all int, err error) {
	if len(chunks) == 1 {
		return s.markEach(ctx, db, outcome, chunks)
	}
	err = s.inTx(ctx, db, "marking events "+outcome.String(), nil, func(tx *sql.Tx) (err error) {
		fenced, all, err = s.markEach(ctx, tx, outcome, chunks)
		return err
	})
	return fenced, all, err
}

// markEach marks rows and returns how many rows changed, under a lease and in all.
func (s *Store) markEach(ctx context.Context, db outbox.Execer, outcome outbox.Outcome, chunks [][]outbox.Mark) (fenced, all int, err error) {
	for _, chunk := range chunks {
		n, err := s.markChunk(ctx, db, outcome, chunk)
		if err != nil {
			return 0, 0, err
		}
		all += n
		if chunk[0].Lease != "" {
			fenced += n
		}
	}
	return fenced, all, nil
}

func (s *Store) markChunk(ctx context.Context, db outbox.Execer, outcome outbox.Outcome, marks []outbox.Mark) (int, error) {
	what := fmt.Sprintf("marking %d events from %s on %s", len(marks), marks[0].EventID, outcome)
	open := "status IN (0, 2)"
	var set func(q *query)
	switch outcome {
	case outbox.OutcomeDone:
		set = func(q *query) { q.add("status = 1, done_at = ").now().add(", ", unlock) }
		open = "status <> 1"
	case outbox.OutcomeDelete:
		open = "status <> 1"
	case outbox.OutcomeReleased:
		set = func(q *query) { q.add(unlock) }
	case outbox.OutcomeRetry:
		set = func(q *query) {
			q.add("status = 2, ", unlock).attempts(marks).add(", available_at = ").perRow("at", marks).
				add(", last_error = ").perRow("err", marks)
		}
	case outbox.OutcomeDead:
		set = func(q *query) {
			q.add("status = 3, ", unlock, ", done_at = ").now().attempts(marks).add(", last_error = ").perRow("err", marks)
		}
	case outbox.OutcomeDeferred:
		set = func(q *query) {
			q.add("status = 0, ", unlock, ", available_at = ").perRow("at", marks)
			if slices.ContainsFunc(marks, func(m outbox.Mark) bool { return m.Error != "" }) {
				q.add(", last_error = COALESCE(").perRow("err", marks).add(", last_error)")
			}
		}
	default:
		return 0, s.fail(what, fmt.Errorf("unknown outcome %d", outcome))
	}
	q := s.query(512 + 24*len(marks))
	q.change(s, set, func(q *query) { q.marked(outcome, marks).still(open) })
	return s.exec(ctx, db, what, q)
}

// change writes an UPDATE of marked rows, or their DELETE when there is nothing to set.
func (q *query) change(s *Store, set, marked func(*query)) {
	now := s.locksNow.Load()
	if s.d == mysql && !now {
		q.add(lockWait)
	}
	switch {
	case now && set == nil:
		q.add("DELETE ").table(s).add(" FROM ").lockNow(s, marked)
	case now:
		q.add("UPDATE ").lockNow(s, marked).add(" SET ")
		set(q)
	case set == nil:
		q.add("DELETE FROM ").table(s)
		marked(q)
	default:
		q.add("UPDATE ").table(s).add(" SET ")
		set(q)
		marked(q)
	}
}

// Complete implements [outbox.Store].
func (s *Store) Complete(ctx context.Context, tx outbox.Execer, outcome outbox.Outcome, mark outbox.Mark) (bool, error) {
	what := fmt.Sprintf("completing event %s", mark.EventID)
	q := s.query(256)
	switch outcome {
	case outbox.OutcomeDone:
		q.add("UPDATE ").table(s).add(" SET status = 1, done_at = ").now().add(", ", unlock)
	case outbox.OutcomeDelete:
		q.add("DELETE FROM ").table(s)
	default:
		return false, s.fail(what, fmt.Errorf("the outcome is %s; only done and delete complete an event", outcome))
	}
	q.add(" WHERE event_id = ").arg(mark.EventID).still("status IN (0, 2)")
	if mark.Lease != "" {
		q.add(" AND locked_by = ").arg(mark.Lease)
	}
	n, err := s.exec(ctx, struct{ outbox.Execer }{tx}, what, q) // the caller's transaction, even if tx is a *sql.Conn
	return n == 1, err
}

// Renew implements [outbox.Store].
func (s *Store) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	marks := make([]outbox.Mark, len(leases))
	for i, l := range leases {
		marks[i] = outbox.Mark{EventID: l.EventID, Lease: l.Name}
	}
	sortRows(marks, leasedFirst)
	for chunk := range slices.Chunk(marks, markRows) {
		q := s.query(256 + 8*len(chunk))
		q.change(s, func(q *query) { q.add("locked_at = ").now() },
			func(q *query) { q.marked(outbox.OutcomeReleased, chunk).still("status IN (0, 2)") })
		_, err := s.changed(ctx, func() (int, error) {
			return s.exec(ctx, db, fmt.Sprintf("renewing the leases of %d events from %s", len(chunk), chunk[0].EventID), q)
		})
		if err != nil {
			return err
		}
	}
	return s.err
}

// leftAlone finds the rows that a mark did not change: of the marks under a lease, all such rows;
// of the other marks, the rows that do not exist and the rows that the statement should have
// changed. MySQL does not count a row that already has the values of the mark, so on MySQL a row
// that shows the outcome is not left alone.
func (s *Store) leftAlone(ctx context.Context, db outbox.DB, outcome outbox.Outcome, fenced []outbox.Mark, fewer int, free []outbox.Mark, missing int) (map[string]outbox.RowState, error) {
	left, err := s.unchanged(ctx, db, outcome, fenced, fewer)
	if err != nil {
		return nil, err
	}
	others, err := s.unchanged(ctx, db, outcome, free, missing)
	for id, state := range others {
		skipped := state.Status == outbox.StatusNew || state.Status == outbox.StatusRetry
		if !state.Exists || skipped && (s.d.name != "mysql" || shows(state, outcome) == 0) {
			left[id] = state
		}
	}
	if len(left) == 0 {
		return nil, err
	}
	return left, err
}

// unchanged finds the n rows that a mark did not change; the statement reports
// only their number. Rows that do not show the outcome come first. Other rows
// count if something else gave them the same outcome, such as an earlier try of
// this mark.
func (s *Store) unchanged(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark, n int) (map[string]outbox.RowState, error) {
	if n <= 0 {
		return map[string]outbox.RowState{}, nil
	}
	ids := make([]string, len(marks))
	for i := range marks {
		ids[i] = marks[i].EventID
	}
	states, err := s.states(ctx, db, ids)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(ids, func(x, y string) int {
		return cmp.Compare(shows(states[x], outcome), shows(states[y], outcome))
	})
	left := make(map[string]outbox.RowState, n)
	for _, id := range ids[:n] {
		left[id] = states[id]
	}
	return left, nil
}

// shows is 1 if the row is in the state that the outcome sets, else 0.
func shows(row outbox.RowState, outcome outbox.Outcome) int {
	status, leasable := outbox.StatusNew, true
	switch outcome {
	case outbox.OutcomeDone:
		status, leasable = outbox.StatusDone, false
	case outbox.OutcomeDead:
		status, leasable = outbox.StatusDead, false
	case outbox.OutcomeRetry:
		status = outbox.StatusRetry
	case outbox.OutcomeReleased:
		if row.Status == outbox.StatusRetry {
			status = outbox.StatusRetry
		}
	case outbox.OutcomeDeferred, outbox.OutcomeSplit:
	case outbox.OutcomeDelete:
		if !row.Exists {
			return 1
		}
		return 0
	}
	if row.Exists && row.Status == status && (!leasable || row.Lease == "") {
		return 1
	}
	return 0
}

// states reads the states of rows.
func (s *Store) states(ctx context.Context, db outbox.DB, eventIDs []string) (map[string]outbox.RowState, error) {
	states := make(map[string]outbox.RowState, len(eventIDs))
	for ids := range slices.Chunk(eventIDs, markRows) {
		q := s.query(256)
		q.add("SELECT event_id, status, locked_by FROM ").table(s).add(" WHERE ").ids("event_id", ids)
		err := s.rows(ctx, db, fmt.Sprintf("reading the states of %d events from %s", len(ids), ids[0]), q, func(rows *sql.Rows) error {
			var id string
			var lease sql.NullString
			var status count
			err := rows.Scan(&id, &status, &lease)
			states[id] = outbox.RowState{Exists: true, Status: outbox.Status(status), Lease: lease.String}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}
