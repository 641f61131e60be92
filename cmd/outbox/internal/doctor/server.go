package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// least holds the oldest versions of the servers that work.
var least = map[string][2]int{"PostgreSQL": {12, 0}, "MySQL": {8, 0}, "MariaDB": {10, 6}, "SQLite": {3, 35}}

// server checks the server's version.
func (p *patient) server(ctx context.Context) error {
	query, product := "SELECT version()", "MySQL"
	switch p.dialect {
	case "postgres":
		query, product = "SHOW server_version", "PostgreSQL"
	case "sqlite":
		query, product = "SELECT sqlite_version()", "SQLite"
	}
	var version string
	if err := p.one(ctx, query, nil, &version); err != nil {
		p.report(Failure, "the server does not answer: "+err.Error(), "check the address and the server")
		return nil
	}
	for _, other := range []string{"MariaDB", "TiDB"} {
		if strings.Contains(version, other) {
			product = other
		}
	}
	p.reportServer(product, version)
	return nil
}

func (p *patient) reportServer(product, version string) {
	version, _, _ = strings.Cut(version, " ")
	version, _, _ = strings.Cut(version, "-")
	needed, known := least[product]
	switch {
	case !known:
		p.report(Note, fmt.Sprintf("%s %s", product, version), "only outbox.SingleNode and outbox.Ordered work, and it is not tested regularly")
	case isOlder(version, needed):
		p.report(Failure, fmt.Sprintf("%s %s is too old", product, version), fmt.Sprintf("upgrade to %s %d.%d or newer", product, needed[0], needed[1]))
	default:
		p.report(OK, fmt.Sprintf("%s %s", product, version), "")
	}
}

// isOlder compares the first two numbers of a version.
func isOlder(version string, needed [2]int) bool {
	parts := strings.SplitN(version, ".", 3)
	for i, n := range needed {
		if i >= len(parts) {
			return false
		}
		have, err := strconv.Atoi(parts[i])
		if err != nil || have != n {
			return err == nil && have < n
		}
	}
	return false
}

// pooler compares the process that the server announced at the start of this connection with the
// process that answers: a pooler such as PgBouncer invents the announced process.
func (p *patient) pooler(ctx context.Context) error {
	conn, err := p.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var told, answers uint32
	if err := conn.Raw(func(driver any) error {
		if c, ok := driver.(interface{ Conn() *pgx.Conn }); ok {
			told = c.Conn().PgConn().PID()
		}
		return nil
	}); err != nil {
		return err
	}
	if err := conn.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&answers); err != nil {
		return err
	}
	if told != answers && told != 0 {
		p.report(Note, "a pooler such as PgBouncer is between this machine and the server",
			"in transaction mode, give the drivers of your services the settings in docs/reliability/SYSTEMS.md, and give notifiers an address past the pooler")
		return nil
	}
	p.report(OK, "the connection leads to the server itself", "")
	return nil
}

// isolation checks the level that transactions have by default.
func (p *patient) isolation(ctx context.Context) error {
	level := ""
	if p.dialect == "postgres" {
		if err := p.one(ctx, "SHOW default_transaction_isolation", nil, &level); err != nil {
			return err
		}
	} else {
		values, err := p.variables(ctx, "transaction_isolation", "tx_isolation")
		if err != nil {
			return err
		}
		level = cmp.Or(values["transaction_isolation"], values["tx_isolation"]) // newer and older servers
		level = strings.ToLower(strings.ReplaceAll(level, "-", " "))
	}
	p.reportIsolation(level)
	return nil
}

func (p *patient) reportIsolation(level string) {
	seen := "transactions are " + level + " by default"
	switch {
	case level == "read committed", level == "repeatable read" && p.dialect == "mysql":
		p.report(OK, seen, "")
	case level == "read uncommitted" && p.dialect == "mysql":
		p.report(Failure, seen+", so pollers deliver events of transactions that may roll back", "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED")
	case level == "read uncommitted":
		p.report(OK, seen+", which PostgreSQL treats as read committed", "")
	default:
		p.report(Note, seen+", so each of the outbox's own statements needs a transaction of its own for read committed", "set read committed as the default of the service's role or connections, and a stricter level where a transaction needs it")
	}
}

