package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

func drainWork() work {
	return work{
		name: "drain", title: "Draining a backlog", on: everywhere, figures: perSecond,
		note: "The rows are there before the first node starts. Its listener does nothing. The time ends when the last outcome is stored. " +
			"The held snapshot is a transaction that reads for as long, so that no dead row can be removed.",
		variants: []variant{
			{name: "100k", measure: draining(100_000, 1, false)},
			{name: "500k", on: postgresOnly, full: true, measure: draining(500_000, 1, false)},
			{name: "held snapshot", on: postgresOnly, measure: draining(100_000, 1, true)},
			{name: "2 nodes", on: servers, measure: draining(100_000, 2, false)},
			{name: "4 nodes", on: postgresOnly, full: true, measure: draining(100_000, 4, false)},
		},
	}
}

// draining drains a backlog with so many nodes.
func draining(backlog, nodes int, held bool) func(context.Context, *sample) ([]float64, error) {
	return func(ctx context.Context, s *sample) ([]float64, error) {
		events := s.size(backlog)
		if err := firstError(fill(ctx, s, events, 2), s.db.analyzeAll(ctx)); err != nil {
			return nil, err
		}
		if held {
			release, err := s.db.holdSnapshot(ctx)
			if err != nil {
				return nil, err
			}
			defer release()
		}
		rate, err := s.drain(ctx, events, nodes)
		return []float64{rate}, err
	}
}

// drain returns how many of the events that are in the table are delivered in a
// second.
func (s *sample) drain(ctx context.Context, events, nodes int) (float64, error) {
	heard := newArrivals()
	var stops []func() error
	began := time.Now()
	for range nodes {
		stop, err := s.deliver(ctx, delivery{listen: heard.listen, apart: nodes > 1})
		if err != nil {
			return 0, err
		}
		stops = append(stops, stop)
	}
	if err := firstError(heard.wait(ctx, events), waitStored(ctx, s)); err != nil {
		return 0, err
	}
	took := time.Since(began)
	for _, stop := range stops {
		if err := stop(); err != nil {
			return 0, err
		}
	}
	return float64(events) / took.Seconds(), nil
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

// analyzeAll refreshes the planner's statistics, as the server does by itself
// within a minute.
func (db *database) analyzeAll(ctx context.Context) error {
	query := map[testdb.Kind]string{
		testdb.Postgres: "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
		testdb.MySQL:    "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
		testdb.SQLite:   "SELECT name FROM sqlite_master WHERE type = 'table'",
	}[db.kind]
	pool, err := db.open()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	var tables []string
	rows, err := pool.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, table := range tables {
		if err := db.analyze(ctx, table); err != nil {
			return err
		}
	}
	return nil
}
