package faultproxy_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/faultproxy"
)

// echo is a server that sends each line back, and reports when a connection ended.
func echo(t *testing.T) (address string, ended <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	all := make(chan string, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				var got strings.Builder
				_, _ = io.Copy(conn, io.TeeReader(conn, &got))
				all <- got.String()
			}()
		}
	}()
	return listener.Addr().String(), all
}

func start(t *testing.T, server string, rules func(c *faultproxy.Conn) (faultproxy.Rules, bool)) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(server, rules)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Close()
		p.Wait()
	})
	return p
}

type client struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, p *faultproxy.Proxy) client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn, bufio.NewReader(conn)}
}

func (c client) say(t *testing.T, line string) {
	t.Helper()
	_, err := io.WriteString(c, line+"\n")
	require.NoError(t, err)
}

func (c client) hears(t *testing.T, line string) {
	t.Helper()
	got, err := c.lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, line+"\n", got)
}

func (c client) isCut(t *testing.T) {
	t.Helper()
	_, err := c.lines.ReadString('\n')
	require.Error(t, err)
}

func all(*faultproxy.Conn) (faultproxy.Rules, bool) { return faultproxy.Rules{}, true }

func TestWithoutRulesAllIsPassedOn(t *testing.T) {
	t.Parallel()
	server, ended := echo(t)
	c := dial(t, start(t, server, all))
	c.say(t, "a")
	c.hears(t, "a")
	c.say(t, "b")
	c.hears(t, "b")
	require.NoError(t, c.Close())
	require.Equal(t, "a\nb\n", <-ended, "the server's connection ends with the client's")
}

func TestAClientIsRefused(t *testing.T) {
	t.Parallel()
	server, ended := echo(t)
	dial(t, start(t, server, func(*faultproxy.Conn) (faultproxy.Rules, bool) { return faultproxy.Rules{}, false })).isCut(t)
	require.Empty(t, ended)
}

func TestRulesLoseDataOfEachDirection(t *testing.T) {
	t.Parallel()
	server, ended := echo(t)
	requests, answers := make(chan string, 10), make(chan string, 10)
	c := dial(t, start(t, server, func(*faultproxy.Conn) (faultproxy.Rules, bool) {
		return faultproxy.Rules{
			Request: func(data []byte) bool { requests <- string(data); return string(data) != "request\n" },
			Answer:  func(data []byte) bool { answers <- string(data); return string(data) != "answer\n" },
		}, true
	}))
	for _, line := range []string{"a", "request", "b", "answer", "c"} {
		c.say(t, line)
		require.Equal(t, line+"\n", <-requests)
		if line == "request" {
			continue
		}
		require.Equal(t, line+"\n", <-answers)
		if line != "answer" {
			c.hears(t, line)
		}
	}
	require.NoError(t, c.Close())
	require.Equal(t, "a\nb\nanswer\nc\n", <-ended)
}

func TestCloseAllClosesAlsoAConnectionThatIsBeingMade(t *testing.T) {
	t.Parallel()
	server, ended := echo(t)
	asked, answer := make(chan bool), make(chan bool)
	p := start(t, server, func(*faultproxy.Conn) (faultproxy.Rules, bool) {
		asked <- true
		<-answer
		return faultproxy.Rules{}, true
	})
	c := dial(t, p)
	<-asked
	p.CloseAll()
	answer <- true
	c.isCut(t)
	require.Equal(t, "", <-ended, "it was dialled, and closed")
}

func TestTheServersConnectionOutlivesTheClients(t *testing.T) {
	t.Parallel()
	server, ended := echo(t)
	conns := make(chan *faultproxy.Conn, 1)
	p := start(t, server, func(c *faultproxy.Conn) (faultproxy.Rules, bool) {
		conns <- c
		return faultproxy.Rules{KeepServer: true}, true
	})
	c := dial(t, p)
	c.say(t, "a")
	c.hears(t, "a")
	(<-conns).CloseClient()
	c.isCut(t)
	require.Empty(t, ended)
	p.Close()
	require.Equal(t, "a\n", <-ended)
}
