package cdc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxkit/outbox-go/internal/sqlname"
)

// connection is a connection for replication, which also takes SQL.
type connection struct {
	pg       Postgres
	conn     *pgx.Conn
	version  int
	hijacked net.Conn // set when the connection streams
}

func (p Postgres) connConfig() (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(p.DSN)
	if err != nil || p.DSN == "" {
		return nil, errors.New("cdc: the address of the database cannot be read")
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // the other modes do not exist for replication
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["datestyle"], cfg.RuntimeParams["timezone"] = "ISO", "UTC"
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "outbox cdc"
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	return cfg, nil
}

const connectTimeout = 10 * time.Second

// connect opens a connection and refuses a server that cannot decode its log.
func (p Postgres) connect(ctx context.Context) (*connection, error) {
	cfg, err := p.connConfig()
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		var e *pgconn.PgError
		if errors.As(err, &e) && e.Code == "42501" { // insufficient_privilege
			return nil, fmt.Errorf(`cdc: %w; run: ALTER ROLE %s REPLICATION (on RDS: GRANT rds_replication TO %[2]s)`, notSetUp("the role may not read the log: %w", err), pgx.Identifier{cfg.User}.Sanitize())
		}
		return nil, fmt.Errorf("cdc: connecting: %w", err)
	}
	c := &connection{pg: p, conn: conn}
	var level string
	var standby bool
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery()").Scan(&c.version, &level, &standby)
	switch {
	case err != nil:
		err = fmt.Errorf("cdc: reading the server's settings: %w", err)
	case standby:
		err = fmt.Errorf("cdc: %w", errStandby)
	case level != "logical":
		err = fmt.Errorf("cdc: %w", notSetUp("wal_level is %s; set wal_level = logical on the server and restart it", level))
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *connection) close() {
	if c.hijacked != nil {
		_ = c.hijacked.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.conn.Close(ctx)
}

// slot is a slot as the server reports it.
type slot struct {
	plugin, database, status string
	current                  string
	active                   bool
	behind, kept             int64
	left                     *int64
}

// slotQuery reads a slot by its name.
const slotQuery = `SELECT COALESCE(plugin, ''), COALESCE(database, ''), COALESCE(wal_status, ''), current_database(), active,
 COALESCE(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::bigint,
 COALESCE(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, safe_wal_size
FROM pg_replication_slots WHERE slot_name = $1`

// scan reads a row of slotQuery.
func (s *slot) scan(row interface{ Scan(into ...any) error }) error {
	return row.Scan(&s.plugin, &s.database, &s.status, &s.current, &s.active, &s.behind, &s.kept, &s.left)
}

// slot reads the slot of a name.
func (c *connection) slot(ctx context.Context, name string) (s slot, err error) {
	err = s.scan(c.conn.QueryRow(ctx, slotQuery, name))
	if errors.Is(err, pgx.ErrNoRows) {
		return s, fmt.Errorf("cdc: slot %q: %w; call Setup once", name, ErrNoSlot)
	}
	if err != nil {
		return s, fmt.Errorf("cdc: reading slot %q: %w", name, err)
	}
	return s, s.check(name)
}

func (s slot) check(name string) error {
	switch {
	case s.status == "lost":
		return fmt.Errorf("cdc: slot %q: %w; drop it with SELECT pg_drop_replication_slot('%s'), and call Setup once", name, ErrSlotLost, name)
	case s.plugin != "pgoutput":
		return fmt.Errorf("cdc: %w", notSetUp("slot %q has the plugin %q, not pgoutput; choose another name in Postgres.Slot", name, s.plugin))
	case s.database != s.current:
		return fmt.Errorf("cdc: %w", notSetUp("slot %q belongs to the database %q, not %q; choose another name in Postgres.Slot", name, s.database, s.current))
	}
	return nil
}

// check checks the slot, the tables and the publication, and returns the tables as schema.table.
func (c *connection) check(ctx context.Context) (map[string]bool, error) {
	if _, err := c.slot(ctx, c.pg.Slot); err != nil {
		return nil, err
	}
	tables, err := c.tables(ctx)
	if err != nil {
		return nil, err
	}
	inserts, missing, err := c.publication(ctx, tables)
	switch {
	case err != nil:
		return nil, err
	case inserts == nil:
		return nil, fmt.Errorf("cdc: %w", notSetUp("the publication %q does not exist; call Setup, or create it with the statement in the documents", c.pg.Slot))
	case !*inserts:
		return nil, fmt.Errorf("cdc: %w", notSetUp("the publication %q leaves out INSERT; run: ALTER PUBLICATION %s SET (publish = 'insert')", c.pg.Slot, c.quoted()))
	case len(missing) > 0:
		return nil, fmt.Errorf("cdc: %w", notSetUp("the publication %q leaves out %s; call Setup, or ALTER PUBLICATION %s ADD TABLE; for a partitioned table also SET (publish_via_partition_root = true)", c.pg.Slot, strings.Join(missing, ", "), c.quoted()))
	}
	wanted := map[string]bool{}
	for _, table := range tables {
		wanted[table.schema+"."+table.name] = true
	}
	return wanted, nil
}

func (c *connection) quoted() string { return pgx.Identifier{c.pg.Slot}.Sanitize() }

// table is a table as the server knows it.
type table struct{ schema, name string }

func (t table) quoted() string { return pgx.Identifier{t.schema, t.name}.Sanitize() }

// tables finds the tables, by the search_path unless they have a schema.
func (c *connection) tables(ctx context.Context) (list []table, err error) {
	for _, text := range c.pg.Tables {
		name, err := sqlname.Parse(text)
		if err != nil {
			return nil, err // New has checked it
		}
		var t table
		err = c.conn.QueryRow(ctx, "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)", name.Quoted(`"`)).Scan(&t.schema, &t.name)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("cdc: %w", notSetUp("the table %s does not exist, or is not in the search_path of the role; create it, or write schema.table in Postgres.Tables", text))
		}
		if err != nil {
			return nil, fmt.Errorf("cdc: finding the table %s: %w", text, err)
		}
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list, nil
}

// publication returns whether the publication has INSERTs, nil if there is no publication, and which tables
// it leaves out.
func (c *connection) publication(ctx context.Context, tables []table) (inserts *bool, missing []string, err error) {
	var has bool
	err = c.conn.QueryRow(ctx, "SELECT pubinsert FROM pg_publication WHERE pubname = $1", c.pg.Slot).Scan(&has)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, nil
	}
	for _, t := range tables {
		var n int
		if err == nil {
			err = c.conn.QueryRow(ctx, "SELECT count(*) FROM pg_publication_tables WHERE pubname = $1 AND schemaname = $2 AND tablename = $3", c.pg.Slot, t.schema, t.name).Scan(&n)
		}
		if n == 0 {
			missing = append(missing, t.quoted())
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cdc: reading the publication %q: %w", c.pg.Slot, err)
	}
	return &has, missing, nil
}
