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
func (s *Store) Purge(ctx context.Context, db outbox.DB, p outbox.PurgeQuery) (int, error) {
	what := fmt.Sprintf("purging up to %d rows", p.Limit)
	if s.d.name == "mysql" {
		return s.changed(ctx, func() (int, error) { return s.purgeLocking(ctx, db, what, p) })
	}
	// There is a condition for each index; the next condition only fills the rest of the batch.
	died := s.died()
	conditions := []purgeable{{"status = 1 AND ", died}, {"status = 3 AND ", died}}
	if p.ByAge {
		conditions = []purgeable{{"", "created_at"}}
	}
	deleted := 0
	for _, c := range conditions {
		n, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, s.purgeOf(c, p.Before, p.Limit-deleted)) })
		deleted += n
		if err != nil || deleted >= p.Limit {
			return deleted, err
		}
	}
	return deleted, nil
}

// purgeable describes rows in the order of an index.
type purgeable struct{ where, column string }

// purgeOf deletes the oldest purgeable rows.
func (s *Store) purgeOf(c purgeable, before time.Time, limit int) *query {
	q := s.query(512)
	q.add("DELETE FROM ").table(s)
	if s.d == postgres {
		q.add(" USING", chosenArray)
	} else {
		q.add(" WHERE event_id IN (")
	}
	q.ordered().add("SELECT event_id FROM ").table(s).add(" WHERE ", c.where, c.column, " < ").time(before).
		add(" ORDER BY ", c.column, " LIMIT ").limit(limit, skipLocked)
	if s.d == postgres {
		return q.add(endChosen)
	}
	return q.add(")")
}

// purgeLocking is Purge for MySQL, which has no index on done_at with created_at as the fallback.
// The rows of all conditions are locked, and then deleted.
func (s *Store) purgeLocking(ctx context.Context, db outbox.DB, what string, p outbox.PurgeQuery) (int, error) {
	type condition struct{ where, column, order string }
	conditions := []condition{{"", "created_at", "created_at"}}
	if !p.ByAge {
		conditions = []condition{
			{"status = 1 AND ", "done_at", "done_at"},
			{"status = 3 AND ", "done_at", "done_at"},
			// Rows that another program marked, without done_at.
			{"status = 1 AND done_at IS NULL AND ", "created_at", ""},
			{"status = 3 AND done_at IS NULL AND ", "created_at", ""},
		}
	}
	deleted := 0
	err := s.inTx(ctx, db, what, readCommitted, func(tx *sql.Tx) error {
		var ids []string
		for _, c := range conditions {
			if len(ids) == p.Limit {
				break
			}
			q := s.query(256)
			q.add("SELECT event_id FROM ").table(s).add(" WHERE ", c.where, c.column, " < ").time(p.Before)
			if c.order != "" {
				q.add(" ORDER BY ", c.order)
			}
			q.add(" LIMIT ").arg(p.Limit - len(ids)).forUpdate(s)
			err := s.rows(ctx, tx, what, q, func(rows *sql.Rows) error {
				var id string
				err := rows.Scan(&id)
				ids = append(ids, id)
				return err
			})
			if err != nil {
				return err
			}
		}
		deleted = 0
		for chunk := range slices.Chunk(ids, markRows) {
			q := s.query(256 + 2*len(chunk))
			q.add("DELETE FROM ").table(s).add(" WHERE ").ids("event_id", chunk)
			n, err := s.exec(ctx, tx, what, q)
			if err != nil {
				return err
			}
			deleted += n
		}
		return nil
	})
	return deleted, err
}
