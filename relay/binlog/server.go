package binlog

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxkit/outbox-go/internal/sqlname"
)

// session is a connection for SQL. It holds the reader's lock, and stores the position: a process that has
// lost the lock with the connection cannot store a position.
type session struct {
	r       *Reader
	db      *sql.DB
	conn    *sql.Conn
	mariadb bool
	tls     bool
	locked  bool
}

const connectTimeout = 10 * time.Second

// connect opens a session.
func (r *Reader) connect(ctx context.Context) (*session, error) {
	cfg := r.dsn.Clone()
	cfg.ClientFoundRows = true // an UPDATE that changes nothing has found the row
	cfg.ParseTime = false
	cfg.Logger = &mysql.NopLogger{} // the reader logs lost connections
	if cfg.Timeout == 0 {
		cfg.Timeout = connectTimeout
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("binlog: connecting: %w", err)
	}
	s := &session{r: r, db: sql.OpenDB(connector)}
	if s.conn, err = s.db.Conn(ctx); err == nil {
		err = s.greet(ctx)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("binlog: connecting: %w", err)
	}
	return s, nil
}

// greet asks which server answers, and how.
func (s *session) greet(ctx context.Context) error {
	if _, err := s.conn.ExecContext(ctx, "SET SESSION autocommit = 1"); err != nil {
		return err
	}
	var version, name, cipher string
	if err := s.conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	s.mariadb = strings.Contains(version, "MariaDB")
	if err := s.conn.QueryRowContext(ctx, "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	s.tls = cipher != ""
	return nil
}

// close gives the lock back and closes the connection. Without the first, the server keeps the lock until it
// notices that the connection is closed.
func (s *session) close() {
	if s.conn != nil {
		if s.locked {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, _ = s.conn.ExecContext(ctx, "DO RELEASE_LOCK(?)", s.r.lockName())
			cancel()
		}
		_ = s.conn.Close()
	}
	_ = s.db.Close()
}

// setting is a global variable of the server that the reader needs.
type setting struct {
	variable string
	good     []string // in capital letters
	wayOut   string
}

var settings = []setting{
	{"log_bin", []string{"1", "ON"}, "start the server with log_bin (on RDS: switch on backups)"},
	{"binlog_format", []string{"ROW"}, "run: SET GLOBAL binlog_format = 'ROW'"},
	{"binlog_row_image", []string{"FULL", "FULL_NODUP"}, "run: SET GLOBAL binlog_row_image = 'FULL'"},
	// The log has names of columns only then. Names by the order of the columns would be wrong for the rows
	// that were written before an ALTER TABLE.
	{"binlog_row_metadata", []string{"FULL"}, "run: SET GLOBAL binlog_row_metadata = 'FULL'"},
}

var settingsOfMySQL = []setting{
	{"gtid_mode", []string{"ON"}, "set enforce_gtid_consistency = ON and gtid_mode = ON, online by way of OFF_PERMISSIVE and ON_PERMISSIVE"},
}

// check checks the settings of the server, and returns the tables as database.table, as the log names them.
func (s *session) check(ctx context.Context) (tables map[string]bool, err error) {
	list := settings
	if !s.mariadb {
		list = append(list[:len(list):len(list)], settingsOfMySQL...)
	}
	for _, want := range list {
		var value string
		err := s.conn.QueryRowContext(ctx, "SELECT @@GLOBAL."+want.variable).Scan(&value)
		if number(err) == unknownVariable {
			return nil, fmt.Errorf("binlog: %w", notSetUp("the server has no %s; the reader needs MySQL 8.0 or MariaDB 10.5, or newer", want.variable))
		}
		if err != nil {
			return nil, fmt.Errorf("binlog: reading %s: %w", want.variable, err)
		}
		if !slices.Contains(want.good, strings.ToUpper(value)) {
			return nil, fmt.Errorf("binlog: %w", notSetUp("%s is %s; %s", want.variable, value, want.wayOut))
		}
	}
	var readOnly string
	if err := s.conn.QueryRowContext(ctx, "SELECT @@GLOBAL.read_only").Scan(&readOnly); err != nil {
		return nil, fmt.Errorf("binlog: reading read_only: %w", err)
	}
	if readOnly != "0" && !strings.EqualFold(readOnly, "OFF") {
		return nil, fmt.Errorf("binlog: %w", errReadOnly)
	}
	tables = map[string]bool{}
	for i := range s.r.tables {
		name, err := s.table(ctx, i)
		if err != nil {
			return nil, err
		}
		tables[name] = true
	}
	return tables, s.filters(ctx)
}

// unknownVariable is the number of the error that a variable does not exist.
const unknownVariable = 1193

// number is the number of an error of the server, or 0.
func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// table finds a table, and refuses texts that the reader would read wrongly.
func (s *session) table(ctx context.Context, i int) (string, error) {
	name, text := s.r.tables[i], s.r.cfg.Tables[i]
	rows, err := s.conn.QueryContext(ctx, "SELECT table_schema, table_name, column_name, COALESCE(character_set_name, 'utf8mb4') FROM information_schema.columns WHERE table_schema = ? AND table_name = ?", name.Schema, name.Name)
	if err != nil {
		return "", fmt.Errorf("binlog: finding the table %s: %w", text, err)
	}
	defer func() { _ = rows.Close() }()
	found := ""
	for rows.Next() {
		var schema, table, column, charset string
		if err := rows.Scan(&schema, &table, &column, &charset); err != nil {
			return "", fmt.Errorf("binlog: finding the table %s: %w", text, err)
		}
		found = schema + "." + table
		if !strings.HasPrefix(charset, "utf8") && charset != "ascii" && charset != "binary" {
			return "", fmt.Errorf("binlog: %w", notSetUp("the column %s of the table %s has the character set %s; the log has texts as they are stored, so run: ALTER TABLE %s CONVERT TO CHARACTER SET utf8mb4", column, text, charset, name.Quoted("`")))
		}
	}
	if err := rows.Err(); err != nil {
		return "", fmt.Errorf("binlog: finding the table %s: %w", text, err)
	}
	if found == "" {
		return "", fmt.Errorf("binlog: %w", notSetUp("the table %s does not exist in the database %s, or the user has no SELECT on it; create it, or write database.table in Config.Tables", name.Name, name.Schema))
	}
	return found, nil
}

// filters refuses a server whose log leaves out the databases of the tables.
func (s *session) filters(ctx context.Context) error {
	var row map[string]string
	var err error
	for _, statement := range []string{"SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"} { // the second is that of MariaDB and of MySQL before 8.2
		if row, err = s.row(ctx, statement); err == nil || number(err) == denied {
			break
		}
	}
	if number(err) == denied {
		return fmt.Errorf("binlog: %w", notSetUp("the user may not ask for the log: %w; run: GRANT %s ON *.* TO the user of DSN", err, s.grant()))
	}
	if err != nil {
		return fmt.Errorf("binlog: reading the state of the log: %w", err)
	}
	for _, name := range s.r.tables {
		only, never := list(row["binlog_do_db"]), list(row["binlog_ignore_db"])
		if len(only) > 0 && !slices.Contains(only, name.Schema) || slices.Contains(never, name.Schema) {
			return fmt.Errorf("binlog: %w", notSetUp("the log leaves out the database %s; start the server without binlog_do_db and binlog_ignore_db, or with the database in the first", name.Schema))
		}
	}
	return nil
}

func list(text string) (names []string) {
	for _, name := range strings.Split(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (s *session) grant() string {
	if s.mariadb {
		return "REPLICATION SLAVE, BINLOG MONITOR"
	}
	return "REPLICATION SLAVE, REPLICATION CLIENT"
}

// row returns the first row of an answer, by the names of the columns in small letters.
func (s *session) row(ctx context.Context, statement string) (map[string]string, error) {
	rows, err := s.conn.QueryContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, targets := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	row := map[string]string{}
	if rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return nil, err
		}
		for i, column := range columns {
			row[strings.ToLower(column)] = values[i].String
		}
	}
	return row, errors.Join(rows.Err(), rows.Close())
}

// lockName is the name of the reader's lock. The whole server shares the names of locks, which have at most 64
// characters.
func (r *Reader) lockName() string {
	sum := sha256.Sum256([]byte(r.tables[0].String() + "\x00" + r.cfg.Name))
	return fmt.Sprintf("outbox cdc %x", sum[:16])
}

// lock takes the reader's lock, or returns errInUse.
func (s *session) lock(ctx context.Context) error {
	var got sql.NullInt64
	if err := s.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", s.r.lockName()).Scan(&got); err != nil {
		return fmt.Errorf("binlog: taking the lock: %w", err)
	}
	if got.Int64 != 1 {
		return fmt.Errorf("binlog: %w", errInUse)
	}
	s.locked = true
	return nil
}

