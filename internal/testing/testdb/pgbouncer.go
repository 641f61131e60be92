package testdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PgBouncer starts a PgBouncer in transaction mode on the schema of a PostgreSQL database, with
// three connections, and returns the DSN without parameters for a driver. The PgBouncer ends with
// the test. A test without the program is skipped with the reason, and fails when CI=true.
func (db *DB) PgBouncer(t testing.TB) (dsn string) {
	t.Helper()
	return db.PgBouncerIn(t, "transaction")
}

// PgBouncerIn is PgBouncer in another mode: session or statement.
func (db *DB) PgBouncerIn(t testing.TB, mode string) (dsn string) {
	t.Helper()
	program := pgBouncerProgram(t)
	server, err := pgx.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`[databases]
shop = host=%s port=%d dbname=%s user=%s %s connect_query='SET search_path TO %s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
`, server.Host, server.Port, server.Database, server.User, password(server.Password), server.RuntimeParams["search_path"], port, mode)
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root
		text += "user = nobody\n"
	}
	config := filepath.Join(t.TempDir(), "pgbouncer.ini")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dsn = fmt.Sprintf("postgres://%s@127.0.0.1:%d/shop?sslmode=disable", server.User, port)
	startPgBouncer(t, program, config, dsn)
	return dsn
}

// startPgBouncer starts PgBouncer and waits until PgBouncer answers.
func startPgBouncer(t testing.TB, program, config, dsn string) {
	t.Helper()
	process := exec.CommandContext(context.Background(), program, config)
	var log bytes.Buffer
	process.Stderr = &log
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = process.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for deadline := time.Now().Add(time.Minute); ; {
		err := Ping("pgx", dsn+"&default_query_exec_mode=exec")
		if err == nil {
			return
		}
		select {
		case <-ended:
			t.Fatalf("PgBouncer ended: %s", log.String())
		case <-time.After(20 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatalf("PgBouncer does not answer: %v", err)
			}
		}
	}
}

func freePort() (int, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(errors.New("no TCP port"), l.Close())
	}
	return addr.Port, l.Close()
}

func password(text string) string {
	if text == "" {
		return ""
	}
	return "password='" + strings.ReplaceAll(text, "'", "''") + "'"
}

// pgBouncerProgram finds PgBouncer in PATH, or in the folder .bin of the repository,
// whose packages are at most four folders deep.
func pgBouncerProgram(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path
	}
	for _, up := range []string{"..", "../..", "../../..", "../../../.."} {
		path, err := filepath.Abs(filepath.Join(up, ".bin", "pgbouncer"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	const why = "pgbouncer is missing: make pgbouncer fetches it, and Debian's package pgbouncer has it"
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}
