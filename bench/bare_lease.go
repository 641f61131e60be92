package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// leaseContenders are a prototype of leases over batches instead of rows: a claim writes a single
// row for a range of ids, and no row of the events changes until it is marked. The prototype lacks
// the parts that make delivery safe: expired leases, retries, and rows that are committed behind
// the place that claims have reached.
func leaseContenders() []contender {
	return []contender{{
		name: "bare: lease batches and mark", against: "bare: poll and mark", on: servers,
		works: []string{"drain", "cost/backlog"}, open: openLeases,
	}}
}

// leaseSystem has the table of leases. The lease without a name has the place that claims have
// reached, and is locked while a claim reads.
type leaseSystem struct {
	*bareSystem
	last atomic.Int64 // lease
}

func openLeases(ctx context.Context, db *database) (system, error) {
	s := &leaseSystem{}
	opened, err := openBare(ctx, db, func(ctx context.Context, _ *bareSystem, listen func(n int) error) func() error {
		return s.leaseAndMark(ctx, listen)
	})
	if err != nil {
		return nil, err
	}
	s.bareSystem = opened.(*bareSystem)
	return s, firstError(
		db.exec(ctx, "CREATE TABLE bench_lease (name VARCHAR(36) PRIMARY KEY, behind VARCHAR(36), upto VARCHAR(36), until TIMESTAMP NULL)"),
		db.exec(ctx, "INSERT INTO bench_lease (name, upto) VALUES ('', '')"))
}

// leaseAndMark leases and marks, with two loops.
func (s *leaseSystem) leaseAndMark(ctx context.Context, listen func(n int) error) func() error {
	failed := make(chan error, 2)
	for range 2 {
		go func() {
			for {
				name := strconv.FormatInt(s.last.Add(1), 10)
				rows, err := s.lease(ctx, name)
				if err == nil && len(rows) > 0 {
					hearAll(rows, listen)
					err = s.markLeased(ctx, name, rows)
				}
				if err != nil || len(rows) == 0 {
					failed <- err
					return
				}
			}
		}()
	}
	return func() error { return firstError(<-failed, <-failed) }
}

// lease leases the next range of rows.
func (s *leaseSystem) lease(ctx context.Context, name string) (rows []bareRow, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		var behind string
		err := tx.QueryRowContext(ctx, "SELECT upto FROM bench_lease WHERE name = '' FOR UPDATE").Scan(&behind)
		if err != nil {
			return err
		}
		rows, err = s.read(ctx, tx, "SELECT "+bareColumns("")+" FROM outbox_event WHERE status = 0 AND event_id > "+place(s.db.kind)+
			" ORDER BY event_id LIMIT "+strconv.Itoa(bareRows), behind)
		if err != nil || len(rows) == 0 {
			return err
		}
		values := "($1, $2, $3, now() + INTERVAL '5' MINUTE)"
		if s.db.kind == testdb.MySQL {
			values = "(?, ?, ?, now() + INTERVAL '5' MINUTE)"
		}
		upto := rows[len(rows)-1].id
		return firstError(
			exactly(1)(tx.ExecContext(ctx, "INSERT INTO bench_lease (name, behind, upto, until) VALUES "+values, name, behind, upto)),
			exactly(1)(tx.ExecContext(ctx, "UPDATE bench_lease SET upto = "+place(s.db.kind)+" WHERE name = ''", upto)))
	})
	return rows, err
}

// markLeased ends a lease and marks the rows of the lease. markLeased fails if another loop has
// ended the lease, or marked a row of the lease: no row is delivered twice.
func (s *leaseSystem) markLeased(ctx context.Context, name string, rows []bareRow) error {
	list, args := s.ids(rows)
	return s.inTx(ctx, func(tx *sql.Tx) error {
		err := exactly(1)(tx.ExecContext(ctx, "DELETE FROM bench_lease WHERE name = "+place(s.db.kind), name))
		if err != nil {
			return err
		}
		return exactly(len(rows))(tx.ExecContext(ctx,
			"UPDATE outbox_event SET status = 1, done_at = CURRENT_TIMESTAMP(6) WHERE status = 0 AND event_id "+list, args...))
	})
}

// inTx runs a transaction whose statements each see everything that was committed before them.
func (s *leaseSystem) inTx(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := s.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// exactly fails unless a statement changed so many rows.
func exactly(n int) func(sql.Result, error) error {
	return func(result sql.Result, err error) error {
		if err != nil {
			return err
		}
		if changed, err := result.RowsAffected(); err != nil || int(changed) != n {
			return firstError(err, fmt.Errorf("a statement changed %d rows, not %d", changed, n))
		}
		return nil
	}
}
