package sqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

const dueOrder = " ORDER BY available_at, created_at, event_id LIMIT "

// chosenArray and endChosen enclose the subselect of PostgreSQL's claim and purge. The chosen rows
// are joined, not compared by ANY: a plan that was kept from the time when the table was small
// scans the table. With a join, the scan costs a comparison per row, and not a comparison per row
// and id.
const (
	chosenArray = " unnest(ARRAY("
	skipLocked  = " FOR UPDATE SKIP LOCKED"
	endChosen   = ")) AS chosen (id) WHERE event_id = chosen.id"
)

// forUpdate writes the lock of MySQL's claims and purges: on the rows that no other transaction has
// locked, or, without SKIP LOCKED, on all of the rows, as soon as no other transaction has locked
// them.
func (q *query) forUpdate(s *Store) *query {
	if s.claimsWait.Load() {
		return q.add(" FOR UPDATE")
	}
	return q.add(skipLocked)
}

// ordered begins a read that [query.limit] ends, and that returns rows in the order of an index.
// PostgreSQL gets two limits, so that it reads in index order whatever its statistics say. The
// planner does not see the number of the inner limit, and expects a tenth of the rows that it
// estimates for the table. If the planner saw the number, and had no statistics, it would estimate
// fewer rows than the number, read the whole backlog and sort it. The outer limit has the number.
// Without the outer limit, and with statistics of a table larger than effective_cache_size, a tenth
// of the rows is so many that PostgreSQL reads and sorts all rows, too.
func (q *query) ordered() *query {
	if q.d == postgres {
		q.add("SELECT * FROM (")
	}
	return q
}

// limit writes the number of rows, and the lock on them, or "".
func (q *query) limit(n int, lock string) *query {
	if q.d != postgres {
		return q.arg(n)
	}
	return q.hiddenLimit(n).add(lock, ") AS part LIMIT $", strconv.Itoa(len(q.args)))
}

// hiddenLimit writes the number of rows so that PostgreSQL's planner does not see it.
func (q *query) hiddenLimit(n int) *query {
	if q.d != postgres {
		return q.arg(n)
	}
	return q.add("(SELECT CAST(").arg(n).add(" AS BIGINT))")
}

// pending are the conditions under which an index returns due rows in order. MySQL has no partial
// index, so a read selects a single status; a list of statuses would sort the backlog.
func (s *Store) pending() []string {
	if s.d.name == "mysql" {
		return []string{"status = 2", "status = 0"}
	}
	return []string{"status IN (0, 2)"}
}

// due writes the condition for due rows.
func (q *query) due(pending string, now, createdBefore time.Time) *query {
	q.add(pending, " AND available_at <= ").time(now)
	if !createdBefore.IsZero() {
		q.add(" AND created_at <= ").time(createdBefore)
	}
	return q
}

// after writes the condition for rows after a cursor. A row comparison suffices on PostgreSQL and
// SQLite. MySQL uses no index for a row comparison, and starts at the cursor only when each
// alternative is written in full.
func (q *query) after(c outbox.Cursor) *query {
	if c.IsZero() {
		return q
	}
	return q.behind(c, compared{"available_at", func() { q.time(c.AvailableAt) }}, compared{"created_at", func() { q.time(c.CreatedAt) }})
}

// behind is [query.after] with the given comparisons of the times.
func (q *query) behind(c outbox.Cursor, available, created compared) *query {
	if q.d.name != "mysql" {
		return q.add(" AND (available_at, created_at, event_id) > (").call(available.value).add(", ").call(created.value).add(", ").arg(c.EventID).add(")")
	}
	return q.add(" AND (", available.left, " > ").call(available.value).
		add(" OR ", available.left, " = ").call(available.value).add(" AND ", created.left, " > ").call(created.value).
		add(" OR ", available.left, " = ").call(available.value).add(" AND ", created.left, " = ").call(created.value).add(" AND event_id > ").arg(c.EventID).add(")")
}

