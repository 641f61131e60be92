package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// question is a statement of the store, and the index that it should use.
type question struct {
	name  string
	index string // the end of its name; empty: the primary key
	ask   func(ctx context.Context, p *patient, db *sql.DB) error
}

var questions = []question{
	{"poll", "due", func(ctx context.Context, p *patient, db *sql.DB) error {
		_, err := p.Store.Poll(ctx, db, outbox.PollQuery{Now: p.Now(), Limit: outbox.DefaultPollBatch, LockTimeout: outbox.DefaultLockTimeout})
		return err
	}},
	{"claim", "due", func(ctx context.Context, p *patient, db *sql.DB) error {
		_, err := p.Store.Claim(ctx, db, outbox.ClaimQuery{Now: p.Now(), Limit: outbox.DefaultPollBatch, Lease: "doctor/1", LockTimeout: outbox.DefaultLockTimeout})
		return err
	}},
	{"mark", "", func(ctx context.Context, p *patient, db *sql.DB) error {
		_, err := p.Store.Mark(ctx, db, outbox.OutcomeDone, []outbox.Mark{{EventID: "doctor"}})
		return err
	}},
	{"purge", "done", func(ctx context.Context, p *patient, db *sql.DB) error {
		_, err := p.Store.Purge(ctx, db, outbox.PurgeQuery{Before: p.Now().Add(-24 * time.Hour), Limit: outbox.DefaultPurgeBatch})
		return err
	}},
}

// plans asks the database how it would run the store's statements. It looks at the first
// statement of each.
func (p *patient) plans(ctx context.Context) error {
	bad := 0
	for _, q := range questions {
		statements, err := record(func(db *sql.DB) error { return q.ask(ctx, p, db) })
		if err != nil || len(statements) == 0 {
			return fmt.Errorf("recording the statement of a %s: %w", q.name, err)
		}
		uses, could, err := p.plan(ctx, q, statements[0])
		if err != nil {
			return fmt.Errorf("explaining the statement of a %s: %w", q.name, err)
		}
		wanted := "the index " + p.table.Index(q.index)
		if q.index == "" {
			wanted = "the primary key"
		}
		switch {
		case !could:
			bad++
			p.report(Failure, fmt.Sprintf("a %s cannot use %s, so it reads the whole table", q.name, wanted), "see the check indexes; run outbox schema create if one is missing")
		case !uses:
			rows, err := p.rows(ctx)
			if err != nil {
				return err
			}
			if rows >= p.Limits.Rows {
				bad++
				p.report(Warning, fmt.Sprintf("a %s does not use %s, although the table has about %d rows", q.name, wanted, rows), p.analyze())
			}
		}
	}
	if bad == 0 {
		p.report(OK, "polls, claims, marks and purges can use their indexes", "")
	}
	return nil
}

func (p *patient) analyze() string {
	switch p.dialect {
	case "postgres":
		return "ANALYZE " + p.quoted()
	case "mysql":
		return "ANALYZE TABLE " + p.quoted()
	default:
		return "ANALYZE"
	}
}

// plan reports whether a statement uses the index, and whether it could.
func (p *patient) plan(ctx context.Context, q question, s statement) (uses, could bool, err error) {
	switch p.dialect {
	case "postgres":
		return p.postgresPlan(ctx, q, s)
	case "mysql":
		return p.mysqlPlan(ctx, q, s)
	}
	wanted := "event_id=?"
	if q.index != "" {
		wanted = p.table.Index(q.index)
	}
	err = p.each(ctx, "EXPLAIN QUERY PLAN "+s.text, s.args, func(rows *sql.Rows) error {
		var id, parent, unused int
		var detail string
		err := rows.Scan(&id, &parent, &unused, &detail)
		uses = uses || strings.Contains(detail, wanted)
		return err
	})
	return uses, uses, err
}

// postgresPlan asks twice: for the plan, and for the one without reading whole tables.
// Small tables are rightly read whole.
func (p *patient) postgresPlan(ctx context.Context, q question, s statement) (uses, could bool, err error) {
	tx, err := p.DB.BeginTx(ctx, nil)
	if err != nil {
		return false, false, err
	}
	defer func() { _ = tx.Rollback() }()
	wanted := p.table.Index(q.index)
	if q.index == "" {
		err = tx.QueryRowContext(ctx, "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass($1) AND i.indisprimary", p.quoted()).Scan(&wanted)
		if err != nil {
			return false, false, err
		}
	}
	var kind string
	if err := tx.QueryRowContext(ctx, "SELECT relkind::text FROM pg_class WHERE oid = to_regclass($1)", p.quoted()).Scan(&kind); err != nil {
		return false, false, err
	}
	fits := func() (bool, error) {
		var plan string
		err := tx.QueryRowContext(ctx, "EXPLAIN (FORMAT JSON) "+s.text, s.args...).Scan(&plan)
		if kind == "p" { // the indexes of partitions have other names
			return !strings.Contains(plan, `"Seq Scan"`), err
		}
		return strings.Contains(plan, `"`+wanted+`"`), err
	}
	if uses, err = fits(); err != nil || uses {
		return uses, uses, err
	}
	if _, err := tx.ExecContext(ctx, "SET LOCAL enable_seqscan = off"); err != nil {
		return false, false, err
	}
	could, err = fits()
	return uses, could, err
}

// leadingComment is before a mark: it sets a variable for that statement on MariaDB.
var leadingComment = regexp.MustCompile(`^/\*.*?\*/`)

func (p *patient) mysqlPlan(ctx context.Context, q question, s statement) (uses, could bool, err error) {
	wanted := "PRIMARY"
	if q.index != "" {
		wanted = p.table.Index(q.index)
	}
	err = p.each(ctx, "EXPLAIN "+leadingComment.ReplaceAllString(s.text, ""), s.args, func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		cells, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, column := range columns {
			has := strings.Contains(","+cells[i].String+",", ","+wanted+",")
			uses = uses || has && strings.EqualFold(column, "key")
			could = could || has && (strings.EqualFold(column, "possible_keys") || strings.EqualFold(column, "key"))
		}
		// Without a row that matches, MySQL does not choose an index at all.
		if strings.Contains(strings.Join(texts(cells), " "), "no matching row") {
			uses, could = true, true
		}
		return nil
	})
	return uses, could, err
}

func texts(cells []sql.NullString) []string {
	list := make([]string, len(cells))
	for i := range cells {
		list[i] = cells[i].String
	}
	return list
}

// rows is the planner's estimate of the table's rows. SQLite has none.
func (p *patient) rows(ctx context.Context) (n int64, err error) {
	switch p.dialect {
	case "postgres":
		err = p.one(ctx, "SELECT COALESCE(SUM(GREATEST(reltuples, 0)), 0)::bigint FROM pg_class WHERE oid = to_regclass($1) OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass($1))", []any{p.quoted()}, &n)
	case "mysql":
		err = p.one(ctx, "SELECT COALESCE(table_rows, 0) FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?", []any{p.table.Schema, p.table.Name}, &n)
	}
	return n, err
}