// stored is the value of the position in the control table.
type stored struct {
	// GTIDs are the transactions before the position.
	GTIDs string `json:"gtids"`
	// At is when the last of them committed, in seconds since 1970 by the server's clock.
	At int64 `json:"at"`
}

// control is the control table, which has the position.
func (r *Reader) control() sqlname.Name { return r.tables[0].Table("control") }

// where finds the position. Name needs no quotes inside.
func (r *Reader) where() string { return " WHERE kind = 'cdc' AND name = '" + r.cfg.Name + "'" }

// load reads the position.
func (s *session) load(ctx context.Context) (p stored, err error) {
	control := s.r.control()
	var value sql.NullString
	err = s.conn.QueryRowContext(ctx, "SELECT value FROM "+control.Quoted("`")+s.r.where()).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return p, fmt.Errorf("binlog: reader %q: %w in %s; call Setup once", s.r.cfg.Name, ErrNoPosition, control)
	}
	if err != nil {
		return p, s.tableError("reading the position", err)
	}
	if json.Unmarshal([]byte(value.String), &p) != nil {
		return p, fmt.Errorf("binlog: %w", s.lost("the stored value is no position"))
	}
	return p, nil
}

// lost is ErrPositionLost, with the reason and the way out.
func (s *session) lost(reason string) error {
	return fmt.Errorf("reader %q: %w: %s; run: DELETE FROM %s%s, and call Setup once", s.r.cfg.Name, ErrPositionLost, reason, s.r.control().Quoted("`"), s.r.where())
}

