package main

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
)

func costWork() work {
	return work{
		name: "cost", title: "What an event costs the database", on: postgresOnly,
		note: "Per event. Statements are counted in the driver, as pg_stat_statements may be missing, BEGIN and COMMIT and idle polls too. " +
			"WAL is the server's whole: nothing else may run on it. HOT is the share of updates that touch no index. " +
			"Hot path: 4 writers, one event and one business row in each transaction, until the last outcome is stored. Backlog: 10,000 events that are there, without writing them.",
		figures: []figure{
			{Name: "statements"},
			{Name: "WAL", Unit: "bytes"},
			{Name: "table", Unit: "bytes"},
			{Name: "indexes", Unit: "bytes"},
			{Name: "HOT", Unit: "%", Higher: true},
		},
		variants: []variant{
			{name: "hot path", measure: func(ctx context.Context, s *sample) ([]float64, error) {
				events := s.size(5_000)
				return costs(ctx, s, events, func() error {
					heard := newArrivals()
					stop, err := s.deliver(ctx, delivery{listen: heard.listen})
					if err != nil {
						return err
					}
					var next atomic.Int64
					err = together(4, func() error {
						for {
							n := int(next.Add(1) - 1)
							if n >= events {
								return nil
							}
							if err := s.Write(ctx, n, 1); err != nil {
								return err
							}
						}
					})
					return firstError(err, heard.wait(ctx, events), waitStored(ctx, s), stop())
				})
			}},
			{name: "backlog", measure: func(ctx context.Context, s *sample) ([]float64, error) {
				events := s.size(10_000)
				if err := firstError(fill(ctx, s, events, 2), s.db.analyzeAll(ctx)); err != nil {
					return nil, err
				}
				return costs(ctx, s, events, func() error {
					_, err := s.drain(ctx, events, 1)
					return err
				})
			}},
		},
	}
}

// costs closes the system, since PostgreSQL counts what a connection did when that
// ends.
func costs(ctx context.Context, s *sample, events int, do func() error) ([]float64, error) {
	before, err := s.db.walPosition(ctx)
	if err != nil {
		return nil, err
	}
	s.db.counting.Store(true)
	if err := do(); err != nil {
		return nil, err
	}
	s.db.counting.Store(false)
	after, err := s.db.walPosition(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	table, indexes, hot, err := s.db.tables(ctx)
	n := float64(events)
	return []float64{float64(s.db.statements.Load()) / n, (after - before) / n, table / n, indexes / n, hot}, err
}

func (db *database) walPosition(ctx context.Context) (at float64, err error) {
	pool, err := db.open()
	if err != nil {
		return 0, err
	}
	defer func() { _ = pool.Close() }()
	err = pool.QueryRowContext(ctx, "SELECT pg_current_wal_insert_lsn() - '0/0'").Scan(&at)
	return at, err
}

// tables are the bytes of all tables but orders and of their indexes, and the
// share of HOT updates in percent, which is missing when there were none.
func (db *database) tables(ctx context.Context) (table, indexes, hot float64, err error) {
	pool, err := db.open()
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { _ = pool.Close() }()
	var updates float64
	err = pool.QueryRowContext(ctx, "SELECT SUM(pg_table_size(relid)), SUM(pg_indexes_size(relid)), SUM(n_tup_upd), SUM(n_tup_hot_upd)"+
		" FROM pg_stat_user_tables WHERE schemaname = $1 AND relname <> 'orders'", db.name).Scan(&table, &indexes, &updates, &hot)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("reading the statistics: %w", err)
	}
	if updates == 0 {
		return table, indexes, math.NaN(), nil
	}
	return table, indexes, 100 * hot / updates, nil
}
