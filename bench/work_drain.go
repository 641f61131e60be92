package main

import (
	"context"
	"database/sql"
)

func drainWork() work {
	return work{
		name: "drain", title: "Draining a backlog", on: everywhere, figures: perSecond,
		note: "The rows are there before the first node starts. Its listener does nothing. The time ends when the last outcome is stored. " +
			"The held snapshot is a transaction that reads for as long, so that no dead row can be removed. " +
			"watermill-sql is left out of 500k: its rate falls with the size of the backlog, and this one took it more than a minute.",
		variants: []variant{
			{name: "100k", measure: draining(100_000, 1, false)},
			{name: "500k", on: postgresOnly, full: true, measure: draining(500_000, 1, false)},
			{name: "held snapshot", on: postgresOnly, measure: draining(100_000, 1, true)},
			{name: "500k, held snapshot", on: postgresOnly, full: true, measure: draining(500_000, 1, true)},
			{name: "2 nodes", on: servers, measure: draining(100_000, 2, false)},
			{name: "4 nodes", on: postgresOnly, full: true, measure: draining(100_000, 4, false)},
		},
	}
}

// draining drains a backlog with a number of nodes.
func draining(backlog, nodes int, held bool) func(context.Context, *sample) ([]float64, error) {
	return func(ctx context.Context, s *sample) ([]float64, error) {
		if err := firstError(s.fill(ctx, s.size(backlog), 2), s.db.analyzeAll(ctx)); err != nil {
			return nil, err
		}
		if held {
			release, err := s.db.holdSnapshot(ctx)
			if err != nil {
				return nil, err
			}
			defer release()
		}
		rate, err := s.drain(ctx, nodes)
		return []float64{rate}, err
	}
}

// holdSnapshot begins a transaction that keeps every dead row from being removed.
func (db *database) holdSnapshot(ctx context.Context) (release func(), err error) {
	pool, err := db.open()
	if err != nil {
		return nil, err
	}
	tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	var n int
	err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders").Scan(&n)
	return func() {
		_ = tx.Rollback()
		_ = pool.Close()
	}, err
}
