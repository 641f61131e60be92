package doctor

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/catalog"
	"github.com/outboxkit/outbox-go/outbox"
)

// question is a statement of the store, and the index that it should use.
type question struct {
	name  string
	index string // the end of the index's name; empty: the primary key
	ask   func(ctx context.Context, p *patient, db *sql.DB) error
}

var questions = []question{
	{"poll", "due", func(ctx context.Context, p *patient, db *sql.DB) error {
		_, err := p.Store.Poll(ctx, db, outbox.PollQuery{Now: p.Now(), Limit: outbox.DefaultPollBatch, LeaseDuration: outbox.DefaultLeaseDuration})
		return err
	}},
	{"claim", "due", func(ctx context.Context, p *patient, db *sql.DB) error {
		_, err := p.Store.Claim(ctx, db, outbox.ClaimQuery{Now: p.Now(), Limit: outbox.DefaultPollBatch, Lease: "doctor/1", LeaseDuration: outbox.DefaultLeaseDuration})
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

// plans asks the database how it would run the store's statements. Only the first statement of each
// call is examined. plans leaves out an index that is missing: the check indexes reports this.
func (p *patient) plans(ctx context.Context) error {
	list, err := catalog.Indexes(ctx, p.DB, p.dialect, p.table)
	if err != nil {
		return err
	}
	bad := 0
	for _, q := range questions {
		if q.index != "" && p.ddl(p.table.Index(q.index)) != "" && !catalog.Has(list, p.table.Index(q.index)) {
			bad++
			continue
		}
		fine, err := p.question(ctx, q)
		if err != nil {
			return err
		}
		if !fine {
			bad++
		}
	}
	if bad == 0 {
		p.report(OK, "polls, claims, marks and purges can use their indexes", "")
	}
	return nil
}

// question reports whether a statement uses the wanted index, as far as the table needs the index.
func (p *patient) question(ctx context.Context, q question) (fine bool, err error) {
	statements, err := record(func(db *sql.DB) error { return q.ask(ctx, p, db) })
	if err != nil || len(statements) == 0 {
		return false, fmt.Errorf("recording the statement of a %s: %w", q.name, err)
	}
	uses, could, err := p.plan(ctx, q, statements[0])
	if err != nil {
		return false, fmt.Errorf("explaining the statement of a %s: %w", q.name, err)
	}
	wanted := "the index " + p.table.Index(q.index)
	if q.index == "" {
		wanted = "the primary key"
	}
	switch {
	case !could:
		p.report(Failure, fmt.Sprintf("a %s cannot use %s, so it reads the whole table", q.name, wanted), "compare "+wanted+" with that of outbox schema print")
		return false, nil
	case uses:
		return true, nil
	}
	rows, err := p.rows(ctx)
	if err != nil || rows < p.Limits.Rows {
		return true, err
	}
	p.report(Warning, fmt.Sprintf("a %s does not use %s, although the table has about %d rows", q.name, wanted, rows), p.analyze())
	return false, nil
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

// plan reports whether a statement uses the index, and whether the statement could use it.
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

// postgresPlan reports whether the plan has the index. An index that exists could be used:
// PostgreSQL rightly reads a small table otherwise. The indexes of partitions have other names, so
// for a partitioned table the partitions that are read whole count instead.
func (p *patient) postgresPlan(ctx context.Context, q question, s statement) (uses, could bool, err error) {
	var text, kind, primary string
	if err := p.one(ctx, "EXPLAIN (FORMAT JSON) "+s.text, s.args, &text); err != nil {
		return false, false, err
	}
	err = p.one(ctx, "SELECT relkind::text, COALESCE((SELECT x.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = t.oid AND i.indisprimary), '')"+
		" FROM pg_class t WHERE oid = to_regclass($1)", []any{p.quoted()}, &kind, &primary)
	if err != nil {
		return false, false, err
	}
	if q.index == "" && primary == "" {
		return false, false, nil
	}
	if kind == "p" {
		uses, err = p.readsNoLargePartition(ctx, text)
		return uses, true, err
	}
	wanted := primary
	if q.index != "" {
		wanted = p.table.Index(q.index)
	}
	return strings.Contains(text, `"`+wanted+`"`), true, nil
}

// readsNoLargePartition reports whether the plan reads no large partition whole.
func (p *patient) readsNoLargePartition(ctx context.Context, text string) (bool, error) {
	large := map[string]bool{}
	err := p.each(ctx, "SELECT relname FROM pg_class WHERE oid IN (SELECT relid FROM pg_partition_tree(to_regclass($1)) WHERE isleaf) AND reltuples >= $2",
		[]any{p.quoted(), p.Limits.Rows}, func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			large[name] = true
			return err
		})
	if err != nil {
		return false, err
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		return false, err
	}
	for i := range plans {
		if plans[i].Plan.scans(large) {
			return false, nil
		}
	}
	return true, nil
}

// planNode is a step of a plan of PostgreSQL.
type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Plans    []planNode `json:"Plans"`
}

// scans reports whether the step, or a step below it, reads one of these tables whole.
func (n *planNode) scans(tables map[string]bool) bool {
	if n.Type == "Seq Scan" && tables[n.Relation] {
		return true
	}
	for i := range n.Plans {
		if n.Plans[i].scans(tables) {
			return true
		}
	}
	return false
}

// leadingComment matches the comment before a mark. The comment sets a variable for this statement
// on MariaDB.
var leadingComment = regexp.MustCompile(`^/\*.*?\*/`)

func (p *patient) mysqlPlan(ctx context.Context, q question, s statement) (uses, could bool, err error) {
	wanted := "PRIMARY"
	if q.index != "" {
		wanted = p.table.Index(q.index)
	}
	err = p.each(ctx, "EXPLAIN FORMAT=TRADITIONAL "+leadingComment.ReplaceAllString(s.text, ""), s.args, func(rows *sql.Rows) error {
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

// rows returns the planner's estimate of the table's rows. SQLite has no estimate.
func (p *patient) rows(ctx context.Context) (n int64, err error) {
	switch p.dialect {
	case "postgres":
		err = p.one(ctx, "SELECT COALESCE(SUM(GREATEST(reltuples, 0)), 0)::bigint FROM pg_class WHERE oid = to_regclass($1) AND relkind <> 'p' OR oid IN (SELECT relid FROM pg_partition_tree(to_regclass($1)) WHERE isleaf)", []any{p.quoted()}, &n)
	case "mysql":
		err = p.one(ctx, "SELECT COALESCE(table_rows, 0) FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?", []any{p.table.Schema, p.table.Name}, &n)
	}
	return n, err
}
