package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

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

// Mark implements [outbox.Store]. A batch that is too large for a single statement, or whose marks
// are not all of a kind, with a lease, with DueAt or with neither, takes several statements in a
// transaction.
func (s *Store) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if len(marks) == 0 {
		return nil, s.err
	}
	kinds := byFence(marks)
	if s.d == sqlite && outcome == outbox.OutcomeDead {
		if err := s.rekey(ctx, db, marks); err != nil {
			return nil, err
		}
	}
	var n [fences]int
	all, err := s.changed(ctx, func() (all int, err error) {
		n, all, err = s.markAll(ctx, db, outcome, s.markChunks(outcome, kinds))
		return all, err
	})
	if err != nil || all >= len(marks) {
		return nil, err
	}
	return s.leftAlone(ctx, db, outcome, kinds, n)
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

// fence is what a mark demands of its row.
type fence int

const (
	fenceLease fence = iota // the lease of the mark
	fenceDue                // no lease, and the DueAt of the mark
	fenceNone

	fences = int(fenceNone) + 1 // the number of kinds
)

func fenceOf(m *outbox.Mark) fence {
	switch {
	case m.Lease != "":
		return fenceLease
	case !m.DueAt.IsZero():
		return fenceDue
	default:
		return fenceNone
	}
}

// passes reports whether a row is as the mark demands.
func passes(row outbox.RowState, m *outbox.Mark) bool {
	switch fenceOf(m) {
	case fenceLease:
		return row.Lease == m.Lease
	case fenceDue:
		return row.Lease == "" && row.DueAt.Equal(m.DueAt)
	default:
		return true
	}
}

// byFence divides marks by their kinds of fences, and orders each kind by id, so that two nodes that
// mark do not wait for each other.
func byFence(marks []outbox.Mark) (kinds [fences][]outbox.Mark) {
	marks = slices.Clone(marks)
	sortRows(marks, func(x, y outbox.Mark) int {
		return cmp.Or(cmp.Compare(fenceOf(&x), fenceOf(&y)), strings.Compare(x.EventID, y.EventID))
	})
	for i := range marks {
		kind, n := fenceOf(&marks[i]), i+1
		kinds[kind] = marks[n-1-len(kinds[kind]) : n]
	}
	return kinds
}

// markChunks returns the marks of each statement, which are of the same kind.
func (s *Store) markChunks(outcome outbox.Outcome, kinds [fences][]outbox.Mark) (chunks [][]outbox.Mark) {
	limit := markRows
	if s.d != postgres && hasValues(outcome) {
		limit = caseRows
	}
	for _, marks := range kinds {
		chunks = slices.AppendSeq(chunks, slices.Chunk(marks, limit))
	}
	return chunks
}

// hasValues reports whether an outcome gives each row its own values.
func hasValues(outcome outbox.Outcome) bool {
	return outcome == outbox.OutcomeRetry || outcome == outbox.OutcomeDead || outcome == outbox.OutcomeDeferred
}

// markAll marks rows and returns how many rows changed, of each kind of marks and in all.
func (s *Store) markAll(ctx context.Context, db outbox.DB, outcome outbox.Outcome, chunks [][]outbox.Mark) (n [fences]int, all int, err error) {
	if len(chunks) == 1 {
		return s.markEach(ctx, db, outcome, chunks)
	}
	err = s.inTx(ctx, db, "marking events "+outcome.String(), nil, func(tx *sql.Tx) (err error) {
		n, all, err = s.markEach(ctx, tx, outcome, chunks)
		return err
	})
	return n, all, err
}

// markEach marks rows and returns how many rows changed, of each kind of marks and in all.
func (s *Store) markEach(ctx context.Context, db outbox.Execer, outcome outbox.Outcome, chunks [][]outbox.Mark) (n [fences]int, all int, err error) {
	for _, chunk := range chunks {
		changed, err := s.markChunk(ctx, db, outcome, chunk)
		if err != nil {
			return n, 0, err
		}
		all += changed
		n[fenceOf(&chunk[0])] += changed
	}
	return n, all, nil
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
	q.add(" WHERE event_id = ").arg(mark.EventID).still("status IN (0, 2)").fenced(&mark)
	n, err := s.exec(ctx, struct{ outbox.Execer }{tx}, what, q) // the caller's transaction, even if tx is a *sql.Conn
	return n == 1, err
}

