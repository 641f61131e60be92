package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The parts of the table that fill makes.
const (
	chunk        = 100_000 // rows of a statement: a row for each number of five digits
	week         = 7 * 24 * time.Hour
	kinds        = 40
	pausedKinds  = 30
	reasons      = 30
	tenants      = 500
	keys         = 200_000
	auditEntries = 10_000
)

// words are the parts of the errors by which the dead letters form groups, eight letters each.
const words = "paymentsshippinginvoicesreceiptsorderingstoragesdeliverycustomerproductsdiscount" +
	"vouchersaccountsbalancesledgeredclearingsettlingmatchingrefundedpartnerssupplier" +
	"contractmessagesmailingsprintingscanningindexingsearcherrankingscatalogsgeocoder"

// pad makes a payload of about 200 bytes.
const pad = "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

// dialect has the texts that differ between the databases.
type dialect struct {
	series string // the numbers from FIRST on, below BEHIND
	at     string // a time from milliseconds
	div    string
	json   string
	hash   string // 32 hexadecimal digits of n; MySQL 9.6 has no MD5
}

const digits = "SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4" +
	" UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9"

var dialects = map[string]dialect{
	"postgres": {
		series: "SELECT g AS n FROM generate_series(CAST(FIRST AS BIGINT), BEHIND - 1) AS g",
		at:     "to_timestamp((%s) / 1000.0)", div: "/", json: "CAST(%s AS json)", hash: "MD5(CONCAT(n))",
	},
	"mysql": {
		series: "SELECT FIRST + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d AS n FROM (" + digits + ") a CROSS JOIN (" + digits +
			") b CROSS JOIN (" + digits + ") c CROSS JOIN (" + digits + ") d CROSS JOIN (" + digits + ") e",
		at: "TIMESTAMPADD(MICROSECOND, (%s) * 1000, '1970-01-01 00:00:00')", div: "DIV", json: "%s", hash: "LEFT(SHA2(CONCAT(n), 224), 32)",
	},
}

