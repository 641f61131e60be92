package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Purge implements [outbox.Store]. Rows that another purger has locked are skipped.
func (s *Store) Purge(ctx context.Context, db outbox.DB, p outbox.PurgeQuery) (outbox.Purged, error) {
	what := fmt.Sprintf("purging up to %d rows", p.Limit)
	var purged outbox.Purged
	if s.d.name == "mysql" {
		_, err := s.changed(ctx, func() (n int, err error) {
			purged, err = s.purgeLocking(ctx, db, what, p)
			return purged.Rows, err
		})
		return purged, err
	}
	// There is a condition for each index; the next condition only fills the rest of the batch.
	for _, c := range s.purgeables(p) {
		var part outbox.Purged
		_, err := s.changed(ctx, func() (n int, err error) {
			part, err = s.purge(ctx, db, what, c, p, p.Limit-purged.Rows)
			return part.Rows, err
		})
		purged.Rows, purged.Last = purged.Rows+part.Rows, part.Last
		if err != nil || purged.Rows >= p.Limit {
			return purged, err
		}
	}
	return purged, nil
}

// purgeable describes rows in the order of an index.
type purgeable struct{ where, column string }

func (s *Store) purgeables(p outbox.PurgeQuery) []purgeable {
	if p.ByAge {
		return []purgeable{{"", "created_at"}}
	}
	var all []purgeable
	for _, status := range purgedStatuses(p) {
		all = append(all, purgeable{fmt.Sprintf("status = %d AND ", status), s.died()})
	}
	return all
}

// purgedStatuses are the statuses whose rows a purge deletes.
func purgedStatuses(p outbox.PurgeQuery) []outbox.Status {
	if p.Status != outbox.StatusNew {
		return []outbox.Status{p.Status}
	}
	return []outbox.Status{outbox.StatusDone, outbox.StatusDead}
}

// choosesKinds reports whether a purge is for some kinds of events.
func choosesKinds(p outbox.PurgeQuery) bool { return len(p.Only)+len(p.Except) > 0 }

// purge deletes the oldest purgeable rows. If the purge is for some kinds, purge returns the time of
// the last row.
func (s *Store) purge(ctx context.Context, db outbox.DB, what string, c purgeable, p outbox.PurgeQuery, limit int) (purged outbox.Purged, err error) {
	q := s.purgeOf(c, p, limit)
	if !choosesKinds(p) {
		purged.Rows, err = s.exec(ctx, db, what, q)
		return purged, err
	}
	q.add(" RETURNING ").placeColumn(c.column)
	err = s.rows(ctx, db, what, q, func(rows *sql.Rows) error {
		purged.Rows++
		return scanLatest(rows, &purged.Last)
	})
	return purged, err
}

// scanLatest reads a time, and keeps the latest.
func scanLatest(rows *sql.Rows, last *time.Time, before ...any) error {
	var at placeTime
	err := rows.Scan(append(before, &at)...)
	if at.exact && at.After(*last) {
		*last = at.Time
	}
	return err
}

// purgeOf deletes the oldest purgeable rows.
func (s *Store) purgeOf(c purgeable, p outbox.PurgeQuery, limit int) *query {
	q := s.query(512)
	q.add("DELETE FROM ").table(s)
	if s.d == postgres {
		q.add(" USING", chosenArray)
	} else {
		q.add(" WHERE event_id IN (")
	}
	q.ordered().add("SELECT event_id FROM ").table(s).add(" WHERE ").purgeable(c.where, c.column, p).
		add(" ORDER BY ", c.column, " LIMIT ").limit(limit, skipLocked)
	if s.d == postgres {
		return q.add(endChosen)
	}
	return q.add(")")
}

// purgeable writes the condition for rows that a purge deletes.
func (q *query) purgeable(where, column string, p outbox.PurgeQuery) *query {
	q.add(where, column, " < ").time(p.Before)
	if !p.Since.IsZero() {
		q.add(" AND ", column, " >= ").time(p.Since)
	}
	return q.only(p.Only).except(p.Except)
}

// purgeLocking is Purge for MySQL, which has no index on done_at with created_at as the fallback.
// The rows of all conditions are locked, and then deleted.
func (s *Store) purgeLocking(ctx context.Context, db outbox.DB, what string, p outbox.PurgeQuery) (purged outbox.Purged, err error) {
	err = s.inTx(ctx, db, what, readCommitted, func(tx *sql.Tx) error {
		ids, last, err := s.lockPurgeable(ctx, tx, what, p)
		if err != nil {
			return err
		}
		purged = outbox.Purged{Last: last}
		for chunk := range slices.Chunk(ids, markRows) {
			q := s.query(256 + 2*len(chunk))
			q.add("DELETE FROM ").table(s).add(" WHERE ").ids("event_id", chunk)
			n, err := s.exec(ctx, tx, what, q)
			if err != nil {
				return err
			}
			purged.Rows += n
		}
		return nil
	})
	return purged, err
}

// lockPurgeable locks the rows that a purge deletes, and returns their ids. If the purge is for some
// kinds, lockPurgeable returns the time of the last row that the index has.
func (s *Store) lockPurgeable(ctx context.Context, tx *sql.Tx, what string, p outbox.PurgeQuery) (ids []string, last time.Time, err error) {
	for _, c := range s.purgeables(p) {
		err := s.lockIndexed(ctx, tx, what, c, p, &ids, &last)
		if err != nil {
			return nil, last, err
		}
	}
	if p.ByAge {
		return ids, last, nil
	}
	// Rows that another program marked, without done_at.
	for _, status := range purgedStatuses(p) {
		if len(ids) == p.Limit {
			break
		}
		q := s.query(256)
		all := p
		all.Since = time.Time{} // the rows are in no order
		q.add("SELECT event_id FROM ").table(s).add(" WHERE ").purgeable(fmt.Sprintf("status = %d AND done_at IS NULL AND ", status), "created_at", all).
			add(" LIMIT ").arg(p.Limit - len(ids)).forUpdate(s)
		if err := s.rows(ctx, tx, what, q, func(rows *sql.Rows) error { return scanID(rows, &ids) }); err != nil {
			return nil, last, err
		}
	}
	return ids, last, nil
}

// lockIndexed locks rows in the order of an index, and adds their ids.
func (s *Store) lockIndexed(ctx context.Context, tx *sql.Tx, what string, c purgeable, p outbox.PurgeQuery, ids *[]string, last *time.Time) error {
	if len(*ids) == p.Limit {
		return nil
	}
	q := s.query(256)
	q.add("SELECT event_id")
	if choosesKinds(p) {
		q.add(", ").placeColumn(c.column)
	}
	q.add(" FROM ").table(s).add(" WHERE ").purgeable(c.where, c.column, p).
		add(" ORDER BY ", c.column, " LIMIT ").arg(p.Limit - len(*ids)).forUpdate(s)
	return s.rows(ctx, tx, what, q, func(rows *sql.Rows) error {
		if !choosesKinds(p) {
			return scanID(rows, ids)
		}
		var id string
		err := scanLatest(rows, last, &id)
		*ids = append(*ids, id)
		return err
	})
}

func scanID(rows *sql.Rows, ids *[]string) error {
	var id string
	err := rows.Scan(&id)
	*ids = append(*ids, id)
	return err
}
