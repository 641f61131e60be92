package main

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// bareRows is how many rows each bare statement of a drain reads or changes.
const bareRows = 1_000

// bareMarks is the time between the statements that mark the rows written just now, the default of
// [outbox.DispatchOptions].MarkInterval.
const bareMarks = 5 * time.Millisecond

// barePoll reads with one loop, in the order of the primary key, and marks with a second loop.
func barePoll(ctx context.Context, s *bareSystem, listen func(n int) error) func() error {
	read := make(chan []bareRow, 1)
	failed := make(chan error, 2)
	go func() {
		defer close(read)
		after := ""
		for {
			rows, err := s.read(ctx, s.pool, "SELECT "+bareColumns("")+" FROM outbox_event WHERE status = 0 AND event_id > "+place(s.db.kind)+
				" ORDER BY event_id LIMIT "+strconv.Itoa(bareRows), after)
			if err != nil || len(rows) == 0 {
				failed <- err
				return
			}
			after = rows[len(rows)-1].id
			read <- rows
		}
	}()
	go func() {
		for rows := range read {
			hearAll(rows, listen)
			if err := s.mark(ctx, s.pool, rows); err != nil {
				failed <- err
				for range read { // let the reader end
					continue
				}
				return
			}
		}
		failed <- nil
	}()
	return func() error { return firstError(<-failed, <-failed) }
}

// bareClaim claims and marks, with two loops, or with a single loop on SQLite, which has a single
// writer.
func bareClaim(ctx context.Context, s *bareSystem, listen func(n int) error) func() error {
	loops := 2
	if s.db.kind == testdb.SQLite {
		loops = 1
	}
	failed := make(chan error, loops)
	for range loops {
		go func() {
			after := ""
			for {
				rows, err := s.claim(ctx, after)
				if err == nil && len(rows) == 0 && after != "" && s.db.kind == testdb.MySQL {
					after = "" // rows that another loop had locked, but did not take, were skipped
					continue
				}
				if err == nil && len(rows) > 0 {
					hearAll(rows, listen)
					after, err = rows[len(rows)-1].id, s.mark(ctx, s.pool, rows)
				}
				if err != nil || len(rows) == 0 {
					failed <- err
					return
				}
			}
		}()
	}
	return func() error {
		var err error
		for range loops {
			err = firstError(err, <-failed)
		}
		return err
	}
}

// claim leases rows behind a cursor.
func (s *bareSystem) claim(ctx context.Context, after string) (rows []bareRow, err error) {
	if s.db.kind == testdb.Postgres {
		return s.read(ctx, s.pool, "WITH free AS MATERIALIZED (SELECT event_id FROM outbox_event WHERE status = 0 AND locked_at IS NULL AND event_id > $1"+
			" ORDER BY event_id LIMIT "+strconv.Itoa(bareRows)+" FOR UPDATE SKIP LOCKED), claimed AS (UPDATE outbox_event e SET locked_by = 'bench', locked_at = now()"+
			" FROM free WHERE e.event_id = free.event_id RETURNING "+bareColumns("e.")+") SELECT * FROM claimed ORDER BY event_id", after)
	}
	if s.db.kind == testdb.SQLite {
		rows, err = s.read(ctx, s.pool, "UPDATE outbox_event SET locked_by = 'bench', locked_at = 1 WHERE event_id IN"+
			" (SELECT event_id FROM outbox_event WHERE status = 0 AND locked_at IS NULL AND event_id > ? ORDER BY event_id LIMIT "+strconv.Itoa(bareRows)+
			") RETURNING "+bareColumns(""), after)
		slices.SortFunc(rows, func(x, y bareRow) int { return strings.Compare(x.id, y.id) })
		return rows, err
	}
	tx, err := s.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	rows, err = s.read(ctx, tx, "SELECT "+bareColumns("")+" FROM outbox_event WHERE status = 0 AND locked_at IS NULL AND event_id > ?"+
		" ORDER BY event_id LIMIT "+strconv.Itoa(bareRows)+" FOR UPDATE SKIP LOCKED", after)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	list, args := s.ids(rows)
	if _, err := tx.ExecContext(ctx, "UPDATE outbox_event SET locked_by = 'bench', locked_at = NOW(6) WHERE event_id "+list, args...); err != nil {
		return nil, err
	}
	return rows, tx.Commit()
}

// bareChannel hands over the committed events through a channel.
func bareChannel(_ context.Context, s *bareSystem, listen func(n int) error) func() error {
	s.written = make(chan int)
	ended := make(chan error, 1)
	go func() {
		for n := range s.written {
			_ = listen(n)
		}
		ended <- nil
	}()
	return func() error { close(s.written); return <-ended }
}

// bareMark hears of the committed events and marks them. A statement marks all events of a few
// milliseconds.
func bareMark(ctx context.Context, s *bareSystem, listen func(n int) error) func() error {
	s.written = make(chan int, bareRows)
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(bareMarks)
		defer tick.Stop()
		var rows []bareRow
		var failed error
		for open := true; open; {
			var n int
			select {
			case n, open = <-s.written:
				if open {
					_ = listen(n)
					rows = append(rows, bareRow{id: eventID(n)})
					continue
				}
			case <-tick.C:
			}
			if len(rows) > 0 && failed == nil {
				failed = s.mark(ctx, s.pool, rows)
			}
			rows = rows[:0]
		}
		ended <- failed
	}()
	return func() error { close(s.written); return <-ended }
}

// bareRow is the part of an event that a listener gets.
type bareRow struct {
	id, payload, eventType, aggregateType, aggregateID string
	tenant, headers                                    sql.NullString
	available, created                                 any
	attempts                                           int
}

func bareColumns(table string) string {
	return table + strings.Join([]string{"event_id", "payload", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "headers", "available_at", "created_at", "attempts"}, ", "+table)
}

func hearAll(rows []bareRow, listen func(n int) error) {
	for _, row := range rows {
		_ = listen(number(row.payload))
	}
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (s *bareSystem) read(ctx context.Context, db queryer, query, after string) ([]bareRow, error) {
	rows, err := db.QueryContext(ctx, query, after)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := make([]bareRow, 0, bareRows)
	for rows.Next() {
		var row bareRow
		if err := rows.Scan(&row.id, &row.payload, &row.eventType, &row.aggregateType, &row.aggregateID, &row.tenant, &row.headers, &row.available, &row.created, &row.attempts); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

func (s *bareSystem) mark(ctx context.Context, db outbox.Execer, rows []bareRow) error {
	now := map[testdb.Kind]string{testdb.Postgres: "now()", testdb.MySQL: "NOW(6)", testdb.SQLite: strconv.FormatInt(time.Now().UnixMicro(), 10)}[s.db.kind]
	list, args := s.ids(rows)
	_, err := db.ExecContext(ctx, "UPDATE outbox_event SET status = 1, done_at = "+now+", locked_by = NULL, locked_at = NULL WHERE event_id "+list, args...)
	return err
}

// ids is the condition for the rows.
func (s *bareSystem) ids(rows []bareRow) (list string, args []any) {
	if s.db.kind == testdb.Postgres {
		ids := make([]string, len(rows))
		for i, row := range rows {
			ids[i] = row.id
		}
		return "= ANY($1)", []any{ids}
	}
	for _, row := range rows {
		args = append(args, row.id)
	}
	return "IN (?" + strings.Repeat(",?", len(rows)-1) + ")", args
}

func place(kind testdb.Kind) string {
	if kind == testdb.Postgres {
		return "$1"
	}
	return "?"
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
