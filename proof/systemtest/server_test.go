package systemtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// patience is how long the tests wait for what has to happen: the machine may be busy.
const patience = 4 * time.Minute

// account starts servers.
type account struct{ testdb.Account }

// server is a process that the test started.
type server struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
	// unwatch ends the process that watches over the server.
	unwatch func()
}

// launch starts a server, which ends with the test.
func (a account) launch(t testing.TB, name, path string, args ...string) *server {
	t.Helper()
	log, err := os.Create(filepath.Join(a.Dir, name+".log"))
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	s := &server{name: name, cmd: a.Command(path, args...), ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	require.NoError(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	s.unwatch = sync.OnceFunc(s.watch(t))
	t.Cleanup(func() {
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
	s.unwatch()
	select {
	case <-s.ended: // its id may be another process's
	default:
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.ended
	}
}

// signal sends a signal to the server.
func (s *server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(-s.cmd.Process.Pid, signal))
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
