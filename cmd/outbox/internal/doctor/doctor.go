// Package doctor looks for problems that keep an outbox from working well: in the table, in the
// settings of the database, and in other sessions. It writes a row in a transaction that it rolls
// back, and changes nothing.
package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Level says how bad a finding is.
type Level int

// The levels. A note needs no repair, but is worth knowing.
const (
	OK Level = iota
	Note
	Warning
	Failure
)

// String returns ok, note, warning or failure.
func (l Level) String() string { return [...]string{"ok", "note", "warning", "failure"}[l] }

// MarshalText returns the text of [Level.String].
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is a result of a check.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Seen describes the finding, and WayOut says how to repair it; WayOut is empty if there is
	// nothing to repair.
	Seen   string `json:"seen"`
	WayOut string `json:"way_out,omitempty"`
	// Page is the section of the documents that explains the check: a path in the repository.
	Page string `json:"page"`
}

// Page explains all checks; a path in the repository.
const Page = "docs/reference/doctor.md"

// Checks returns the names of all checks, in their order.
func Checks() (names []string) {
	for _, c := range slices.Concat(first, checks) {
		names = append(names, c.name)
	}
	return names
}

// Config names the outbox to examine. DB, Store and Outbox are required.
type Config struct {
	DB     *sql.DB
	Store  *sqlstore.Store
	Outbox *outbox.Outbox // on DB and Store; need not run
	Limits Limits
	// Now is this machine's clock. Defaults to time.Now.
	Now func() time.Time
}

// Limits say where a warning begins. Zero means the default.
type Limits struct {
	ClockDifference time.Duration // defaults to 1 s
	Transaction     time.Duration // the age of a transaction; defaults to 1 min
	Due             time.Duration // how long an event has been due; defaults to 5 min
	Lease           time.Duration // the age of a lease; defaults to outbox.DefaultLeaseDuration
	Poll            time.Duration // since a process's last poll; defaults to 5 min
	FreeConnections int           // defaults to 10
	DeadRows        int64         // that vacuum has to remove; defaults to 100,000
	Rows            int64         // from which a plan must use an index; defaults to 10,000
	Check           time.Duration // how long a check may take; defaults to 15 s
	// NotDurable allows settings with which a power failure destroys the database, as tests have them.
	NotDurable bool
}

func (l Limits) withDefaults() Limits {
	for field, def := range map[*time.Duration]time.Duration{
		&l.ClockDifference: time.Second, &l.Transaction: time.Minute, &l.Due: 5 * time.Minute, &l.Lease: outbox.DefaultLeaseDuration, &l.Poll: 5 * time.Minute, &l.Check: 15 * time.Second,
	} {
		if *field == 0 {
			*field = def
		}
	}
	if l.FreeConnections == 0 {
		l.FreeConnections = 10
	}
	if l.DeadRows == 0 {
		l.DeadRows = 100_000
	}
	if l.Rows == 0 {
		l.Rows = 10_000
	}
	return l
}

// patient is the outbox under examination.
type patient struct {
	Config
	dialect  string
	table    sqlname.Name
	check    string // the check that runs
	findings []Finding
	// exactCollation is that of the schema, for MySQL.
	exactCollation string
}

// check is a question about the outbox. A check reports at least one finding.
type check struct {
	name     string
	dialects string // empty: all
	run      func(*patient, context.Context) error
}

// first are the checks without which the other checks make no sense.
var first = []check{
	{"server", "", (*patient).server},
	{"table", "", (*patient).tables},
}

var checks = []check{
	{"timeouts", "", (*patient).timeouts},
	{"rehearsal", "", (*patient).rehearse},
	{"columns", "postgres mysql", (*patient).times},
	{"pooler", "postgres", (*patient).pooler},
	{"several nodes", "", (*patient).claims},
	{"isolation", "postgres mysql", (*patient).isolation},
	{"session", "mysql", (*patient).sessionVariables},
	{"binary log", "mysql", (*patient).binaryLog},
	{"indexes", "", (*patient).indexes},
	{"plans", "", (*patient).plans},
	{"storage", "", (*patient).storage},
	{"vacuum", "postgres", (*patient).vacuum},
	{"clock", "postgres mysql", (*patient).clock},
	{"transactions", "postgres mysql", (*patient).transactions},
	{"connections", "postgres mysql", (*patient).connections},
	{"nodes", "", (*patient).nodes},
	{"backlog", "", (*patient).backlog},
}

