package systemtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

// patience is how long the tests wait for what has to happen: the machine may be busy.
const patience = 4 * time.Minute

// account is the user that runs servers, with a folder that it may write: they refuse
// to run as root, and other users have no access to root's temporary folders.
type account struct {
	dir  string
	cred *syscall.Credential // nil: this process's user
}

func newAccount(t testing.TB, names ...string) account {
	t.Helper()
	dir, err := os.MkdirTemp("", "outbox-system-") //nolint:usetesting // the parent of t.TempDir is root's alone
	require.NoError(t, err)
	t.Cleanup(func() {
		// What was killed may still write for a moment.
		if !eventually(10*time.Second, func() bool { return os.RemoveAll(dir) == nil }) {
			t.Errorf("the folder %s cannot be deleted", dir)
		}
	})
	if os.Geteuid() != 0 {
		return account{dir: dir}
	}
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		require.NoError(t, err)
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		require.NoError(t, err)
		require.NoError(t, os.Chown(dir, int(uid), int(gid)))
		return account{dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	t.Fatalf("this is root, and there is no user to run a server; one of %v must exist", names)
	return account{}
}

func (a account) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = a.dir, append(os.Environ(), "TMPDIR="+a.dir, "HOME="+a.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.cred, Setpgid: true}
	return cmd
}

// run runs a program to its end.
func (a account) run(t testing.TB, path string, args ...string) {
	t.Helper()
	out, err := a.command(path, args...).CombinedOutput()
	require.NoErrorf(t, err, "%s: %s", filepath.Base(path), out)
}

// server is a process that the test started.
type server struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// launch starts a server, which ends with the test.
func (a account) launch(t testing.TB, name, path string, args ...string) *server {
	t.Helper()
	log, err := os.Create(filepath.Join(a.dir, name+".log"))
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	s := &server{name: name, cmd: a.command(path, args...), ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	require.NoError(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	watch := s.watch(t)
	t.Cleanup(func() {
		watch()
		s.kill()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, tail(log.Name()))
		}
	})
	return s
}

// watch starts a process that kills the server if this process dies, which runs no
// cleanup then: a panic after a timeout.
func (s *server) watch(t testing.TB) (stop func()) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read line || kill -9 -"+strconv.Itoa(s.cmd.Process.Pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return func() {
		_, _ = in.Write([]byte("\n"))
		_ = cmd.Wait()
	}
}

// kill kills the server and the processes of its group with SIGKILL.
func (s *server) kill() {
	select {
	case <-s.ended: // its id may be another process's
	default:
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.ended
	}
}

// await waits until the server answers.
func (s *server) await(t testing.TB, driver, dsn string) {
	t.Helper()
	var err error
	answers := eventually(patience, func() bool {
		select {
		case <-s.ended:
			return true
		default:
			err = testdb.Ping(driver, dsn)
			return err == nil
		}
	})
	require.Truef(t, answers, "%s does not answer: %v", s.name, err)
	require.NoErrorf(t, err, "%s ended", s.name)
}

// eventually reports whether ok became true in time.
func eventually(limit time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// freePorts returns ports that are free now, all different.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
