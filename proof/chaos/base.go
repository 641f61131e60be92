package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the drivers of the runs' databases
	_ "modernc.org/sqlite"             // …
)

// password is in the DSNs of the processes. No log may have it.
const password = "dsn-54321-secret"

// The driver would print each connection that a fault ends.
var _ = mysql.SetLogger(&mysql.NopLogger{})

// base is the database of a run.
type base struct {
	kind, name string
	// admin is the server's own database, nil on SQLite, and db the database of the run.
	admin, db *sql.DB
	// addr is the address of the server, and dsn the DSN of the run, without a proxy.
	addr, dsn string
	// private is the server when the run has a private server, and folder the disk that can be
	// full. folder is empty without a disk.
	private *server
	folder  string
	drops   []func(ctx context.Context) error
}

// newBase makes a database on a server, or in the folder dir on SQLite. private is the server when
// it is a private server of this package. With disk, the database is on a small disk.
func newBase(ctx context.Context, kind, serverDSN, dir string, private *server, disk bool) (b *base, err error) {
	b = &base{kind: kind, name: fmt.Sprintf("chaos_%d_%d", os.Getpid(), time.Now().UnixNano()), private: private}
	defer func() {
		if err != nil {
			b.drop()
		}
	}()
	switch kind {
	case "postgres":
		err = b.postgres(ctx, serverDSN, disk)
	case "mysql":
		err = b.mysql(ctx, serverDSN, disk)
	default:
		if disk {
			dir = filepath.Join(dir, "disk")
			err = b.mount(ctx, dir)
		}
		b.dsn = "file:" + filepath.Join(dir, b.name+".db") + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	}
	if err != nil {
		return b, err
	}
	if b.db, err = sql.Open(b.driver(), b.dsn); err != nil {
		return b, err
	}
	return b, b.db.PingContext(ctx)
}

// driver is the driver that the run itself uses.
func (b *base) driver() string {
	if b.kind == "postgres" {
		return "pgx"
	}
	return b.kind
}

func (b *base) postgres(ctx context.Context, serverDSN string, disk bool) error {
	u, err := url.Parse(serverDSN)
	if err != nil {
		return err
	}
	b.addr = u.Host
	if b.admin, err = sql.Open("pgx", serverDSN); err != nil {
		return err
	}
	create := "CREATE DATABASE " + b.name
	if disk {
		if err := b.mount(ctx, filepath.Join(b.private.dir, b.name)); err != nil {
			return err
		}
		if err := b.exec(ctx, fmt.Sprintf("CREATE TABLESPACE %s LOCATION '%s'", b.name, b.folder)); err != nil {
			return err
		}
		b.later("DROP TABLESPACE " + b.name)
		create += " TABLESPACE " + b.name
	}
	b.later("DROP DATABASE " + b.name + " WITH (FORCE)")
	u.User, u.Path = url.UserPassword(u.User.Username(), password), "/"+b.name
	b.dsn = u.String()
	return b.exec(ctx, create)
}

func (b *base) mysql(ctx context.Context, serverDSN string, disk bool) error {
	config, err := mysql.ParseDSN(serverDSN)
	if err != nil {
		return err
	}
	b.addr = config.Addr
	if b.admin, err = sql.Open("mysql", serverDSN); err != nil {
		return err
	}
	user := b.name[len(b.name)-12:]
	b.later("DROP DATABASE IF EXISTS " + b.name)
	statements := []string{"CREATE DATABASE " + b.name}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		account := fmt.Sprintf("'%s'@'%s'", user, host)
		statements = append(statements, fmt.Sprintf("CREATE USER %s IDENTIFIED BY '%s'", account, password), fmt.Sprintf("GRANT ALL ON %s.* TO %s", b.name, account))
		b.later("DROP USER " + account)
	}
	config.User, config.Passwd, config.DBName = user, password, b.name
	b.dsn = config.FormatDSN()
	if err := b.exec(ctx, statements...); err != nil || !disk {
		return err
	}
	// The server keeps the tables of a database in a folder of the same name. The server cannot
	// delete the folder while the folder is a disk.
	if err := b.mount(ctx, filepath.Join(b.private.data(), b.name)); err != nil {
		return err
	}
	b.drops = append(b.drops, func(ctx context.Context) error {
		_ = b.exec(ctx, "DROP DATABASE "+b.name)
		return nil
	})
	return nil
}

// mount makes the small disk.
func (b *base) mount(ctx context.Context, folder string) error {
	var owner *syscall.Credential
	if b.private != nil {
		owner = b.private.owner
	}
	b.folder = folder
	if err := errors.Join(os.MkdirAll(folder, 0o700), mount(ctx, folder, owner)); err != nil {
		return err
	}
	b.drops = append(b.drops, func(ctx context.Context) error { return unmount(ctx, folder) })
	return nil
}

func (b *base) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := b.admin.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", strings.ReplaceAll(s, password, "…"), err)
		}
	}
	return nil
}

// later runs a statement when the database is dropped.
func (b *base) later(statement string) {
	b.drops = append(b.drops, func(ctx context.Context) error { return b.exec(ctx, statement) })
}

// via is the DSN through a proxy.
func (b *base) via(addr string) string { return strings.Replace(b.dsn, b.addr, addr, 1) }

// drop drops the database, and undoes everything else that newBase did.
func (b *base) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if b.db != nil {
		_ = b.db.Close()
	}
	for i := len(b.drops) - 1; i >= 0; i-- {
		if err := b.drops[i](ctx); err != nil {
			fmt.Fprintln(os.Stderr, "chaos: cleaning up:", err)
		}
	}
	if b.admin != nil {
		_ = b.admin.Close()
	}
}
