package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"         // the drivers of the targets
	_ "github.com/lib/pq"                      // …
	_ "github.com/uptrace/bun/driver/pgdriver" // …
	_ "modernc.org/sqlite"                     // …
)

// The variables that name the servers, and the default addresses.
const (
	PostgresVar     = "OUTBOX_TEST_POSTGRES"
	MySQLVar        = "OUTBOX_TEST_MYSQL"
	DefaultPostgres = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	DefaultMySQL    = "root@tcp(127.0.0.1:3306)/"
)

// Ping reports whether a server answers, within a few seconds.
func Ping(driver, dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return db.PingContext(ctx)
}

var (
	postgresError = sync.OnceValue(func() error { return Ping("pgx", PostgresDSN()) })
	mysqlError    = sync.OnceValue(func() error { return Ping("mysql", MySQLDSN()) })
)

// TreeArguments are the arguments by which a server of MySQL or MariaDB finds the files of a
// tree, a folder of extracted packages, and runs as the user of [TreeNeedsRoot]. An empty
// tree, the system's programs, needs no arguments.
func TreeArguments(tree string) []string {
	if tree == "" {
		return nil
	}
	usr := filepath.Join(tree, "usr")
	args := []string{"--basedir=" + usr}
	if _, err := os.Stat(filepath.Join(usr, "share/mysql/english")); err == nil {
		args = append(args, "--lc-messages-dir="+filepath.Join(usr, "share/mysql"), "--plugin-dir="+filepath.Join(usr, "lib/mysql/plugin"), "--secure-file-priv=NULL")
	}
	if TreeNeedsRoot(tree) {
		args = append(args, "--user=root")
	}
	return args
}

// TreeNeedsRoot reports whether this process is root's and no other user may enter the folder
// of a tree's programs, as in a checkout below a folder of mode 0700.
func TreeNeedsRoot(tree string) bool {
	return tree != "" && os.Geteuid() == 0 && !isOpen(filepath.Join(tree, "usr", "sbin"))
}

// isOpen reports whether every user may enter a folder.
func isOpen(folder string) bool {
	for {
		if info, err := os.Stat(folder); err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if folder == filepath.Dir(folder) {
			return true
		}
		folder = filepath.Dir(folder)
	}
}

// PostgresDSN is the address of PostgreSQL.
func PostgresDSN() string {
	if url := os.Getenv(PostgresVar); url != "" {
		return url
	}
	return DefaultPostgres
}

// MySQLDSN is the address of MySQL, as a DSN of the driver; the variable may also hold a mysql://
// URL.
func MySQLDSN() string {
	dsn := os.Getenv(MySQLVar)
	if dsn == "" {
		return DefaultMySQL
	}
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "mysql" {
		return dsn
	}
	config := mysql.NewConfig()
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	config.Params = map[string]string{}
	for key, values := range u.Query() {
		config.Params[key] = values[0]
	}
	return config.FormatDSN()
}

func postgresURL(t testing.TB) string {
	t.Helper()
	need(t, "PostgreSQL", PostgresVar, postgresError())
	return PostgresDSN()
}

func mysqlDSN(t testing.TB) string {
	t.Helper()
	need(t, "MySQL", MySQLVar, mysqlError())
	return MySQLDSN()
}

// need skips a test whose server is missing, and fails it in CI.
func need(t testing.TB, name, variable string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	why := fmt.Sprintf("%s does not answer; set %s, or run make test, which finds or starts one: %v", name, variable, err)
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
