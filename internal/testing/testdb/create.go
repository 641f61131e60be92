package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Create creates a database on the server of a kind, PostgreSQL or MySQL, for a program
// that is no test. drop drops it.
func Create(ctx context.Context, kind Kind) (driver, dsn string, drop func() error, err error) {
	name := fmt.Sprintf("outbox_%d_%d", os.Getpid(), time.Now().UnixMilli())
	var server, force string
	switch kind {
	case Postgres:
		u, err := url.Parse(PostgresDSN())
		if err != nil {
			return "", "", nil, errors.New(PostgresVar + " is not a URL")
		}
		driver, server, force = "pgx", u.String(), " WITH (FORCE)"
		u.Path = "/" + name
		dsn = u.String()
	case MySQL:
		config, err := mysql.ParseDSN(MySQLDSN())
		if err != nil {
			return "", "", nil, errors.New(MySQLVar + " is not an address of a server")
		}
		driver, server = "mysql", config.FormatDSN()
		config.DBName = name
		dsn = config.FormatDSN()
	default:
		return "", "", nil, fmt.Errorf("no server has databases of kind %q; postgres and mysql are possible", kind)
	}
	run := func(ctx context.Context, statement string) error {
		admin, err := sql.Open(driver, server)
		if err != nil {
			return err
		}
		_, err = admin.ExecContext(ctx, statement)
		return errors.Join(err, admin.Close())
	}
	drop = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return run(ctx, "DROP DATABASE "+name+force)
	}
	return driver, dsn, drop, run(ctx, "CREATE DATABASE "+name)
}
