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

// Kind is what a database is.
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
	// Where says which database it is, without the password.
	Where string
}

// Open opens what the address names, postgres://… or mysql://…, or without one a
// SQLite file, and waits until it answers.
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
		var wrong *url.Error // whose text has the address, and with it the password
		if errors.As(err, &wrong) {
			err = wrong.Err
		}
		return nil, fmt.Errorf("the database's address is no URL: %w", err)
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		pool, err := sqltx.Open("pgx", address)
		return opened(pool, err, Postgres, where(u))
	case "mysql", "mariadb":
		pool, err := sqltx.Open("mysql", mysqlDSN(u))
		return opened(pool, err, MySQL, where(u))
	default:
		return nil, fmt.Errorf("the database's address begins with %q; known are postgres:// and mysql://", u.Scheme+"://")
	}
}

// where is the address without what may be secret.
func where(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return shown.String()
}

// TableOptions goes behind a CREATE TABLE: the default of a database of MySQL
// may be a character set in which not every name can be written.
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

// opened sets the size of the pool: more connections than the server has work
// for only wait for each other.
func opened(pool *sql.DB, err error, kind Kind, where string) (*DB, error) {
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", where, err)
	}
	pool.SetMaxOpenConns(24)
	pool.SetMaxIdleConns(24)
	return &DB{pool, kind, where}, nil
}

// openSQLite opens a file. SQLite has one writer at a time: with _txlock a
// transaction waits for its turn when it begins, and not in its middle.
func openSQLite(file string) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the SQLite file: %w", err)
	}
	path := (&url.URL{Path: filepath.ToSlash(file)}).EscapedPath()
	pool, err := sqltx.Open("sqlite", "file:"+path+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(1)&_txlock=immediate")
	return opened(pool, err, SQLite, file)
}
