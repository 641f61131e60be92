package sqlstore

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// Detect asks the server for its version and returns the store for it. Detect needs a connection
// briefly, and fails for any database but PostgreSQL, MySQL, MariaDB, TiDB and SQLite.
func Detect(ctx context.Context, db outbox.DB, opts ...Option) (*Store, error) {
	if v := reflect.ValueOf(db); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &outbox.FieldError{Field: "sqlstore.Detect db", Problem: "is nil"}
	}
	d, version, err := ask(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("outbox: asking the database what it is (known are PostgreSQL, MySQL, MariaDB, TiDB and SQLite): %w", sqlerr.WithoutAddress(err, ""))
	}
	if d == nil {
		return nil, fmt.Errorf("outbox: the database says that it is %.80q; known are PostgreSQL, MySQL, MariaDB, TiDB and SQLite: if it speaks one of their dialects, use sqlstore.Postgres, MySQL or SQLite", version)
	}
	s := newStore(d, opts)
	s.learn(version)
	return s, s.err
}

// ask asks the server for its version. The dialect is nil when the server is
// unknown.
func ask(ctx context.Context, db outbox.DB) (d *dialect, version string, err error) {
	version, err = answer(ctx, db, "SELECT version()")
	if err != nil && strings.Contains(err.Error(), "no such function") { // the words of SQLite
		version, err = answer(ctx, db, "SELECT sqlite_version()")
		return sqlite, "SQLite " + version, err
	}
	if err != nil {
		return nil, "", err
	}
	d, maybe := dialectFor(version)
	if maybe {
		if _, err := answer(ctx, db, "SELECT @@version_comment"); err == nil {
			return mysql, mysqlPrefix + version, nil
		}
	}
	return d, version, nil
}

// mysqlPrefix begins the version of MySQL itself.
const mysqlPrefix = "MySQL "

func isMySQL(version string) bool { return strings.HasPrefix(version, mysqlPrefix) }

// learn keeps the properties of the server's version on which statements depend.
func (s *Store) learn(version string) {
	skips := skipsLocked(version)
	s.claimsWait.Store(!skips)
	s.locksNow.Store(isMySQL(version) && skips)
}

// skipsLocked reports whether the server has FOR UPDATE SKIP LOCKED: MySQL has it, and NOWAIT,
// since 8.0.1, MariaDB since 10.6. TiDB reads the clause as FOR UPDATE alone.
func skipsLocked(version string) bool {
	var major, minor, patch int
	number := strings.TrimPrefix(strings.TrimPrefix(version, mysqlPrefix), "5.5.5-") // MariaDB behind some proxies
	n, _ := fmt.Sscanf(number, "%d.%d.%d", &major, &minor, &patch)
	switch {
	case strings.Contains(version, "TiDB"):
		return false
	case strings.Contains(version, "MariaDB"):
		return n < 2 || major > 10 || major == 10 && minor >= 6
	case isMySQL(version):
		return n < 2 || major > 8 || major == 8 && (minor > 0 || patch > 0)
	}
	return true
}

// dialectFor is the dialect of a server that gives this version; nil: unknown. The version of MySQL
// is only a number: maybe says that a server with such a version may be MySQL.
func dialectFor(version string) (d *dialect, maybe bool) {
	switch {
	case strings.HasPrefix(version, "PostgreSQL "):
		return postgres, false
	case strings.Contains(version, "MariaDB"), strings.Contains(version, "TiDB"):
		return mysql, false
	default:
		return nil, isNumber(version)
	}
}

// isNumber reports whether a version begins with a number, a dot and a digit.
func isNumber(version string) bool {
	major, minor, _ := strings.Cut(version, ".")
	_, err := strconv.ParseUint(major, 10, 64)
	return err == nil && minor != "" && minor[0] >= '0' && minor[0] <= '9'
}

func answer(ctx context.Context, db outbox.DB, question string) (text string, err error) {
	rows, err := db.QueryContext(ctx, question)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	if rows.Next() {
		if err := rows.Scan(&text); err != nil {
			return "", err
		}
	}
	return text, rows.Err()
}
