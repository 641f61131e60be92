package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// rowState is the state of the rows that prefill writes.
type rowState struct {
	status outbox.Status
	due    time.Duration // from now; rows that were due before were also created and ended then
}

var (
	newRows    = rowState{status: outbox.StatusNew}
	doneRows   = rowState{outbox.StatusDone, -time.Hour}
	deadRows   = rowState{outbox.StatusDead, -time.Hour}
	futureRows = rowState{outbox.StatusNew, 24 * time.Hour}
)

// prefillRows is how many rows a statement inserts: a row for each number of five digits.
const prefillRows = 100_000

// prefill adds n rows to the outbox's own table, numbered from first on, and analyzes the table. A
// single text serves all databases, except for the type of the payload and the places of the times:
// concat takes a number on each database.
func (db *database) prefill(ctx context.Context, state rowState, first, n int) error {
	pool, err := db.open()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	now := time.Now()
	due, created, done := now.Add(state.due), now, any(nil)
	if state.status.Terminal() {
		created, done = due, storedTime(db.kind, due)
	}
	// As eventID and payload make them. The first of the 19 digits is 0, and the pad is
	// shorter by the digits of the number.
	id := "concat('01BENCH0', substr(concat(1000000000000000000 + n), 2))"
	head, tail, _ := strings.Cut(payload(0), "0")
	tail, pad, _ := strings.Cut(strings.TrimSuffix(tail, `"}`), "x")
	row := fmt.Sprintf(`concat('%s', n, '%s', substr('x%s', length(concat(n))), '"}')`, head, tail, pad)
	places := "?, ?, ?"
	if db.kind == testdb.Postgres {
		row, places = "CAST("+row+" AS json)", "$1, $2, $3"
	}
	for end := first + n; first < end; first += prefillRows {
		_, err := pool.ExecContext(ctx, "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, available_at, created_at, done_at)"+
			" WITH digits (d) AS (SELECT 0"+digits+"), numbers (n) AS ("+
			fmt.Sprintf("SELECT %d + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d", first)+
			" FROM digits a CROSS JOIN digits b CROSS JOIN digits c CROSS JOIN digits d CROSS JOIN digits e)"+
			fmt.Sprintf(" SELECT %s, '%s', '%s', '%s', %s, %d, %s", id, eventType, aggregateType, aggregateID, row, state.status, places)+
			fmt.Sprintf(" FROM numbers WHERE n < %d ORDER BY n", end),
			storedTime(db.kind, due), storedTime(db.kind, created), done)
		if err != nil {
			return fmt.Errorf("filling the table: %w", err)
		}
	}
	return db.analyze(ctx, "outbox_event")
}

const digits = " UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4" +
	" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9"
