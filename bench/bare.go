package main

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// bareContenders are the limit: statements by hand through database/sql on the outbox's own table,
// without the safeguards of a delivery.
func bareContenders() []contender {
	return []contender{
		{
			name: "bare: insert and mark", limit: true, on: everywhere,
			works: []string{"write", "many", "done/write only", "done/listener returns at once"},
			open:  func(ctx context.Context, db *database) (system, error) { return openBare(ctx, db, bareMark) },
		},
		{
			name: "bare: poll and mark", limit: true, on: everywhere,
			works: []string{"drain/100k", "drain/500k", "drain/held snapshot", "drain/500k, held snapshot", "cost/backlog"},
			open:  func(ctx context.Context, db *database) (system, error) { return openBare(ctx, db, barePoll) },
		},
		{
			name: "bare: claim and mark", limit: true, on: everywhere,
			works: []string{"drain"},
			open:  func(ctx context.Context, db *database) (system, error) { return openBare(ctx, db, bareClaim) },
		},
		{
			name: "bare: a channel", limit: true, on: everywhere, works: []string{"latency"},
			open: func(ctx context.Context, db *database) (system, error) { return openBare(ctx, db, bareChannel) },
		},
	}
}

type bareSystem struct {
	db      *database
	pool    *sql.DB
	deliver func(ctx context.Context, s *bareSystem, listen func(n int) error) (stop func() error)
	written chan int // of bareChannel and bareMark
}

func openBare(ctx context.Context, db *database, deliver func(context.Context, *bareSystem, func(n int) error) func() error) (system, error) {
	s := &bareSystem{db: db, deliver: deliver}
	var err error
	s.pool, err = openWithTable(ctx, db)
	return s, err
}

// openWithTable opens a plain pool and makes the outbox's table.
func openWithTable(ctx context.Context, db *database) (*sql.DB, error) {
	pool, err := db.open()
	if err != nil {
		return nil, err
	}
	store, err := sqlstore.Detect(ctx, pool)
	if err != nil {
		return nil, err
	}
	return pool, store.CreateSchema(ctx, pool)
}

func (s *bareSystem) Write(ctx context.Context, first, n int) error {
	tx, err := s.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, insertOrder(s.db.kind), strconv.Itoa(first), "tea"); err != nil {
		return err
	}
	if s.db.kind == testdb.Postgres && n > 1 {
		text, args := insertUnnest(first, n)
		_, err = tx.ExecContext(ctx, text, args...)
	} else {
		err = s.insertValues(ctx, tx, first, n)
	}
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if s.written != nil {
		s.written <- first
	}
	return nil
}

const insertColumns = "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, status, attempts, available_at, created_at) "

// insertUnnest is a single statement with an array for each column that differs.
func insertUnnest(first, n int) (text string, args []any) {
	ids, payloads := make([]string, n), make([]string, n)
	for i := range n {
		ids[i], payloads[i] = eventID(first+i), payload(first+i)
	}
	return insertColumns + "SELECT id, $1, $2, $3, NULL, payload, NULL, 0, 0, $4, $4 FROM unnest($5::text[], $6::json[]) AS e (id, payload)",
		[]any{eventType, aggregateType, aggregateID, time.Now().UTC(), ids, payloads}
}

// insertValues is a single statement with many rows, or with as many as SQLite takes.
func (s *bareSystem) insertValues(ctx context.Context, tx *sql.Tx, first, n int) error {
	for ; n > 0; first, n = first+500, n-500 {
		var text strings.Builder
		text.WriteString(insertColumns + "VALUES ")
		var args []any
		for i := range min(n, 500) {
			if i > 0 {
				text.WriteString(", ")
			}
			if s.db.kind == testdb.Postgres {
				text.WriteString("($1,$2,$3,$4,NULL,$5,NULL,0,0,$6,$7)") // a single row only
			} else {
				text.WriteString("(?,?,?,?,NULL,?,NULL,0,0,?,?)")
			}
			now := storedTime(s.db.kind, time.Now())
			args = append(args, eventID(first+i), eventType, aggregateType, aggregateID, payload(first+i), now, now)
		}
		if _, err := tx.ExecContext(ctx, text.String(), args...); err != nil {
			return err
		}
	}
	return nil
}

// storedTime is a time as the outbox's table keeps it.
func storedTime(kind testdb.Kind, t time.Time) any {
	if kind == testdb.SQLite {
		return t.UnixMicro()
	}
	return t.UTC()
}

func (s *bareSystem) Deliver(ctx context.Context, d delivery) (func() error, error) {
	return s.deliver(ctx, s, d.listen), nil
}

func (s *bareSystem) Pending(ctx context.Context) (int, error) {
	return pendingRows(ctx, s.db.kind, s.pool)
}
func (s *bareSystem) Close() error { return s.pool.Close() }