// ErrNoAnswer says that the database did not answer, or stopped answering.
var ErrNoAnswer = errors.New("the database does not answer")

// Examine runs all checks. If the table is not usable, Examine reports this and leaves out the other
// checks. If the database does not answer a check in time, Examine also returns ErrNoAnswer with the
// findings. Otherwise Examine fails only if ctx ends.
func Examine(ctx context.Context, cfg Config) ([]Finding, error) {
	name, err := sqlname.Parse(cfg.Store.Table())
	if err != nil {
		return nil, fmt.Errorf("doctor: the table's name: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Limits = cfg.Limits.withDefaults()
	p := &patient{Config: cfg, dialect: cfg.Store.Dialect(), table: name}
	for _, list := range [][]check{first, checks} {
		for _, c := range list {
			if c.dialects != "" && !slices.Contains(strings.Fields(c.dialects), p.dialect) {
				continue
			}
			if err := p.examine(ctx, c); err != nil {
				return p.findings, err
			}
		}
		if Worst(p.findings) == Failure {
			break
		}
	}
	return p.findings, nil
}

// examine runs a check. A check that fails is a finding too.
func (p *patient) examine(ctx context.Context, c check) error {
	limited, cancel := context.WithTimeout(ctx, p.Limits.Check)
	defer cancel()
	p.check = c.name
	err := safely(func() error { return c.run(p, limited) })
	var panicked *panicError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
	case limited.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		// The checks after a timeout would wait as long, each of them.
		p.report(Failure, fmt.Sprintf("the database did not answer within %s", p.Limits.Check), "look for locks on the table, such as that of an ALTER TABLE, and for an overloaded server")
		return ErrNoAnswer
	case sqlerr.IsUnreachable(err):
		p.report(Failure, "the database stopped answering: "+sqlerr.WithoutAddress(err, "").Error(), "look at the log of the server, and run doctor again")
		return ErrNoAnswer
	case errors.As(err, &panicked):
		p.report(Warning, "the check itself failed: "+panicked.Error(), "report this to the project, with the version of this command and of the database")
	case isForbidden(err):
		p.report(Note, "not checked: "+err.Error(), "give the user of the address the right to read this, or run doctor as another user")
	default:
		p.report(Warning, "not checked: "+err.Error(), "repair what the text names, and run doctor again")
	}
	return nil
}

// panicError is a check that panicked.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func safely(run func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v}
		}
	}()
	return run()
}

// isForbidden reports whether the user lacks a right.
func isForbidden(err error) bool {
	return sqlerr.HasState(err, "42501") || sqlerr.HasNumber(err, 1044, 1142, 1143, 1227, 1345, 1370)
}

func (p *patient) report(level Level, seen, wayOut string) {
	p.findings = append(p.findings, Finding{p.check, level, seen, wayOut, Page + "#" + strings.ReplaceAll(p.check, " ", "-")})
}

// Worst returns the worst level of the findings.
func Worst(findings []Finding) Level {
	worst := OK
	for _, f := range findings {
		worst = max(worst, f.Level)
	}
	return worst
}

// quoted returns the table's name for a statement.
func (p *patient) quoted() string {
	return p.quote(p.table)
}

func (p *patient) quote(name sqlname.Name) string {
	if p.dialect == "mysql" {
		return name.Quoted("`")
	}
	return name.Quoted(`"`)
}

// one reads a single row.
func (p *patient) one(ctx context.Context, query string, args []any, into ...any) error {
	return p.DB.QueryRowContext(ctx, query, args...).Scan(into...)
}

// each reads rows.
func (p *patient) each(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := p.DB.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// variables reads variables of MySQL. The variables that exist depend on the version.
func (p *patient) variables(ctx context.Context, names ...string) (map[string]string, error) {
	values := map[string]string{}
	query := "SHOW VARIABLES WHERE Variable_name IN ('" + strings.Join(names, "', '") + "')"
	err := p.each(ctx, query, nil, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		values[strings.ToLower(name)] = value
		return err
	})
	return values, err
}