// maxValue is the length of the column, in bytes.
const maxValue = 65_535

// value is the text of a position.
func value(p stored) (string, error) {
	text, err := json.Marshal(p)
	if err == nil && len(text) > maxValue {
		err = fmt.Errorf("%w; the set of GTIDs has many gaps, which the servers' gtid_executed has too", notSetUp("the position has %d bytes, and the column value of the control table has room for %d", len(text), maxValue))
	}
	return string(text), err
}

// store stores a position over the position that is there.
func (s *session) store(ctx context.Context, p stored) error {
	text, err := value(p)
	if err != nil {
		return fmt.Errorf("binlog: storing the position: %w", err)
	}
	result, err := s.conn.ExecContext(ctx, "UPDATE "+s.r.control().Quoted("`")+" SET value = ?"+s.r.where(), text)
	if err != nil {
		return s.tableError("storing the position", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("binlog: reader %q: %w any more; call Setup once", s.r.cfg.Name, ErrNoPosition), err)
	}
	return nil
}

// begin stores the first position.
func (s *session) begin(ctx context.Context, p stored) error {
	text, err := value(p)
	if err != nil {
		return fmt.Errorf("binlog: storing the position: %w", err)
	}
	if _, err = s.conn.ExecContext(ctx, "INSERT INTO "+s.r.control().Quoted("`")+" (kind, name, value) VALUES ('cdc', ?, ?)", s.r.cfg.Name, text); err != nil {
		return s.tableError("storing the position", err)
	}
	return nil
}

// tableError is an error of a statement on the control table or a table.
func (s *session) tableError(doing string, err error) error {
	const noTable = 1146
	switch number(err) {
	case noTable:
		return fmt.Errorf("binlog: %s: %w", doing, notSetUp("%w; make the tables of the outbox, or name the outbox's table in Config.Tables", err))
	case denied, deniedToTable, deniedDatabase, deniedStatement:
		return fmt.Errorf("binlog: %s: %w", doing, notSetUp("%w; run: GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO the user of DSN", err, s.r.control().Quoted("`")))
	}
	return fmt.Errorf("binlog: %s: %w", doing, err)
}
