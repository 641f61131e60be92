package main

import (
	"bytes"
	"database/sql"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// postgres starts a private PostgreSQL with wal_level=logical, which ends with the test.
func postgres(t *testing.T) (server *relaytest.Process, dsn string) {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	require.NoError(t, err)
	if len(found) == 0 {
		const why = "PostgreSQL's programs are missing: install the package postgresql"
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	bin := found[len(found)-1]
	version, err := exec.CommandContext(t.Context(), filepath.Join(bin, "postgres"), "--version").Output()
	require.NoError(t, err)
	t.Logf("server: %s", bytes.TrimSpace(version))
	own := testdb.NewAccount(t, "postgres")
	data := own.InitPostgres(t, filepath.Join(bin, "initdb"))
	addr := relaytest.FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	dsn = "postgres://postgres@" + addr + "/postgres?sslmode=disable"
	server = relaytest.Start(t, func() *exec.Cmd {
		relaytest.Eventually(t, "the processes of a killed server have ended", func() bool { return ended(data) })
		return own.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "wal_level=logical", "-c", "fsync=off")
	}, func() error { return testdb.Ping("pgx", dsn) })
	return server, dsn
}

// ended reports whether no process of a killed server uses its shared memory any more. A
// new server refuses to start before.
func ended(data string) bool {
	pid, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	lines := strings.Split(string(pid), "\n")
	if err != nil || len(lines) < 7 {
		return true // it has not run
	}
	shared, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return true // this is not Linux
	}
	id := strings.Fields(lines[6])[1]
	for line := range strings.Lines(string(shared)) {
		if f := strings.Fields(line); len(f) > 6 && f[1] == id {
			return f[6] == "0" // processes that are attached
		}
	}
	return true
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
