package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/sqlname"
)

// least holds the oldest versions of the servers that work.
var least = map[string][2]int{"PostgreSQL": {12, 0}, "MySQL": {8, 0}, "MariaDB": {10, 6}, "SQLite": {3, 35}}

// exactCollations are the collations of the schema: they compare case and trailing spaces.
var exactCollations = map[string]string{"MySQL": "utf8mb4_0900_bin", "MariaDB": "utf8mb4_nopad_bin", "TiDB": "utf8mb4_bin"}

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
		if ctx.Err() != nil || sqlerr.IsUnreachable(err) {
			return err
		}
		p.report(Failure, "the server does not answer: "+oneLine(err), "check the address and the server")
		return nil
	}
	for _, other := range []string{"MariaDB", "TiDB"} {
		if strings.Contains(version, other) {
			product = other
		}
	}
	p.exactCollation = exactCollations[product]
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
			"in transaction mode, give the drivers of your services the settings in docs/how-to/pgbouncer.md, and give notifiers an address past the pooler")
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

// leastPacket is the size of the largest INSERT of many events, which is 4 MiB of payloads, doubled.
const leastPacket = 8 << 20

// sessionVariables checks MySQL's mode, and other variables that change statements.
func (p *patient) sessionVariables(ctx context.Context) error {
	values, err := p.variables(ctx, "sql_mode", "sql_safe_updates", "sql_select_limit", "max_join_size", "max_allowed_packet", "character_set_client", "character_set_connection")
	if err != nil {
		return err
	}
	p.reportVariables(values)
	return nil
}

func (p *patient) reportVariables(values map[string]string) {
	const everywhere = " of the server, init_connect and the address of the services"
	found := len(p.findings)
	mode := values["sql_mode"]
	if !strings.Contains(mode, "STRICT_TRANS_TABLES") && !strings.Contains(mode, "STRICT_ALL_TABLES") {
		p.report(Warning, "sql_mode is not strict: MySQL cuts values that are too long instead of refusing them", "add STRICT_TRANS_TABLES to sql_mode of the server, or to the address of the services")
	}
	if on := values["sql_safe_updates"]; strings.EqualFold(on, "ON") || on == "1" {
		p.report(Warning, "sql_safe_updates is on, so the server refuses changes that read rows without a key (error 1175)", "remove sql_safe_updates from the settings"+everywhere)
	}
	for _, name := range []string{"character_set_client", "character_set_connection"} {
		if set := values[name]; set != "utf8mb4" {
			p.report(Warning, fmt.Sprintf("%s is %s, so the server stores other texts than were written", name, set), "give the address of the services the character set utf8mb4, which is the driver's default")
			break
		}
	}
	for _, name := range []string{"sql_select_limit", "max_join_size"} {
		if n, err := strconv.ParseUint(values[name], 10, 64); err == nil && n < 1_000_000 {
			p.report(Warning, fmt.Sprintf("%s is %d, so reads return too few rows or fail", name, n), "remove "+name+" from the settings"+everywhere)
		}
	}
	if n, err := strconv.ParseUint(values["max_allowed_packet"], 10, 64); err == nil && n < leastPacket {
		p.report(Warning, fmt.Sprintf("max_allowed_packet is %d, so an INSERT of many or large events fails", n), "SET GLOBAL max_allowed_packet = 16777216, and in the server's configuration")
	}
	if len(p.findings) == found {
		p.report(OK, "sql_mode is strict, and no variable changes what statements do", "")
	}
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
		if err := p.durable(ctx); err != nil {
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
	found := len(p.findings)
	healthy := ""
	err := p.each(ctx, "SELECT table_name, engine, row_format, table_collation FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name IN (?, ?) ORDER BY 1",
		[]any{p.table.Schema, p.table.Name, p.table.Table("control").Name}, func(rows *sql.Rows) error {
			var table, engine, format, collation sql.NullString
			if err := rows.Scan(&table, &engine, &format, &collation); err != nil {
				return err
			}
			name := p.table
			name.Name = table.String
			p.innoDBTable(name, engine.String, strings.ToUpper(format.String), collation.String)
			if healthy == "" {
				healthy = fmt.Sprintf("InnoDB, %s rows, %s", strings.ToLower(format.String), collation.String)
			}
			return nil
		})
	if err == nil && len(p.findings) == found {
		p.report(OK, healthy, "")
	}
	return err
}

func (p *patient) innoDBTable(name sqlname.Name, engine, format, collation string) {
	report := func(level Level, format, value, wayOut string) {
		p.report(level, fmt.Sprintf(format, name.Name, value), "ALTER TABLE "+name.Quoted("`")+" "+wayOut)
	}
	isInnoDB := strings.EqualFold(engine, "InnoDB")
	if !isInnoDB {
		report(Failure, "the engine of %s is %s, which has no transactions", engine, "ENGINE = InnoDB")
	}
	if isInnoDB && format != "DYNAMIC" && name.Name == p.table.Name {
		report(Note, "the row format of %s is %s, which keeps the beginning of long payloads in the row, so that fewer rows fit into a page", format, "ROW_FORMAT = DYNAMIC")
	}
	exact := "CONVERT TO CHARACTER SET utf8mb4 COLLATE " + p.exactCollation
	switch {
	case !strings.HasPrefix(collation, "utf8mb4"):
		report(Warning, "the collation of %s is %s, whose character set cannot store every text", collation, exact)
	case !strings.HasSuffix(collation, "_bin"):
		report(Warning, "the collation of %s is %s, with which ids that differ only in case are equal", collation, exact)
	case collation == "utf8mb4_bin" && p.exactCollation != collation:
		report(Warning, "the collation of %s is %s, with which ids that differ only in spaces at the end are equal", collation, exact)
	}
}

// journal checks SQLite's journal.
func (p *patient) journal(ctx context.Context) error {
	var journal, locking string
	var synchronous int
	for pragma, into := range map[string]any{"journal_mode": &journal, "locking_mode": &locking, "synchronous": &synchronous} {
		if err := p.one(ctx, "PRAGMA "+pragma, nil, into); err != nil {
			return err
		}
	}
	found := len(p.findings)
	switch journal {
	case "wal":
	case "off":
		p.report(Failure, "the journal is off, so no transaction can be rolled back, and events of transactions that failed are delivered", "PRAGMA journal_mode = WAL")
	case "memory":
		p.report(Warning, "the journal is in memory, so a crash of a process destroys the file", "PRAGMA journal_mode = WAL")
	default:
		p.report(Note, "the journal's mode is "+journal+", in which readers and the writer wait for each other", "PRAGMA journal_mode = WAL")
	}
	if locking == "exclusive" {
		p.report(Warning, "locking_mode is EXCLUSIVE, so the first connection locks out all others", "remove locking_mode from the address of the services")
	}
	if synchronous == 0 && !p.Limits.NotDurable {
		p.report(Warning, "synchronous is OFF, so a power failure can destroy the file", "give the address of the services _pragma=synchronous(NORMAL) or FULL")
	}
	if len(p.findings) == found {
		p.report(OK, "the journal is a write-ahead log", "")
	}
	return nil
}
