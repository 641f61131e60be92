package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// TestMain lets the test binary run as withdb too.
func TestMain(m *testing.M) {
	if os.Getenv("WITHDB_IS_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a withdb that a test started.
type process struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	errors bytes.Buffer
}

// withdb starts withdb in the folder, with its own environment, where nothing can
// be installed.
func withdb(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	fakes := t.TempDir()
	for _, name := range []string{"apt-get", "docker"} {
		script := "#!/bin/sh\necho " + name + " must not run in a test\nexit 1\n"
		require.NoError(t, os.WriteFile(filepath.Join(fakes, name), []byte(script), 0o755))
	}
	p := &process{Cmd: exec.Command(os.Args[0], args...)}
	p.Dir, p.Stderr, p.WaitDelay = dir, &p.errors, time.Second
	p.Env = append(os.Environ(), "WITHDB_IS_MAIN=1", "CI=", "OUTBOX_TEST_PRIVATE=1", testdb.PostgresVar+"=", testdb.MySQLVar+"=",
		"PATH="+fakes+":"+os.Getenv("PATH"))
	p.Env = append(p.Env, env...)
	var err error
	p.in, err = p.StdinPipe()
	require.NoError(t, err)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewScanner(out)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Signal(syscall.SIGTERM)
			_ = p.Wait()
		}
	})
	return p
}

// line is the command's output, which shows that it runs.
func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.out.Scan() {
		_ = p.Wait()
		t.Fatal("the command said nothing: ", p.errors.String())
	}
	return p.out.Text()
}

func (p *process) status() int {
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

// given answers for both databases with DSNs that fail at once.
var given = []string{testdb.PostgresVar + "=postgres://u@127.0.0.1:1/d", testdb.MySQLVar + "=mysql://u:p%2F@127.0.0.1:1/d"}

func TestTheExitStatusIsTheCommands(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137} {
		require.Equal(t, want, withdb(t, t.TempDir(), given, "--", "sh", "-c", script).status(), script)
	}
	require.Equal(t, 1, withdb(t, t.TempDir(), given, "--", "no-such-command").status())
}

func TestAWrongAddressIsSaidAndFailsInCI(t *testing.T) {
	t.Parallel()
	p := withdb(t, t.TempDir(), append([]string{"CI=true"}, given...), "--", "echo", "ran")
	require.False(t, p.out.Scan(), "the command does not run")
	require.Equal(t, 1, p.status())
	for _, variable := range []string{testdb.PostgresVar, testdb.MySQLVar} {
		require.Contains(t, p.errors.String(), "NOT tested: "+variable+" is set, but: ")
	}
	require.NotContains(t, p.errors.String(), "apt-get")
}

// Nothing else stands in for the programs that were asked for.
func TestAFolderWithoutTheProgramsIsNamed(t *testing.T) {
	t.Parallel()
	for flag, program := range map[string]string{"-mysql": "mariadbd or mysqld", "-postgres": "initdb"} {
		p := withdb(t, t.TempDir(), append([]string{"CI=true"}, given...), flag, "no-such-folder", "--", "echo", "ran")
		require.False(t, p.out.Scan(), "the command does not run")
		require.Equal(t, 1, p.status())
		require.Contains(t, p.errors.String(), program+" is not below ")
		require.Contains(t, p.errors.String(), "no-such-folder")
	}
}

func TestASignalReachesTheCommandAndItsChildren(t *testing.T) {
	t.Parallel()
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		p := withdb(t, t.TempDir(), given, "--", "sh", "-c", "trap 'echo heard; exit 0' INT TERM; echo ready; while :; do sleep 0.1; done")
		require.Equal(t, "ready", p.line(t))
		require.NoError(t, p.Process.Signal(signal))
		require.Equal(t, "heard", p.line(t))
		require.Equal(t, want, p.status())
	}
}

func TestPrivateServersAreSharedAndStopped(t *testing.T) {
	t.Parallel()
	needBinaries(t)
	dir := filepath.Join(t.TempDir(), "a folder, with spaces")
	require.NoError(t, os.Mkdir(dir, 0o755))
	env := []string{"TMPDIR=" + t.TempDir()} // not writable for root's servers
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(dir, ".db")); err == nil {
			withdb(t, dir, nil, "-down").status()
		}
	})
	script := `echo "$` + testdb.PostgresVar + ` $` + testdb.MySQLVar + `"; read line; exit 7`
	first := withdb(t, dir, env, "--", "sh", "-c", script)
	second := withdb(t, dir, env, "--", "sh", "-c", script)
	where := first.line(t)
	require.Equal(t, where, second.line(t), "both started at once and share the servers")
	postgres, mysql, _ := strings.Cut(where, " ")
	require.NoError(t, testdb.Ping("pgx", postgres))
	require.NoError(t, testdb.Ping("mysql", mysql))

	require.NoError(t, first.in.Close())
	require.Equal(t, 7, first.status(), first.errors.String())
	require.NoError(t, testdb.Ping("pgx", postgres), "the second run still uses them")
	require.NoError(t, testdb.Ping("mysql", mysql))
	require.Equal(t, 1, withdb(t, dir, env, "-down").status(), "in use")

	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, second.status(), second.errors.String())
	require.Error(t, testdb.Ping("pgx", postgres))
	require.Error(t, testdb.Ping("mysql", mysql))

	down := withdb(t, dir, env, "-down")
	require.Equal(t, 0, down.status(), down.errors.String())
	require.NoDirExists(t, filepath.Join(dir, ".db"))
}

// needBinaries skips a test that starts servers if there are no binaries, and
// fails it in CI.
func needBinaries(t *testing.T) {
	t.Helper()
	for _, names := range [][]string{{"postgres"}, {"initdb"}, {"mariadbd", "mysqld"}} {
		globs := postgresFolders
		if len(names) > 1 {
			globs = mysqlFolders
		}
		_, err := binary(names, globs...)
		switch {
		case err == nil:
		case os.Getenv("CI") == "true":
			t.Fatal("no private server can be started: ", err)
		default:
			t.Skip("no private server can be started: ", err)
		}
	}
}