// sqlMode checks MySQL's mode.
func (p *patient) sqlMode(ctx context.Context) error {
	var mode string
	if err := p.one(ctx, "SELECT @@SESSION.sql_mode", nil, &mode); err != nil {
		return err
	}
	if strings.Contains(mode, "STRICT_TRANS_TABLES") || strings.Contains(mode, "STRICT_ALL_TABLES") {
		p.report(OK, "sql_mode is strict", "")
		return nil
	}
	p.report(Warning, "sql_mode is not strict: MySQL cuts values that are too long instead of refusing them", "add STRICT_TRANS_TABLES to sql_mode of the server, or to the address of the services")
	return nil
}

// binaryLog checks MySQL's binary log.
func (p *patient) binaryLog(ctx context.Context) error {
	values, err := p.variables(ctx, "log_bin", "binlog_format")
	if err != nil {
		return err
	}
	p.reportBinaryLog(values["log_bin"], values["binlog_format"])
	return nil
}

func (p *patient) reportBinaryLog(logBin, format string) {
	switch {
	case !strings.EqualFold(logBin, "ON") && logBin != "1":
		p.report(OK, "the binary log is off", "")
	case strings.EqualFold(format, "STATEMENT"):
		p.report(Failure, "binlog_format is STATEMENT, with which InnoDB refuses to claim and to purge in read committed (error 1665)", "SET GLOBAL binlog_format = 'ROW', and in the server's configuration")
	default:
		p.report(OK, "binlog_format is "+strings.ToUpper(format), "")
	}
}

// storage checks how the database stores the table.
func (p *patient) storage(ctx context.Context) error {
	switch p.dialect {
	case "postgres":
		if err := p.logged(ctx); err != nil {
			return err
		}
		return p.fillfactor(ctx)
	case "mysql":
		return p.innoDB(ctx)
	default:
		return p.journal(ctx)
	}
}

func (p *patient) innoDB(ctx context.Context) error {
	var engine, format, collation sql.NullString
	err := p.one(ctx, "SELECT engine, row_format, table_collation FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?",
		[]any{p.table.Schema, p.table.Name}, &engine, &format, &collation)
	if err != nil {
		return err
	}
	worst := OK
	bad := func(level Level, seen, wayOut string) {
		worst = level
		p.report(level, seen, "ALTER TABLE "+p.quoted()+" "+wayOut)
	}
	if !strings.EqualFold(engine.String, "InnoDB") {
		bad(Failure, "the engine is "+engine.String+", which has no transactions", "ENGINE = InnoDB")
	}
	if f := strings.ToUpper(format.String); engine.String == "InnoDB" && f != "DYNAMIC" {
		bad(Note, "the row format is "+f+", which keeps the beginning of long payloads in the row, so that fewer rows fit into a page", "ROW_FORMAT = DYNAMIC")
	}
	if !strings.HasPrefix(collation.String, "utf8mb4") || !strings.HasSuffix(collation.String, "_bin") {
		bad(Warning, "the collation is "+collation.String+", with which ids that differ only in case are equal", "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	}
	if worst == OK {
		p.report(OK, fmt.Sprintf("InnoDB, %s rows, %s", strings.ToLower(format.String), collation.String), "")
	}
	return nil
}

// journal checks SQLite's journal.
func (p *patient) journal(ctx context.Context) error {
	var mode string
	if err := p.one(ctx, "PRAGMA journal_mode", nil, &mode); err != nil {
		return err
	}
	if mode == "wal" {
		p.report(OK, "the journal is a write-ahead log", "")
		return nil
	}
	p.report(Note, "the journal's mode is "+mode+", in which readers and the writer wait for each other", "PRAGMA journal_mode = WAL")
	return nil
}
