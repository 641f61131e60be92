package sqlstore

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Claim implements [outbox.Store].
func (s *Store) Claim(ctx context.Context, db outbox.DB, c outbox.ClaimQuery) (outbox.Batch, error) {
	if s.d.name == "mysql" {
		var b outbox.Batch
		_, err := s.changed(ctx, func() (n int, err error) {
			b, err = s.claimLocking(ctx, db, c)
			return b.Len(), err
		})
		return b, err
	}
	var all []row
	var r row
	scan := r.appendTo(&all, c.Limit, r.fields()...)
	claim := func(condition func(*query) *query, limit int) (int, error) {
		q := s.claiming(c, condition, limit)
		return 0, s.rows(ctx, db, "claiming due events", q, scan)
	}
	_, err := s.changed(ctx, func() (int, error) {
		all = nil
		return claim(func(q *query) *query { return q.claimable(s.pending()[0], c).after(c.After) }, c.Limit)
	})
	if s.d == sqlite && err == nil && len(c.EventIDs) == 0 && len(all) < c.Limit && c.Upto.IsZero() {
		_, err = s.changed(ctx, func() (int, error) {
			return claim(func(q *query) *query { return q.add(undated).leasable(c) }, c.Limit-len(all))
		})
	}
	if err != nil {
		return outbox.Batch{}, err
	}
	sortRows(all, byDue)
	b := s.batch(all, c.After)
	if c.Move && !b.Next.IsZero() && b.Next != c.After { // rows behind the place may be due before the moved time
		b.Next.AvailableAt = b.Next.AvailableAt.Add(-time.Microsecond)
	}
	return b, nil
}

// claiming is a claim of rows with a condition. The subselect chooses the rows once, as an array or
// a list, so that the rows are found by primary key, whatever the planner estimates for LIMIT. Unless
// the claim moves the rows, no indexed column changes, so PostgreSQL can update in place.
func (s *Store) claiming(c outbox.ClaimQuery, condition func(*query) *query, limit int) *query {
	q := s.query(1024)
	q.add("UPDATE ").table(s).leased(c.Lease, c.Move)
	switch {
	case s.d != postgres:
		q.add(" WHERE event_id IN (")
	case len(c.EventIDs) > 0:
		q.add(" FROM").planned().add(chosenArray)
	default:
		q.add(" FROM", chosenArray)
	}
	condition(q.ordered().add("SELECT event_id FROM ").table(s).add(" WHERE ")).add(dueOrder).limit(limit, skipLocked)
	if s.d == postgres {
		q.add(endChosen)
	} else {
		q.add(")")
	}
	return q.add(" RETURNING ").columns("")
}

// leased writes the columns that a claim sets. move moves available_at.
func (q *query) leased(lease string, move bool) *query {
	q.add(" SET attempts = ", attempted, ", locked_by = ").arg(lease).add(", locked_at = ").now()
	if move {
		q.add(", available_at = ", q.d.moved)
	}
	return q
}

// claimable writes the condition for rows that a claim takes.
func (q *query) claimable(pending string, c outbox.ClaimQuery) *query {
	now := dueUpto(c.Now, c.Upto)
	if len(c.EventIDs) == 0 {
		q.due(pending, now, c.CreatedBefore)
	} else {
		// Within a CASE no index serves the condition; see still.
		q.add("CASE WHEN ").due(pending, now, c.CreatedBefore).add(" THEN TRUE ELSE FALSE END AND ").ids("event_id", c.EventIDs)
	}
	return q.leasable(c).except(c.Except).upto(c.Upto)
}

// leasable writes the condition for rows that have no lease, or a lease that a claim replaces.
func (q *query) leasable(c outbox.ClaimQuery) *query {
	if !c.By.IsZero() {
		q.add(" AND ").now().add(" <= ").time(c.By)
	}
	if c.FreshOnly {
		q.fresh()
	}
	if c.ExpiredOnly {
		q.add(" AND CASE WHEN ").expired(c.LeaseDuration).add(" THEN TRUE ELSE FALSE END")
	}
	if c.FreshOnly || c.ExpiredOnly {
		return q
	}
	return q.free(c.LeaseDuration)
}

