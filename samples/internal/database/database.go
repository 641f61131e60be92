// Package database opens the databases of the samples.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

// Kind is the kind of a database.
type Kind string

// The kinds.
const (
	Postgres Kind = "postgres"
	MySQL    Kind = "mysql"
	SQLite   Kind = "sqlite"
)

// DB is an open pool.
type DB struct {
	*sql.DB
	Kind Kind
	// Where is the address without the password, or the file.
	Where string
}

// Open opens the database at the address, postgres://… or mysql://…, or the SQLite
// file if there is no address, and waits until it answers.
func Open(ctx context.Context, address, file string) (*DB, error) {
	db, err := open(address, file)
	if err != nil {
		return nil, err
	}
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("connecting to %s: %w", db.Where, err)
	}
	return db, nil
}

func open(address, file string) (*DB, error) {
	if address == "" {
		return openSQLite(file)
	}
	u, err := url.Parse(address)
	if err != nil {
		var wrong *url.Error // the text contains the address, with the password
		if errors.As(err, &wrong) {
			err = wrong.Err
		}
		return nil, fmt.Errorf("the database's address is not a URL: %w", err)
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		return openPool("pgx", address, Postgres, where(u))
	case "mysql", "mariadb":
		return openPool("mysql", mysqlDSN(u), MySQL, where(u))
	default:
		return nil, fmt.Errorf("the database's address begins with %q; known are postgres:// and mysql://", u.Scheme+"://")
	}
}

// where returns the address without credentials.
func where(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return shown.String()
}

// TableOptions follows a CREATE TABLE: a MySQL database may have a default
// character set that cannot represent every name.
func (db *DB) TableOptions() string {
	if db.Kind == MySQL {
		return " DEFAULT CHARACTER SET utf8mb4"
	}
	return ""
}

func mysqlDSN(u *url.URL) string {
	config := mysql.NewConfig()
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr = "tcp", u.Host
	if u.Port() == "" {
		config.Addr += ":3306"
	}
	config.DBName = strings.TrimPrefix(u.Path, "/")
	config.ParseTime = true
	config.Params = map[string]string{}
	for key, values := range u.Query() {
		config.Params[key] = values[0]
	}
	return config.FormatDSN()
}

// openPool opens a pool of a limited size: more connections than the server has
// work for only wait for each other.
func openPool(driver, dsn string, kind Kind, where string) (*DB, error) {
	pool, err := sqltx.Open(driver, dsn)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", where, err)
	}
	pool.SetMaxOpenConns(24)
	pool.SetMaxIdleConns(24)
	return &DB{pool, kind, where}, nil
}

// openSQLite opens a file. SQLite has one writer at a time: with _txlock, a transaction waits for
// the writer when it begins.
func openSQLite(file string) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the SQLite file: %w", err)
	}
	path := (&url.URL{Path: filepath.ToSlash(file)}).EscapedPath()
	return openPool("sqlite", "file:"+path+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(1)&_txlock=immediate",
		SQLite, file)
}
