package relaytest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// StartRedis starts a private Redis from the installed program, with an append-only file. A
// test without the program is skipped with the reason, and fails when CI=true.
func StartRedis(t testing.TB, args ...string) (addr string, server *Process) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("redis-server is needed: %v", err)
		}
		t.Skipf("install redis-server: %v", err)
	}
	version, err := exec.CommandContext(t.Context(), program, "--version").Output()
	require.NoError(t, err)
	t.Logf("broker: %s", bytes.TrimSpace(version))
	addr = FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	dir := t.TempDir()
	return addr, Start(t, func() *exec.Cmd {
		// With everysec, while a sync takes long, Redis acknowledges data that it has not written
		// yet.
		args := append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--appendonly", "yes", "--appendfsync", "always", "--save", ""}, args...)
		return exec.Command(program, args...) //nolint:noctx // the test kills the program
	}, func() error { return pingRedis(addr) })
}

func pingRedis(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second) //nolint:noctx // the dial has a timeout
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "+PONG\r\n" {
		err = fmt.Errorf("redis answers %q", answer)
	}
	return err
}