// attempt is the number that a claim adds to a row's attempts; attempted is the sum. A value that
// is not a valid number of attempts stays as it is: adding to the value would fail, or hide it.
const (
	attempt   = "CASE WHEN locked_at IS NULL OR attempts NOT BETWEEN 0 AND 2147483645 THEN 0 ELSE 1 END"
	attempted = "CASE WHEN locked_at IS NULL OR attempts NOT BETWEEN 0 AND 2147483645 THEN attempts ELSE attempts + 1 END"
)

// claimLocking is Claim in two statements, for MySQL. Read committed unlocks the
// rows that were examined and not taken.
func (s *Store) claimLocking(ctx context.Context, db outbox.DB, c outbox.ClaimQuery) (outbox.Batch, error) {
	const what = "claiming due events"
	var all []row
	var next outbox.Cursor
	err := s.inTx(ctx, db, what, readCommitted, func(tx *sql.Tx) (err error) {
		if len(c.EventIDs) > 0 {
			all, err = s.lockRows(ctx, tx, c, "status IN (0, 2)", c.After, c.Limit)
			next = s.cursorOf(all, c.After)
		} else {
			all, next, err = s.lockBoth(ctx, tx, c)
		}
		var moves, stays []string
		for i := range all {
			if c.Move && !all[i].availableAt.IsZero() { // MySQL refuses to add to a value that is no time
				moves = append(moves, all[i].id)
			} else {
				stays = append(stays, all[i].id)
			}
		}
		if err == nil {
			err = s.lease(ctx, tx, what, moves, c.Lease, true)
		}
		if err == nil {
			err = s.lease(ctx, tx, what, stays, c.Lease, false)
		}
		return err
	})
	if err != nil {
		return outbox.Batch{}, err
	}
	for i := range all {
		if all[i].attempts >= 0 {
			all[i].attempts += all[i].attempt
		}
		if c.Move && !all[i].availableAt.IsZero() {
			all[i].availableAt.Time = all[i].availableAt.Add(time.Microsecond)
		}
	}
	sortRows(all, byDue)
	// If no row of a read has a place, the next read begins at the same place and returns the rows
	// again.
	all = slices.CompactFunc(all, func(x, y row) bool { return x.id == y.id })
	b := s.batch(all, c.After)
	b.Next = next
	return b, nil
}

// lease gives a lease to rows that the transaction has locked.
func (s *Store) lease(ctx context.Context, tx *sql.Tx, what string, ids []string, lease string, move bool) error {
	slices.Sort(ids)
	for chunk := range slices.Chunk(slices.Compact(ids), markRows) {
		q := s.query(256+2*len(chunk)).add("UPDATE ").table(s).leased(lease, move).add(" WHERE ").ids("event_id", chunk)
		if _, err := s.exec(ctx, tx, what, q); err != nil {
			return err
		}
	}
	return nil
}

// lockBoth reads and locks free rows of both statuses. A read of a single status, in index order,
// examines only the rows that the claim takes, and leased rows.
func (s *Store) lockBoth(ctx context.Context, tx *sql.Tx, c outbox.ClaimQuery) (all []row, next outbox.Cursor, err error) {
	// Retries may take half of the limit, so that neither kind starves the other, and the room that
	// new events leave. With a limit of one row, half is zero or one, by chance.
	half := (c.Limit + rand.IntN(2)) / 2 //nolint:gosec // any chance will do
	retries, err := s.lockRows(ctx, tx, c, "status = 2", c.After, half)
	if err != nil {
		return nil, next, err
	}
	fresh, err := s.lockRows(ctx, tx, c, "status = 0", c.After, c.Limit-len(retries))
	if err != nil {
		return nil, next, err
	}
	next = s.cursorOf(fresh, c.After)
	if more := c.Limit - len(retries) - len(fresh); len(retries) == half {
		rest, err := s.lockRows(ctx, tx, c, "status = 2", s.cursorOf(retries, c.After), more)
		if err != nil {
			return nil, next, err
		}
		retries = append(retries, rest...)
		// Rows of one status may stand behind the last row of the other.
		if end := s.cursorOf(retries, c.After); more > 0 || byPlace(end, next) < 0 {
			next = end
		}
	}
	return append(fresh, retries...), next, nil
}

