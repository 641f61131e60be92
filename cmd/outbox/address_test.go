package main_test

import (
	"context"
	"database/sql"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/secrets"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func TestAnAddressOfSQLiteDoesNotCreateAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, address := range []string{
		"file:" + dir + "/x.db?_journal_mode=wal", "sqlite:" + dir + "/mode=x.db", "sqlite:" + dir + "/x.db?_txlock=deferred",
		"sqlite:" + dir + "/x.db", "file:" + dir + "/x.db", dir + "/x.db",
	} {
		require.Contains(t, fails(t, 1, address, "stats"), "does not exist", address)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, files, address)
	}
	for _, address := range []string{"sqlite:", "sqlite://", "file:", "file:?mode=memory"} {
		require.Contains(t, fails(t, 2, address, "schema", "create"), "names no file", address)
	}
	ok(t, "sqlite:"+dir+"/x.db?_txlock=deferred", "schema", "create")
	require.FileExists(t, dir+"/x.db")
	ok(t, dir+"/x.db", "stats")
}

func TestALockedFileOfSQLiteIsNotAWrongAddress(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	ok(t, path, "schema", "create")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=locking_mode(exclusive)")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE held (id INTEGER)")
	require.NoError(t, err)
	require.Contains(t, fails(t, 1, "sqlite:"+path+"?_pragma=busy_timeout(10)", "stats"), "is locked")
	other := filepath.Join(t.TempDir(), "y.db")
	require.NoError(t, os.WriteFile(other, []byte(strings.Repeat("no database ", 100)), 0o600))
	require.Contains(t, fails(t, 1, other, "stats"), "no database of SQLite")
}

func TestAServerThatIsSilentEndsTheCommand(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }() // the kernel accepts, and nothing answers
	for _, address := range []string{
		"mysql://u@" + listener.Addr().String() + "/d?timeout=200ms",
		"postgres://u@" + listener.Addr().String() + "/d?sslmode=disable&connect_timeout=1",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		cmd, _, errOut := command(ctx, address, "stats")
		began := time.Now()
		require.Error(t, cmd.Run())
		cancel()
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), errOut)
		require.Less(t, time.Since(began), 9*time.Second, "before the default")
		require.Contains(t, errOut.String(), "no connection to the database")
	}
}

func TestAServerOfAnotherKindIsNamed(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[1])
	_, rest, _ := strings.Cut(db.DSN, "@tcp(")
	host, _, _ := strings.Cut(rest, ")")
	text := fails(t, 1, "postgres://u@"+host+"/d?sslmode=disable", "stats")
	require.NotContains(t, text, "%!")
	require.Contains(t, text, "does not answer as PostgreSQL does")
}

// The driver takes the second word for a parameter of the server.
func TestAWordOfAPasswordWithABlankIsNotShown(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	rest := strings.TrimPrefix(db.DSN, "postgres://")
	_, rest, _ = strings.Cut(rest, "@")
	host, _, _ := strings.Cut(rest, "/")
	name, port, _ := strings.Cut(host, ":")
	text := fails(t, 1, "host="+name+" port="+port+" user=postgres dbname=postgres sslmode=disable password=x "+secrets.Password+"=y", "stats")
	require.NotContains(t, text, secrets.Password)
	require.Contains(t, text, "single quotes")
}
