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

// TreeArguments are those by which a server of MySQL or MariaDB finds its files if its
// programs are in a folder of extracted packages; none for an empty tree, the system's.
func TreeArguments(tree string) []string {
	if tree == "" {
		return nil
	}
	usr := filepath.Join(tree, "usr")
	args := []string{"--basedir=" + usr}
	if _, err := os.Stat(filepath.Join(usr, "share/mysql/english")); err == nil {
		args = append(args, "--lc-messages-dir="+filepath.Join(usr, "share/mysql"), "--plugin-dir="+filepath.Join(usr, "lib/mysql/plugin"), "--secure-file-priv=NULL")
	}
	return args
}

// PostgresDSN is the address of PostgreSQL.
func PostgresDSN() string {
	if url := os.Getenv(PostgresVar); url != "" {
		return url
	}
	return DefaultPostgres
}

// MySQLDSN is the address of MySQL, as a DSN of its driver; the variable may also
// hold a mysql:// URL.
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
