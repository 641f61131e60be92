// Package dashtest fills tables for the tests of package dashboard, and for its
// screenshots.
package dashtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Table is the table of the rows.
const Table = sqlstore.DefaultTable

// Row is a row of the outbox table.
type Row struct {
	ID, Type, Aggregate, AggregateID, Tenant string
	Payload                                  string // JSON; empty: {}
	Headers                                  map[string]string
	Status                                   outbox.Status
	Attempts                                 int
	Created, Available, Ended, Leased        time.Time // Available defaults to Created
	Error, Lease                             string
}

// Insert writes rows into the table of PostgreSQL or SQLite.
func Insert(ctx context.Context, db *sql.DB, kind testdb.Kind, rows ...Row) error {
	query := "INSERT INTO " + Table + " (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, status, attempts, available_at, created_at, done_at, last_error, locked_by, locked_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
	stored := func(t time.Time) any { return t.UnixMicro() }
	if kind == testdb.Postgres {
		for i := 1; strings.Contains(query, "?"); i++ {
			query = strings.Replace(query, "?", fmt.Sprintf("$%d", i), 1)
		}
		stored = func(t time.Time) any { return t }
	}
	moment := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return stored(t.UTC())
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, r := range rows {
		if r.Available.IsZero() {
			r.Available = r.Created
		}
		if r.Payload == "" {
			r.Payload = "{}"
		}
		var headers any
		if r.Headers != nil {
			text, err := json.Marshal(r.Headers)
			if err != nil {
				return err
			}
			headers = string(text)
		}
		_, err := tx.ExecContext(ctx, query, r.ID, r.Type, text(r.Aggregate), text(r.AggregateID), text(r.Tenant), r.Payload, headers, int(r.Status), r.Attempts,
			moment(r.Available), moment(r.Created), moment(r.Ended), text(r.Error), text(r.Lease), moment(r.Leased))
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Shop is a table as a shop has it in the middle of a small outage: two groups of dead letters with
// three and two letters, an event to retry, a delayed event, and delivered events.
func Shop(now time.Time) []Row {
	rows := []Row{
		{ID: "retried", Type: "OrderPaid", Aggregate: "Order", AggregateID: "1007", Tenant: "acme", Status: outbox.StatusRetry, Attempts: 3, Created: now.Add(-3 * time.Minute), Available: now.Add(40 * time.Second), Error: "mail server 10.0.0.7:25 does not answer"},
		{ID: "delayed", Type: "OrderReminder", Aggregate: "Order", AggregateID: "1008", Tenant: "acme", Created: now.Add(-time.Minute), Available: now.Add(2 * time.Hour)},
		{ID: "waiting", Type: "OrderPlaced", Aggregate: "Order", AggregateID: "1009", Tenant: "globex", Created: now.Add(-5 * time.Second), Lease: "shop-2/18", Leased: now.Add(-2 * time.Second)},
	}
	for i := range 3 {
		rows = append(rows, Row{
			ID: fmt.Sprintf("refused-%d", i), Type: "OrderPlaced", Aggregate: "Order", AggregateID: fmt.Sprint(1000 + i), Tenant: "acme",
			Payload: fmt.Sprintf(`{"order": %d, "item": "tea", "note": "payload-secret"}`, 1000+i), Headers: map[string]string{"source": "header-secret"},
			Status: outbox.StatusDead, Attempts: 10, Created: now.Add(-time.Hour), Ended: now.Add(-time.Duration(30-i) * time.Minute),
			Error: fmt.Sprintf("warehouse refused order %d: no such item", 1000+i),
		})
	}
	for i := range 2 {
		rows = append(rows, Row{
			ID: fmt.Sprintf("unmailed-%d", i), Type: "OrderPaid", Aggregate: "Order", AggregateID: fmt.Sprint(1003 + i), Tenant: "globex",
			Status: outbox.StatusDead, Attempts: 10, Created: now.Add(-2 * time.Hour), Ended: now.Add(-time.Duration(20-i) * time.Minute),
			Error: fmt.Sprintf("mail server 10.0.0.%d:25 does not answer", 7+i),
		})
	}
	for i := range 30 {
		at := now.Add(-time.Duration(i) * time.Second)
		rows = append(rows, Row{
			ID: fmt.Sprintf("done-%02d", i), Type: "OrderPlaced", Aggregate: "Order", AggregateID: fmt.Sprint(900 + i), Tenant: "acme",
			Status: outbox.StatusDone, Created: at.Add(-time.Duration(5+i) * time.Millisecond), Ended: at,
		})
	}
	return rows
}

// Marker is the attribute that a script of [Hostile] would set on the root element.
const Marker = "data-hacked"

// Hostile has a row for each way to break out of a page, in each column.
func Hostile(now time.Time) []Row {
	script := "document.documentElement.setAttribute('" + Marker + "','1')"
	texts := []string{
		"<script>" + script + "</script>",
		"\"><img src=x onerror=\"" + script + "\">",
		"'><svg onload=" + script + ">",
		"</title></textarea></pre><script>" + script + "</script>",
		"javascript:" + script,
		"{{.}}${1}`\u202e\u0001\r\n",
		"<a href=javascript:" + script + ">", "&lt;script&gt;" + script,
	}
	var rows []Row
	for i, t := range texts {
		short := func(n int) string { return cut(t, n) }
		row := Row{
			ID: cut(fmt.Sprint(i, t), 36), Type: short(128), Aggregate: short(64), AggregateID: short(128), Tenant: short(64),
			Headers: map[string]string{t: t}, Error: t, Lease: short(128), Leased: now, Created: now.Add(-time.Minute), Attempts: 1,
		}
		payload, _ := json.Marshal(map[string]string{t: t})
		row.Payload = string(payload)
		for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusRetry, outbox.StatusDone, outbox.StatusDead} {
			row.Status, row.ID, row.Ended = status, cut(fmt.Sprint(i, int(status), t), 36), time.Time{}
			if status.Terminal() {
				row.Ended = now
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func cut(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n])
	}
	return s
}
