package main

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func costWork() work {
	return work{
		name: "cost", title: "What an event costs the database", on: everywhere,
		note: "Per event. Statements are counted in the driver, BEGIN and COMMIT and idle polls too. " +
			"Log is the WAL of PostgreSQL and the redo log of MariaDB, the server's whole: nothing else may run on it. " +
			"Table and indexes are the files on PostgreSQL, the pages in the buffer pool on MariaDB, the file's pages on SQLite. HOT is the share of updates that touch no index; with Delete, the few updates are those of the control table. " +
			"A dash is a figure that the database does not have: SQLite does not count its log, and only PostgreSQL has HOT. " +
			"Hot path: 4 writers, one event and one business row in each transaction, until the last outcome is stored. Backlog: 10,000 events that are there, without writing them.",
		figures: []figure{
			{Name: "statements"},
			{Name: "log", Unit: "bytes"},
			{Name: "table", Unit: "bytes"},
			{Name: "indexes", Unit: "bytes"},
			{Name: "HOT", Unit: "%", Higher: true},
		},
		variants: []variant{
			{name: "hot path", measure: func(ctx context.Context, s *sample) ([]float64, error) {
				return costs(ctx, s, s.size(5_000), hotPath)
			}},
			{name: "backlog", measure: func(ctx context.Context, s *sample) ([]float64, error) {
				events := s.size(10_000)
				if err := firstError(s.fill(ctx, events, 2), s.db.analyzeAll(ctx)); err != nil {
					return nil, err
				}
				return costs(ctx, s, events, func(ctx context.Context, s *sample, _ int) error {
					_, err := s.drain(ctx, 1)
					return err
				})
			}},
		},
	}
}

// hotPath writes events, which are delivered meanwhile.
func hotPath(ctx context.Context, s *sample, events int) error {
	if err := s.deliver(ctx, delivery{}); err != nil {
		return err
	}
	var next atomic.Int64
	err := together(4, func() error {
		for n := next.Add(1) - 1; int(n) < events; n = next.Add(1) - 1 {
			if err := s.Write(ctx, int(n), 1); err != nil {
				return err
			}
		}
		return nil
	})
	s.next.Store(int64(events))
	return firstError(err, s.settle(ctx), s.stop())
}

// costs closes the system, since PostgreSQL counts the work of a connection when the connection
// ends.
func costs(ctx context.Context, s *sample, events int, do func(context.Context, *sample, int) error) ([]float64, error) {
	before, err := s.db.logged(ctx)
	if err != nil {
		return nil, err
	}
	s.db.counting.Store(true)
	if err := do(ctx, s, events); err != nil {
		return nil, err
	}
	s.db.counting.Store(false)
	after, err := s.db.logged(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	table, indexes, hot, err := s.db.sizes(ctx)
	n := float64(events)
	return []float64{float64(s.db.statements.Load()) / n, (after - before) / n, table / n, indexes / n, hot}, err
}

// logged is how many bytes the server has logged. SQLite does not say.
func (db *database) logged(ctx context.Context) (bytes float64, err error) {
	query := map[testdb.Kind]string{
		testdb.Postgres: "SELECT 'WAL', pg_current_wal_insert_lsn() - '0/0'",
		testdb.MySQL:    "SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'",
	}[db.kind]
	if query == "" {
		return math.NaN(), nil
	}
	var name string
	err = db.read(ctx, query, &name, &bytes)
	return bytes, err
}

// sizes are the bytes of all tables except orders and of their indexes, and the share of HOT
// updates in percent, which is missing when there were no updates.
func (db *database) sizes(ctx context.Context) (table, indexes, hot float64, err error) {
	var share sql.NullFloat64
	err = db.read(ctx, map[testdb.Kind]string{
		testdb.Postgres: "SELECT SUM(pg_table_size(relid)), SUM(pg_indexes_size(relid)), 100.0 * SUM(n_tup_hot_upd) / NULLIF(SUM(n_tup_upd), 0)" +
			" FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname <> 'orders'",
		// InnoDB's statistics say 1 leaf page for an index of 12.
		testdb.MySQL: "SELECT SUM(index_name = 'PRIMARY') * @@innodb_page_size, SUM(index_name <> 'PRIMARY') * @@innodb_page_size, NULL" +
			" FROM information_schema.innodb_buffer_page WHERE page_type = 'INDEX' AND table_name LIKE concat('`', DATABASE(), '`.%') AND table_name NOT LIKE '%`orders`'",
		testdb.SQLite: "SELECT SUM(IIF(m.type = 'table', pgsize, 0)), SUM(IIF(m.type = 'index', pgsize, 0)), NULL" +
			" FROM dbstat JOIN sqlite_master m USING (name) WHERE m.tbl_name <> 'orders'",
	}[db.kind], &table, &indexes, &share)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("reading the statistics: %w", err)
	}
	if !share.Valid {
		return table, indexes, math.NaN(), nil
	}
	return table, indexes, share.Float64, nil
}