// fill makes the tables and fills them: of 200 rows 10 are DEAD, 3 RETRY, and the others DONE, apart from
// one NEW row in 1,000, which is delayed, and the last 50,000 rows, which are NEW and due.
func fill(ctx context.Context, db *sql.DB, d dialect, store *sqlstore.Store, rows int) error {
	if err := store.CreateSchema(ctx, db); err != nil {
		return err
	}
	now := time.Now().UnixMilli()
	first := now - week.Milliseconds()
	step := week.Milliseconds() / int64(rows)
	at := func(ms string) string { return fmt.Sprintf(d.at, ms) }
	const alphabet = "'0123456789ABCDEFGHJKMNPQRSTVWXYZ'"
	id := "CONCAT("
	for bits := 45; bits >= 0; bits -= 5 {
		id += fmt.Sprintf("SUBSTR(%s, CAST(((ms >> %d) & 31) + 1 AS %s), 1), ", alphabet, bits, map[bool]string{true: "INT", false: "SIGNED"}[d.div == "/"])
	}
	id += "'0000', UPPER(SUBSTR(HASH, 1, 12)))"
	word := fmt.Sprintf("SUBSTR('%s', CAST(n * 104729 %% 1000003 %% %d * 8 + 1 AS %s), 8)", words, reasons, map[bool]string{true: "INT", false: "SIGNED"}[d.div == "/"])
	failed := "CONCAT('calling ', " + word + ", ': dial tcp 10.0.0.', n % 250, ':443: i/o timeout after ', n % 1000, ' ms (request ', HASH, ')')"
	payload := fmt.Sprintf(d.json, `CONCAT('{"order":"key-', n * 31 % 200000, '","number":', n, ',"item":"`+pad+`"}')`)
	headers := fmt.Sprintf(d.json, `CONCAT('{"traceparent":"00-', HASH, '-', SUBSTR(HASH, 1, 16), '-01"}')`)
	if d.div == "/" {
		headers = fmt.Sprintf("CAST(%s AS jsonb)", headers)
	}
	// state: 0 NEW, due; 5 NEW, delayed; 6 NEW, under a lease; 1, 2 and 3 as in the table.
	state := fmt.Sprintf("CASE WHEN n >= %d THEN 6 WHEN n >= %d THEN 0 WHEN n %% 1000 = 14 THEN 5 WHEN n %% 200 < 10 THEN 3 WHEN n %% 200 < 13 THEN 2 ELSE 1 END", rows-500, rows-rows/200)
	query := "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, status, attempts, available_at, created_at, done_at, last_error, locked_by, locked_at)" +
		" SELECT " + id + ", CONCAT('Kind', n * 7919 % 1000003 % " + fmt.Sprint(kinds) + "), CONCAT('Aggregate', n * 7919 % 1000003 % " + fmt.Sprint(kinds) + " % 8)," +
		fmt.Sprintf(" CONCAT('key-', n * 31 %% %d), CONCAT('tenant-', n %% %d), ", keys, tenants) + payload + ", " + headers + "," +
		" CASE WHEN state IN (5, 6) THEN 0 ELSE state END, CASE state WHEN 2 THEN 3 WHEN 3 THEN 10 ELSE 0 END," +
		" CASE state WHEN 2 THEN " + at(fmt.Sprintf("%d + n %% 86400000", now+3_600_000)) + " WHEN 5 THEN " + at(fmt.Sprintf("%d + n * 200", now+3_600_000)) + " ELSE " + at("ms") + " END, " +
		at("ms") + ", CASE state WHEN 1 THEN " + at("ms + n % 400") + " WHEN 3 THEN " + at("ms + 300000") + " END," +
		" CASE WHEN state IN (2, 3) THEN " + failed + " END," +
		" CASE state WHEN 6 THEN 'node-dead-1/" + "01CLAIM" + "' END, CASE state WHEN 6 THEN " + at(fmt.Sprint(now-600_000)) + " END" +
		" FROM (SELECT n, " + fmt.Sprintf("%d + n * %d", first, step) + " AS ms, " + state + " AS state FROM (" + d.series + ") numbers) numbered WHERE n < BEHIND ORDER BY n"
	began := time.Now()
	for from := 0; from < rows; from += chunk {
		if _, err := db.ExecContext(ctx, d.ofRows(query, from, min(from+chunk, rows))); err != nil {
			return fmt.Errorf("filling from row %d on: %w", from, err)
		}
		if from%1_000_000 == 0 {
			fmt.Printf("%d rows after %s\n", from+chunk, time.Since(began).Round(time.Second))
		}
	}
	if _, err := db.ExecContext(ctx, d.ofRows("INSERT INTO outbox_event_control (kind, name, value, expires_at) SELECT 'audit', "+id+
		`, CONCAT('{"at":"2026-01-02T03:04:05Z","by":"operator-', n % 20, '","from":"10.0.0.1","action":"replay","target":"event_type=Kind', n % 40, '","count":', n, ',"reason":"after the repair of the partner"}'), `+
		at(fmt.Sprint(now+90*24*3_600_000))+" FROM (SELECT n, "+fmt.Sprint(first)+" + n * 60000 AS ms FROM ("+d.series+") numbers) numbered WHERE n < BEHIND", 0, auditEntries)); err != nil {
		return fmt.Errorf("filling the audit log: %w", err)
	}
	fmt.Printf("filled after %s\n", time.Since(began).Round(time.Second))
	if d.div == "/" {
		_, err := db.ExecContext(ctx, "VACUUM ANALYZE outbox_event")
		return err
	}
	_, err := db.ExecContext(ctx, "ANALYZE TABLE outbox_event, outbox_event_control")
	return err
}

// ofRows puts the first row, and the row behind the last, into a statement.
func (d *dialect) ofRows(query string, first, behind int) string {
	return strings.NewReplacer("FIRST", fmt.Sprint(first), "BEHIND", fmt.Sprint(behind), "HASH", d.hash).Replace(query)
}

// prepare writes the rows that end by themselves: pauses, and the reports of nodes.
func prepare(ctx context.Context, db *sql.DB, store *sqlstore.Store) error {
	for k := range pausedKinds {
		pause := outbox.Pause{Kind: kind(k), Since: time.Now(), Reason: "the partner is down", By: "operator-1"}
		if err := store.Pause(ctx, db, pause); err != nil {
			return err
		}
	}
	for i := range 5 {
		d := time.Hour
		if i < 3 {
			d = -time.Minute
		}
		var heard []outbox.EventKind
		for k := range kinds {
			heard = append(heard, kind(k))
		}
		node := outbox.Node{
			Owner: fmt.Sprintf("node-%s-%d", map[bool]string{true: "dead", false: "live"}[i < 3], i), Mode: "MultiNode", Started: time.Now().Add(-time.Hour),
			LastPoll: time.Now(), Leases: 100, Totals: &outbox.Totals{Written: 1000, Delivered: 900, Failed: 3}, Kinds: heard,
		}
		if err := store.Announce(ctx, db, node, d); err != nil {
			return err
		}
	}
	return nil
}

func kind(k int) outbox.EventKind {
	return outbox.EventKind{AggregateType: outbox.AggregateType(fmt.Sprintf("Aggregate%d", k%8)), EventType: outbox.EventType(fmt.Sprintf("Kind%d", k))}
}