// upto writes the condition for rows up to a cursor. The rows are found by their due times, which
// dueUpto bounds.
func (q *query) upto(c outbox.Cursor) *query {
	if c.IsZero() {
		return q
	}
	if q.d.name != "mysql" {
		return q.add(" AND (available_at, created_at, event_id) <= (").time(c.AvailableAt).add(", ").time(c.CreatedAt).add(", ").arg(c.EventID).add(")")
	}
	return q.add(" AND (available_at < ").time(c.AvailableAt).
		add(" OR available_at = ").time(c.AvailableAt).add(" AND created_at < ").time(c.CreatedAt).
		add(" OR available_at = ").time(c.AvailableAt).add(" AND created_at = ").time(c.CreatedAt).add(" AND event_id <= ").arg(c.EventID).add(")")
}

// dueUpto is the latest time at which rows up to a cursor are due.
func dueUpto(now time.Time, c outbox.Cursor) time.Time {
	if !c.IsZero() && c.AvailableAt.Before(now) {
		return c.AvailableAt
	}
	return now
}

// noSuchIndex is MySQL's error for a forced index that is missing or invisible.
const noSuchIndex = 1176

// rowsByIndex runs a query that reads the rows behind a place in the order of an index. build gets
// the name of the table, on MySQL with the index: without the index MySQL may read all entries of a
// status that lie before the place. If the table does not have the index, the query runs without
// it.
func (s *Store) rowsByIndex(ctx context.Context, db queryer, index, what string, build func(from string) *query, scan func(*sql.Rows) error) error {
	from := s.name().Quoted(s.d.quote)
	if s.d.name != "mysql" {
		return s.rows(ctx, db, what, build(from), scan)
	}
	err := s.rows(ctx, db, what, build(from+s.byIndex(index)), scan)
	if sqlerr.HasNumber(err, noSuchIndex) {
		err = s.rows(ctx, db, what, build(from), scan)
	}
	return err
}

// Poll implements [outbox.Store].
func (s *Store) Poll(ctx context.Context, db outbox.DB, p outbox.PollQuery) (outbox.Batch, error) {
	var r row
	all, err := s.readDue(ctx, db, "polling due events", p, func(q *query) *query { return q.columns("") }, &r, r.fields()...)
	if err != nil {
		return outbox.Batch{}, err
	}
	return s.batch(all, p.After), nil
}

// leaseName is the name of a row's lease; NULL: the row has no lease.
const leaseName = "CASE WHEN locked_at IS NULL THEN NULL ELSE COALESCE(locked_by, '') END"