// lockRows reads and locks free rows of a status after a cursor.
func (s *Store) lockRows(ctx context.Context, tx *sql.Tx, c outbox.ClaimQuery, pending string, after outbox.Cursor, limit int) ([]row, error) {
	if limit == 0 {
		return nil, nil
	}
	if s.claimsWait.Load() && len(c.EventIDs) == 0 {
		return s.lockSeen(ctx, tx, c, pending, after, limit)
	}
	const what = "claiming due events"
	build := func(from string) *query {
		return s.query(512).add("SELECT ").columns("").add(", ", attempt, " FROM ", from, " WHERE ").
			claimable(pending, c).after(after).add(dueOrder).arg(limit).forUpdate(s)
	}
	var locked []row
	var r row
	scan := r.appendTo(&locked, limit, append(r.fields(), &r.attempt)...)
	if len(c.EventIDs) > 0 { // found by primary key
		err := s.rows(ctx, tx, what, build(s.name().Quoted(s.d.quote)), scan)
		return locked, err
	}
	err := s.rowsByIndex(ctx, tx, "due", what, build, scan)
	return locked, err
}

// lockSeen is lockRows for a server without SKIP LOCKED: it reads without a lock, so that the read
// waits for no other transaction, and then locks the rows by primary key. The lock waits for
// another claim that read the same rows, and leaves out the rows that the other claim took.
func (s *Store) lockSeen(ctx context.Context, tx *sql.Tx, c outbox.ClaimQuery, pending string, after outbox.Cursor, limit int) (locked []row, err error) {
	for {
		n := min(limit-len(locked), markRows)
		var seen []row
		var ids []string
		build := func(from string) *query {
			return s.query(512).add("SELECT event_id, ").timeColumn("created_at").add(", ").timeColumn("available_at").add(" FROM ", from, " WHERE ").
				claimable(pending, c).after(after).add(dueOrder).arg(n)
		}
		err := s.rowsByIndex(ctx, tx, "due", "claiming due events", build, func(rows *sql.Rows) error {
			var r row
			err := rows.Scan((*rowID)(&r), &r.createdAt, &r.availableAt)
			seen, ids = append(seen, r), append(ids, r.id)
			return err
		})
		if err != nil || len(seen) == 0 {
			return locked, err
		}
		named := c
		named.EventIDs = ids
		rows, err := s.lockRows(ctx, tx, named, pending, outbox.Cursor{}, n)
		locked = append(locked, rows...)
		next := s.cursorOf(seen, after)
		if err != nil || len(seen) < n || len(locked) == limit || next == after {
			return locked, err
		}
		after = next
	}
}

// Leased implements [outbox.Store]. Leased reads all rows that are not delivered, because lease
// names have no index: every claim would have to update such an index.
func (s *Store) Leased(ctx context.Context, db outbox.DB, names []string) ([]outbox.Lease, error) {
	var leases []outbox.Lease
	for chunk := range slices.Chunk(names, markRows) {
		q := s.query(256)
		q.add("SELECT event_id, locked_by FROM ").table(s).add(" WHERE status IN (0, 2) AND ").ids("locked_by", chunk)
		err := s.rows(ctx, db, "reading leased events", q, func(rows *sql.Rows) error {
			var l outbox.Lease
			if err := rows.Scan(&l.EventID, &l.Name); err != nil {
				return err
			}
			leases = append(leases, l)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return leases, nil
}
