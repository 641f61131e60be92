package main

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver for SQLite
)

// connectTimeout is for addresses that set no timeout.
const connectTimeout = 10 * time.Second

// cancelPatience is how long PostgreSQL may take to confirm that it cancelled a statement.
const cancelPatience = 5 * time.Second

// address opens the database. The text of an address is never printed, because it holds the
// password.
type address struct {
	// open creates a missing file of SQLite if create is set.
	open func(create bool) (*sql.DB, error)
	// timeout bounds the first answer of the server; zero: the driver has the bound.
	timeout time.Duration
}

const (
	addressName  = "the database's address (OUTBOX_DSN or --dsn)"
	addressForms = "it looks like postgres://user:password@host/database, mysql://user:password@host/database or sqlite:path/to/file.db"
	escapeRule   = "write special characters of the password percent-encoded, such as %40 for @ and %2F for /"
)

// parseAddress finds the driver by the form of the address. Errors do not quote the address,
// because the wrong part of it may be the password.
func parseAddress(text string) (*address, error) {
	scheme, rest, isURL := strings.Cut(text, "://")
	switch {
	case text == "":
		return nil, &usageError{addressName, "is missing; " + addressForms}
	case isURL && isSQLServer(scheme):
		// The driver would take a part of the password for the host and the database.
		if _, path, _ := strings.Cut(rest, "/"); strings.Contains(path, "@") {
			return nil, &usageError{addressName, "has an @ behind a /; " + escapeRule}
		}
		if scheme == "mysql" || scheme == "mariadb" {
			return mysqlURL(text)
		}
		return postgresAddress(text)
	case strings.HasPrefix(text, "sqlite:"), strings.HasPrefix(text, "file:"), isSQLiteFile(text):
		return sqliteAddress(text)
	case strings.Contains(text, "@") && strings.Contains(text, ")/"), strings.Contains(text, "@/"):
		config, err := mysql.ParseDSN(text)
		return mysqlAddress(text, config, err)
	case !isURL && strings.Contains(text, "="):
		return postgresAddress(text)
	default:
		return nil, &usageError{addressName, fmt.Sprintf("is a text of %d bytes in an unknown form; %s", len(text), addressForms)}
	}
}

func isSQLServer(scheme string) bool {
	return scheme == "postgres" || scheme == "postgresql" || scheme == "mysql" || scheme == "mariadb"
}

func isSQLiteFile(text string) bool {
	switch filepath.Ext(text) {
	case ".db", ".sqlite", ".sqlite3":
		return !strings.ContainsAny(text, "@=")
	}
	return false
}

func postgresAddress(text string) (*address, error) {
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, &usageError{addressName, fmt.Sprintf("is a text of %d bytes that PostgreSQL's driver does not understand; %s; %s", len(text), addressForms, escapeRule)}
	}
	if !strings.Contains(text, "default_query_exec_mode") {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec // works behind PgBouncer
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	// Without this the server goes on with a statement after the program has ended.
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelPatience}
	}
	return &address{open: func(bool) (*sql.DB, error) { return stdlib.OpenDB(*config), nil }}, nil
}

// mysqlURL parses the form of address that other tools use.
func mysqlURL(text string) (*address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return mysqlAddress(text, nil, errors.New("not a URL"))
	}
	host := u.Host
	if u.Port() == "" {
		host += ":3306"
	}
	config, err := mysql.ParseDSN("tcp(" + host + ")/" + strings.TrimPrefix(u.EscapedPath(), "/") + "?" + u.RawQuery)
	if err == nil {
		config.User = u.User.Username()
		config.Passwd, _ = u.User.Password()
	}
	return mysqlAddress(text, config, err)
}

func mysqlAddress(text string, config *mysql.Config, err error) (*address, error) {
	if err != nil {
		return nil, &usageError{addressName, fmt.Sprintf("is a text of %d bytes that MySQL's driver does not understand; it looks like mysql://user:password@host/database or user:password@tcp(host:3306)/database; in a URL, %s", len(text), escapeRule)}
	}
	if config.DBName == "" {
		return nil, &usageError{addressName, "names no database; append /database"}
	}
	if config.Timeout == 0 {
		config.Timeout = connectTimeout
	}
	config.Logger = &mysql.NopLogger{}
	return &address{timeout: config.Timeout, open: func(bool) (*sql.DB, error) {
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	}}, nil
}

// sqliteAddress opens a file that exists, unless create is set: otherwise a wrong path would become
// an empty database.
func sqliteAddress(text string) (*address, error) {
	scheme, name, isURI := strings.Cut(text, ":")
	if !isURI || scheme != "sqlite" && scheme != "file" {
		scheme, name = "", text
	}
	name, parameters := cutParameters(name, scheme)
	if scheme == "sqlite" {
		name = strings.TrimPrefix(name, "//")
	}
	if scheme != "file" {
		name = (&url.URL{Path: name}).EscapedPath()
	}
	given, err := url.ParseQuery(parameters)
	switch {
	case err != nil:
		return nil, &usageError{addressName, "has parameters behind the ? that are no URL parameters"}
	case name == "":
		return nil, &usageError{addressName, "names no file; append its path, as in sqlite:path/to/file.db"}
	}
	uri := "file:" + name + "?" + parameters
	return &address{open: func(create bool) (*sql.DB, error) {
		return sql.Open("sqlite", uri+sqliteDefaults(given, create))
	}}, nil
}

// cutParameters cuts the parameters off the path of a file. In a file: URI, the parameters are
// everything after the first ?. In the other forms, a path may contain a ?, so the text after it
// counts as parameters only if it contains a =.
func cutParameters(name, scheme string) (path, parameters string) {
	path, parameters, _ = strings.Cut(name, "?")
	if scheme != "file" && !strings.Contains(parameters, "=") {
		return name, ""
	}
	return path, parameters
}

// sqliteDefaults returns the parameters that the address does not have.
func sqliteDefaults(given url.Values, create bool) (text string) {
	if !given.Has("mode") {
		text += "&mode=rw"
		if create {
			text += "c"
		}
	}
	if !given.Has("_txlock") {
		text += "&_txlock=immediate"
	}
	if !slices.ContainsFunc(given["_pragma"], func(p string) bool { return strings.HasPrefix(strings.TrimSpace(p), "busy_timeout") }) {
		text += "&_pragma=busy_timeout(5000)"
	}
	return text
}
