package soak

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// database is the database of a run.
type database struct {
	*sql.DB
	kind        testdb.Kind
	driver, dsn string
	server      string // the version of the server
	store       *sqlstore.Store
	settings    string // the storage parameters of a partition; empty: the table has no partitions
	drop        func() error
}

// open makes a database with the outbox's tables.
func open(ctx context.Context, o Options) (db *database, err error) {
	db = &database{kind: o.Database}
	if db.driver, db.dsn, db.drop, err = testdb.Create(ctx, o.Database); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.close())
		}
	}()
	if db.DB, err = sql.Open(db.driver, db.dsn); err != nil {
		return nil, err
	}
	if db.store, err = sqlstore.Detect(ctx, db.DB); err != nil {
		return nil, err
	}
	if err = db.store.CreateSchema(ctx, db.DB); err != nil {
		return nil, err
	}
	return db, db.prepare(ctx, o)
}

// history inserts the rows that the table has when the run begins: rows that were delivered just
// now.
var history = map[testdb.Kind]string{
	testdb.Postgres: `INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, available_at, created_at, done_at)
		SELECT 'h' || i, 'Old', 'Thing', i, '{"text": "` + filler + `"}', 1, now(), now(), now() + interval '1 day' FROM generate_series(1, %d) AS s (i)`,
	testdb.MySQL: `INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, available_at, created_at, done_at)
		SELECT CONCAT('h', seq), 'Old', 'Thing', seq, '{"text": "` + filler + `"}', 1, now(6), now(6), now(6) + interval 1 day FROM seq_1_to_%d`,
}

const filler = "a payload of about two hundred bytes, as those of the run are; it is repeated so that the row has the same size. it is repeated so that the row has the same size, and so that it fills a page like the others."

var versions = map[testdb.Kind]string{
	testdb.Postgres: "SELECT 'PostgreSQL ' || current_setting('server_version') || ', autovacuum ' || current_setting('autovacuum')",
	testdb.MySQL:    "SELECT VERSION()",
}

func (db *database) prepare(ctx context.Context, o Options) error {
	if o.Settings != "" && o.Database == testdb.Postgres {
		if _, err := db.ExecContext(ctx, "ALTER TABLE outbox_event SET ("+o.Settings+")"); err != nil {
			return fmt.Errorf("setting the parameters of the table: %w", err)
		}
	}
	if o.Partition > 0 {
		var err error
		if db.settings, err = db.partitioned(ctx); err != nil {
			return fmt.Errorf("making a table in partitions: %w", err)
		}
	}
	if o.History > 0 {
		for _, statement := range []string{
			fmt.Sprintf(history[o.Database], o.History), "ANALYZE" + map[testdb.Kind]string{testdb.MySQL: " TABLE"}[o.Database] + " outbox_event",
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("filling the table: %w", err)
			}
		}
	}
	return db.QueryRowContext(ctx, versions[o.Database]).Scan(&db.server)
}

func (db *database) close() error {
	var err error
	if db.DB != nil {
		err = db.Close()
	}
	return errors.Join(err, db.drop())
}

// hold opens a transaction that sees the table as it is now, and leaves it open.
func (db *database) hold(ctx context.Context) (release func() error, err error) {
	tx, err := db.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM outbox_event LIMIT 1) AS one").Scan(&n); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx.Rollback, nil
}

// reads is the query by which a claim reads from the start of the table.
const reads = " FROM outbox_event WHERE status %s AND available_at <= now() AND CASE WHEN locked_at IS NULL THEN TRUE ELSE FALSE END" +
	" ORDER BY available_at, created_at, event_id LIMIT 500"

// measure fills in the figures of the database.
func (db *database) measure(ctx context.Context, s *Sample) error {
	if db.kind == testdb.Postgres {
		return db.measurePostgres(ctx, s)
	}
	began := time.Now()
	var n int
	if err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT event_id"+reads+") AS due", "= 0")).Scan(&n); err != nil {
		return err
	}
	s.Read = time.Since(began)
	const size = "SELECT SUM(stat_value * @@innodb_page_size) FROM mysql.innodb_index_stats WHERE database_name = DATABASE() AND table_name = 'outbox_event' AND stat_name = 'size' AND index_name "
	return db.QueryRowContext(ctx, "SELECT ("+size+"= 'PRIMARY'), ("+size+"<> 'PRIMARY'), (SELECT `count` FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len')").
		Scan(&s.Table, &s.Indexes, &s.Dead)
}

func (db *database) measurePostgres(ctx context.Context, s *Sample) error {
	if db.settings == "" { // in partitions with a backlog, PostgreSQL may sort the backlog for this read
		if err := db.measureRead(ctx, s); err != nil {
			return err
		}
	}
	return db.QueryRowContext(ctx, sizes).
		Scan(&s.Partitions, &s.Table, &s.Indexes, &s.Dead, &s.Vacuums, &s.DeadLetters, &s.WAL)
}

func (db *database) measureRead(ctx context.Context, s *Sample) error {
	var text []byte
	if err := db.QueryRowContext(ctx, fmt.Sprintf("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT event_id"+reads, "IN (0, 2)")).Scan(&text); err != nil {
		return err
	}
	var plans []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		} `json:"Plan"`
		Milliseconds float64 `json:"Execution Time"`
	}
	if err := json.Unmarshal(text, &plans); err != nil {
		return err
	}
	s.Pages, s.Read = plans[0].Plan.Hit+plans[0].Plan.Read, time.Duration(plans[0].Milliseconds*float64(time.Millisecond))
	return nil
}

// sizes are those of the table and of all partitions, of PostgreSQL.
const sizes = `WITH parts (id) AS (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'outbox_event'::regclass),
	tables (id) AS (SELECT 'outbox_event'::regclass::oid UNION ALL SELECT id FROM parts)
SELECT (SELECT COUNT(*) FROM parts), SUM(pg_table_size(id))::bigint, SUM(pg_indexes_size(id))::bigint, COALESCE(SUM(n_dead_tup), 0)::bigint, COALESCE(SUM(autovacuum_count), 0)::bigint,
	(SELECT COUNT(*) FROM outbox_event WHERE status = 3), (pg_current_wal_lsn() - '0/0')::bigint
FROM tables LEFT JOIN pg_stat_user_tables ON relid = id`

// problems are rows that are not DONE at the end.
func (db *database) problems(ctx context.Context) (all []string) {
	var dead int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE status = 3").Scan(&dead); err != nil {
		return []string{"counting dead rows: " + err.Error()}
	}
	if dead > 0 {
		all = append(all, fmt.Sprintf("%d events are DEAD", dead))
	}
	return all
}
