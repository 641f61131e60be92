package relaytest

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Process is a broker that the test started, and can kill and start again.
type Process struct {
	command func() *exec.Cmd
	ready   func() error
	log     string
	cmd     *exec.Cmd
	unwatch func()
}

// Start starts a program, waits until ready returns nil, and kills it when the test ends.
func Start(t testing.TB, command func() *exec.Cmd, ready func() error) *Process {
	t.Helper()
	p := &Process{command: command, ready: ready, log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(func() {
		p.Kill(t)
		if log, err := os.ReadFile(p.log); err == nil && t.Failed() {
			t.Logf("the end of the broker's log:\n%s", log[max(0, len(log)-4000):])
		}
	})
	p.Start(t)
	return p
}

// Restart kills the program with SIGKILL, and starts it again.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	p.Kill(t)
	p.Start(t)
}

// Start starts the program, and waits until it is ready.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	p.cmd, p.unwatch = cmd, watch(t, cmd.Process.Pid)
	Eventually(t, "the broker answers", func() bool { err = p.ready(); return err == nil })
}

// Kill kills the program with SIGKILL, unless the program was killed before.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.unwatch()
	p.cmd = nil
}

// watch starts a process that kills the program if this process dies without running cleanups.
func watch(t testing.TB, pid int) (stop func()) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read line || kill -9 "+strconv.Itoa(pid)) //nolint:noctx // the watcher ends with this process
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return func() {
		_, _ = in.Write([]byte("\n"))
		_ = cmd.Wait()
	}
}

// FreeAddr is an address on which nothing listens. The port is below the ports that Linux gives to
// outgoing connections, so that no connection takes the port before the broker does.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := "127.0.0.1:" + strconv.Itoa(20_000+rand.IntN(12_000)) //nolint:gosec // any port will do
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err == nil {
			require.NoError(t, listener.Close())
			return addr
		}
	}
	require.FailNow(t, "no free address among 100")
	return ""
}

// Eventually waits until fn returns true, for two minutes at most: the machine may be busy.
func Eventually(t testing.TB, what string, fn func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !fn(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "not within two minutes: "+what)
		}
	}
}
