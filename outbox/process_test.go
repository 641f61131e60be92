package outbox_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// The environment of this test binary as a child process: which of the processes it
// is, and its database.
const (
	processName   = "OUTBOX_TEST_PROCESS"
	processDriver = "OUTBOX_TEST_DRIVER"
	processDSN    = "OUTBOX_TEST_DSN"
	// longTests set to anything makes some tests larger.
	longTests = "OUTBOX_TEST_LONG"
)

// processes are the child processes. They do not return.
var processes = map[string]func(){"writer": writerProcess, "holder": holderProcess, "panicking metrics": panickingMetricsProcess, "listeners": listenerProcess, "by key": byKeyProcess, "drain": drainProcess}

func TestMain(m *testing.M) {
	if run := processes[os.Getenv(processName)]; run != nil {
		run()
	}
	goleak.VerifyTestMain(m)
}

// check ends a child process on an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// startProcess starts a child process on a database. It returns a function that
// reads the next line that the process prints. The process is killed when the test
// ends.
func startProcess(t *testing.T, name string, db *testdb.DB) (process *os.Process, nextLine func() string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	driver := map[testdb.Kind]string{testdb.Postgres: "pgx", testdb.MySQL: "mysql", testdb.SQLite: "sqlite"}[db.Kind]
	child.Env = append(os.Environ(), processName+"="+name, processDriver+"="+driver, processDSN+"="+db.DSN)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait() // "signal: killed"
	})
	lines := bufio.NewScanner(out)
	return child.Process, func() string {
		require.True(t, lines.Scan(), "the process ended")
		return lines.Text()
	}
}