// readDue reads the rows of a poll through r: the columns that columns writes, which fields of r
// receive.
func (s *Store) readDue(ctx context.Context, db outbox.DB, what string, p outbox.PollQuery, columns func(*query) *query, r *row, fields ...any) ([]row, error) {
	var all []row
	scan := r.appendTo(&all, p.Limit, append(fields, &r.lease)...)
	reading := func(from string) *query {
		return columns(s.query(512).ordered().add("SELECT ")).add(", ", leaseName, " FROM ", from, " WHERE ")
	}
	for _, pending := range s.pending() {
		err := s.rowsByIndex(ctx, db, "due", what, func(from string) *query {
			return reading(from).read(pending, p).add(dueOrder).limit(p.Limit, "")
		}, scan)
		if err != nil {
			return nil, err
		}
	}
	switch {
	case s.d.name == "mysql":
		sortRows(all, byDue)
		all = all[:min(len(all), p.Limit)]
	case s.d == sqlite && len(all) < p.Limit && p.Upto.IsZero():
		q := reading(s.table.Quoted(s.d.quote)).add(undated).readable(p).add(dueOrder).arg(p.Limit - len(all))
		if err := s.rows(ctx, db, what, q, scan); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// read writes the condition for the rows of a poll.
func (q *query) read(pending string, p outbox.PollQuery) *query {
	return q.due(pending, dueUpto(p.Now, p.Upto), p.CreatedBefore).readable(p).except(p.Except).after(p.After).upto(p.Upto)
}

// readable writes the condition for rows whose lease does not keep a poll from reading them.
func (q *query) readable(p outbox.PollQuery) *query {
	if p.FreshOnly {
		return q.fresh()
	}
	return q.free(p.LeaseDuration)
}

// undated is the condition for rows of SQLite whose available_at is a text or bytes. Texts and
// bytes sort behind all numbers, so that such a row is never due: Poll reads such rows when fewer
// due rows than its limit are left.
const undated = "status IN (0, 2) AND available_at >= ''"

// NextDue implements [outbox.Store].
func (s *Store) NextDue(ctx context.Context, db outbox.DB, after time.Time) (time.Time, error) {
	var next time.Time
	for _, pending := range s.pending() {
		q := s.query(256)
		q.add("SELECT ").timeColumn("available_at").add(" FROM ").table(s).add(" WHERE ", pending, " AND available_at > ").
			time(after).add(dueOrder).add("1")
		err := s.rows(ctx, db, "asking for the next due event", q, func(rows *sql.Rows) error {
			var t timestamp
			if err := rows.Scan(&t); err != nil || t.IsZero() { // such as infinity: the row is never due
				return err
			}
			if next.IsZero() || t.Before(next) {
				next = t.Time
			}
			return nil
		})
		if err != nil {
			return time.Time{}, err
		}
	}
	return next, nil
}

// planned writes a table of one row that makes PostgreSQL plan a statement each time. A prepared
// statement keeps a generic plan, for any parameters, if this plan costs no more than the plans for
// given parameters did. A generic plan that was made when the table was small reads the whole
// table, here once for each key or id. Without the parameters, the estimate for the table of one
// row is the cost of counting a million rows, so that a generic plan is never cheaper. The count is
// made once, so the estimate is added to the estimate of the statement and does not multiply it:
// under plan_cache_mode force_generic_plan the sum stays below jit_above_cost.
func (q *query) planned() *query {
	return q.add(" (SELECT COUNT(*) FROM generate_series(1, ").arg(1).add(") AS one CROSS JOIN generate_series(1, ").arg(1).add(") AS single) AS planned CROSS JOIN")
}

// expired writes the condition for a lease that expired: locked_at is farther from the database's
// clock than a lease lasts, on either side. Values that are no time, such as infinity or a text of
// SQLite, compare as before or after all times: without the second side such a value would keep the
// row leased for ever.
func (q *query) expired(leaseDuration time.Duration) *query {
	return q.add("locked_at NOT BETWEEN ").fromNow(-leaseDuration).add(" AND ").fromNow(leaseDuration)
}

// free writes the condition for rows that are not leased, or whose lease expired. The CASE, here and
// in fresh and leasable, hides the number of such rows from PostgreSQL's planner: statistics taken
// while all rows were leased would make PostgreSQL read and sort the backlog.
func (q *query) free(leaseDuration time.Duration) *query {
	return q.add(" AND CASE WHEN locked_at IS NULL OR ").expired(leaseDuration).add(" THEN TRUE ELSE FALSE END")
}

// fresh writes the condition for rows that are not leased.
func (q *query) fresh() *query {
	return q.add(" AND CASE WHEN locked_at IS NULL THEN TRUE ELSE FALSE END")
}

// except writes the condition that leaves out events of some kinds. The CASE keeps the planner's
// estimate as it is without the condition; see free.
func (q *query) except(kinds []outbox.EventKind) *query {
	if len(kinds) == 0 {
		return q
	}
	return q.add(" AND CASE").notOf(kinds).add(" ELSE TRUE END")
}

// only writes the condition for events of some kinds; no kinds: all events.
func (q *query) only(kinds []outbox.EventKind) *query {
	if len(kinds) == 0 {
		return q
	}
	return q.add(" AND CASE").ofKinds(kinds, "TRUE").add(" ELSE FALSE END")
}

// notOf writes the branches of a CASE that are false for events of some kinds.
func (q *query) notOf(kinds []outbox.EventKind) *query { return q.ofKinds(kinds, "FALSE") }

// ofKinds writes the branches of a CASE for events of some kinds.
func (q *query) ofKinds(kinds []outbox.EventKind, then string) *query {
	for _, kind := range kinds {
		q.add(" WHEN event_type = ").arg(string(kind.EventType)).add(" AND ")
		if kind.AggregateType == outbox.Global { // decoding reads NULL as Global
			q.add("COALESCE(aggregate_type, '", string(outbox.Global), "')")
		} else {
			q.add("aggregate_type")
		}
		q.add(" = ").arg(string(kind.AggregateType)).add(" THEN ", then)
	}
	return q
}
