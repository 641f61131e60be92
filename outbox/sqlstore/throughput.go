package sqlstore

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// measured is how many deliveries Throughput measures.
const measured = 1000

// delivered are the rows that are DONE and not deleted dead letters.
const delivered = "status = 1 AND (locked_by IS NULL OR locked_by NOT LIKE '" + outbox.DeletedBy + "%')"

// Throughput implements [outbox.Store].
func (s *Store) Throughput(ctx context.Context, db outbox.DB, since time.Time) (outbox.Throughput, error) {
	const what = "reading the throughput"
	var t outbox.Throughput
	q := s.query(256)
	q.add("SELECT ").counted(s, delivered, s.died()+" >= ", since)
	if err := s.rows(ctx, db, what, q, scanInto(&t.Done)); err != nil {
		return outbox.Throughput{}, err
	}
	q = s.query(256)
	q.ordered().add("SELECT ").timeColumn("available_at").add(", ").timeColumn("done_at").add(" FROM ").table(s).
		add(" WHERE ", delivered, " AND ", s.died(), " >= ").time(since).add(" ORDER BY ", s.died(), " DESC LIMIT ").limit(measured, "")
	var took []time.Duration
	err := s.rows(ctx, db, what, q, func(rows *sql.Rows) error {
		var due, done timestamp
		err := rows.Scan(&due, &done)
		if !done.IsZero() && !due.IsZero() {
			took = append(took, max(done.Sub(due.Time), 0))
		}
		return err
	})
	if err != nil || len(took) == 0 {
		return t, err
	}
	slices.Sort(took)
	t.Median, t.P95, t.Max = took[len(took)/2], took[len(took)*95/100], took[len(took)-1]
	return t, nil
}
