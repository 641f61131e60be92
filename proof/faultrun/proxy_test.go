package faultrun_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// echo is a server that answers each line with the line, and tells which ones it got.
func echo(t *testing.T) (addr string, got <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	lines := make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for in := bufio.NewScanner(conn); in.Scan(); {
					lines <- in.Text()
					_, _ = fmt.Fprintln(conn, in.Text())
				}
			}()
		}
	}()
	return listener.Addr().String(), lines
}

// through is a proxy to a server, and a connection through it that works.
func through(t *testing.T) (proxy *faultrun.Proxy, conn net.Conn, ask func(line string) error, got <-chan string) {
	t.Helper()
	addr, got := echo(t)
	proxy, err := faultrun.NewProxy(addr)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	conn, err = net.Dial("tcp", proxy.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	in := bufio.NewReader(conn)
	ask = func(line string) error {
		if _, err := fmt.Fprintln(conn, line); err != nil {
			return err
		}
		answer, err := in.ReadString('\n')
		if err == nil {
			require.Equal(t, line+"\n", answer)
		}
		return err
	}
	require.NoError(t, ask("one"))
	require.Equal(t, "one", <-got)
	return proxy, conn, ask, got
}

// during does harm while fn runs.
func during(t *testing.T, proxy *faultrun.Proxy, harm faultrun.Harm, fn func(end func())) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	began := proxy.Began()
	go func() {
		defer close(done)
		proxy.Do(ctx, harm, time.Hour)
	}()
	<-began
	fn(end)
	end()
	<-done
}

func TestProxyHarms(t *testing.T) {
	t.Parallel()
	for harm, test := range map[faultrun.Harm]func(t *testing.T, conn net.Conn, ask func(string) error, got <-chan string, end func()){
		faultrun.Cut: func(t *testing.T, _ net.Conn, ask func(string) error, _ <-chan string, _ func()) {
			require.Error(t, ask("two"))
		},
		faultrun.Slow: func(t *testing.T, _ net.Conn, ask func(string) error, _ <-chan string, _ func()) {
			began := time.Now()
			require.NoError(t, ask("two"))
			require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
		},
		faultrun.HalfOpen: func(t *testing.T, _ net.Conn, ask func(string) error, got <-chan string, end func()) {
			time.AfterFunc(100*time.Millisecond, end)
			require.Error(t, ask("two"))
			require.Empty(t, got)
		},
		faultrun.Late: func(t *testing.T, conn net.Conn, _ func(string) error, got <-chan string, end func()) {
			_, err := fmt.Fprintln(conn, "two")
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			require.Empty(t, got)
			end()
			require.Equal(t, "two", <-got)
		},
		faultrun.NoAnswer: func(t *testing.T, _ net.Conn, ask func(string) error, got <-chan string, end func()) {
			time.AfterFunc(100*time.Millisecond, end)
			require.Error(t, ask("two"))
			require.Equal(t, "two", <-got)
		},
		faultrun.NoCommit: func(t *testing.T, _ net.Conn, ask func(string) error, got <-chan string, _ func()) {
			for _, line := range []string{"two", "commit", "COMMIT"} {
				require.NoError(t, ask(line))
				require.Equal(t, line, <-got)
			}
			require.Error(t, ask("commit"))
			require.Equal(t, "commit", <-got)
		},
		faultrun.LostCommit: func(t *testing.T, _ net.Conn, ask func(string) error, got <-chan string, _ func()) {
			for _, line := range []string{"two", "commit", "COMMIT"} {
				require.NoError(t, ask(line))
				require.Equal(t, line, <-got)
			}
			require.Error(t, ask("commit"))
			require.Empty(t, got)
		},
	} {
		t.Run(string(harm), func(t *testing.T) {
			t.Parallel()
			proxy, conn, ask, got := through(t)
			during(t, proxy, harm, func(end func()) { test(t, conn, ask, got, end) })
			again, err := net.Dial("tcp", proxy.Addr)
			require.NoError(t, err)
			defer func() { _ = again.Close() }()
			_, err = fmt.Fprintln(again, "afterwards")
			require.NoError(t, err)
			answer, err := bufio.NewReader(again).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "afterwards\n", answer)
		})
	}
}