// Renew implements [outbox.Store].
func (s *Store) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	marks := make([]outbox.Mark, len(leases))
	for i, l := range leases {
		marks[i] = outbox.Mark{EventID: l.EventID, Lease: l.Name}
	}
	kinds := byFence(marks)
	for chunk := range slices.Chunk(slices.Concat(kinds[:]...), markRows) {
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

// leftAlone finds the rows that a mark did not change: of the marks with a fence, all such rows; of
// the other marks, the rows that do not exist and the rows that the statement should have changed.
func (s *Store) leftAlone(ctx context.Context, db outbox.DB, outcome outbox.Outcome, kinds [fences][]outbox.Mark, changed [fences]int) (map[string]outbox.RowState, error) {
	var left map[string]outbox.RowState
	for kind, marks := range kinds {
		rows, err := s.unchanged(ctx, db, outcome, marks, len(marks)-changed[kind])
		if err != nil {
			return nil, err
		}
		for id, row := range rows {
			if fence(kind) == fenceNone && row.Exists && row.Status.Terminal() {
				continue
			}
			if left == nil {
				left = map[string]outbox.RowState{}
			}
			left[id] = row
		}
	}
	return left, nil
}

// unchanged finds the n rows that a mark did not change; the statement reports only their number.
// Rows that do not show the outcome come first. Other rows count if something else gave them the
// same outcome, such as an earlier try of this mark. On MySQL a row does not count if it passes the
// fence and shows the outcome: MySQL does not report a change of a row that had the values before.
func (s *Store) unchanged(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark, n int) (map[string]outbox.RowState, error) {
	if n <= 0 {
		return nil, nil
	}
	states, err := s.states(ctx, db, idsOf(marks))
	if err != nil {
		return nil, err
	}
	marks = slices.Clone(marks)
	if s.d.name == "mysql" {
		marks = slices.DeleteFunc(marks, func(m outbox.Mark) bool {
			row := states[m.EventID]
			return row.Exists && !row.Status.Terminal() && passes(row, &m) && shows(row, outcome, &m) > 0
		})
	}
	sort.SliceStable(marks, func(i, j int) bool {
		x, y := &marks[i], &marks[j]
		return shows(states[x.EventID], outcome, x) < shows(states[y.EventID], outcome, y)
	})
	left := make(map[string]outbox.RowState, n)
	for i := range marks[:min(n, len(marks))] {
		left[marks[i].EventID] = states[marks[i].EventID]
	}
	return left, nil
}

// shows is 1 if the row is in the state that the mark sets, else 0.
func shows(row outbox.RowState, outcome outbox.Outcome, m *outbox.Mark) int {
	status, leasable, due := outbox.StatusNew, true, m.AvailableAt
	switch outcome {
	case outbox.OutcomeDone:
		status, leasable, due = outbox.StatusDone, false, time.Time{}
	case outbox.OutcomeDead:
		status, leasable, due = outbox.StatusDead, false, time.Time{}
	case outbox.OutcomeRetry:
		status = outbox.StatusRetry
	case outbox.OutcomeReleased:
		due = m.DueAt
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
	if row.Exists && row.Status == status && (!leasable || row.Lease == "") && (due.IsZero() || row.DueAt.Equal(storedTime(due))) {
		return 1
	}
	return 0
}

// states reads the states of rows.
func (s *Store) states(ctx context.Context, db outbox.DB, eventIDs []string) (map[string]outbox.RowState, error) {
	states := make(map[string]outbox.RowState, len(eventIDs))
	for ids := range slices.Chunk(eventIDs, markRows) {
		q := s.query(256)
		q.add("SELECT event_id, status, locked_by, ").timeColumn("available_at").add(" FROM ").table(s).add(" WHERE ").ids("event_id", ids)
		err := s.rows(ctx, db, fmt.Sprintf("reading the states of %d events from %s", len(ids), ids[0]), q, func(rows *sql.Rows) error {
			var id string
			var lease sql.NullString
			var status count
			var due timestamp
			err := rows.Scan(&id, &status, &lease, &due)
			states[id] = outbox.RowState{Exists: true, Status: outbox.Status(status), Lease: lease.String, DueAt: due.Time}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}
