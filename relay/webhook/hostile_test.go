package webhook_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay/webhook"
)

// speak starts a server that writes answers by hand. It reads a request first.
func speak(t *testing.T, answer func(conn net.Conn)) (to webhook.Endpoint, trust func(*webhook.Config, *outbox.Mode)) {
	t.Helper()
	borrowed := httptest.NewTLSServer(nil)
	certificate, pool := borrowed.TLS.Certificates[0], x509.NewCertPool()
	pool.AddCert(borrowed.Certificate())
	borrowed.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				q, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, q.Body)
				answer(conn)
			}()
		}
	}()
	return webhook.Endpoint{URL: "https://" + l.Addr().String() + "/hush", Secrets: []webhook.Secret{secret}}, func(cfg *webhook.Config, _ *outbox.Mode) {
		cfg.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		cfg.TLS = &tls.Config{RootCAs: pool} //nolint:gosec // New sets MinVersion
		cfg.Timeout = 300 * time.Millisecond
	}
}

// untilClosed waits for the end of a connection.
func untilClosed(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// An answer must not hold a worker for longer than the Timeout, whatever it looks like.
func TestAnAnswerByHandHoldsNoWorker(t *testing.T) {
	for name, text := range map[string]string{
		"switches protocols":       "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"switches and says":        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nhello",
		"switches to nothing":      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"continues for ever":       strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 10_000),
		"early hints":              strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n", 10_000),
		"says nothing":             "",
		"is not HTTP":              "220 smtp.example ESMTP hush\r\n",
		"a long line":              strings.Repeat("x", 1<<20),
		"a status of no sense":     "HTTP/1.1 999 Hush\r\nContent-Length: 0\r\n\r\n",
		"two lengths":              "HTTP/1.1 500 No\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
		"a redirect to no URL":     "HTTP/1.1 302 Found\r\nLocation: https://%zz/hush\r\nContent-Length: 0\r\n\r\n",
		"a redirect into the host": "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://169.254.169.254/hush\r\nContent-Length: 0\r\n\r\n",
		"chunks that do not end":   "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\nx",
		"a chunk line of no end":   "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("0", 1<<20),
		"trailers of no end":       "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: b\r\n", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			to, trust := speak(t, func(conn net.Conn) {
				_, _ = io.WriteString(conn, text)
				untilClosed(conn)
			})
			s := serve(t, sqlite(t), webhook.Static{"a": to}, trust)
			failed := make(chan error, 1)
			go func() { failed <- s.deliver("a") }()
			select {
			case err := <-failed:
				require.Error(t, err)
				require.NotContains(t, err.Error(), "hush")
				require.Less(t, len(err.Error()), 1_300)
				t.Log(err)
			case <-time.After(20 * time.Second):
				require.FailNow(t, "the request does not end")
			}
		})
	}
}

// A connection of HTTP/2 that died without a word must not take the requests for as long as TCP has patience.
func TestADeadConnectionIsReplaced(t *testing.T) {
	r := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.ProtoMajor != 2 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
		}
	}))
	r.EnableHTTP2 = true
	r.StartTLS()
	t.Cleanup(r.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var dead atomic.Int32 // how many connections are dead
	go func() {
		for n := int32(1); ; n++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", r.Listener.Addr().String())
			if err != nil {
				_ = in.Close()
				return
			}
			carry := func(to, from net.Conn) {
				defer func() { _ = to.Close() }()
				piece := make([]byte, 1<<16)
				for {
					size, err := from.Read(piece)
					if err != nil {
						return
					}
					if dead.Load() < n {
						_, _ = to.Write(piece[:size])
					}
				}
			}
			go carry(out, in)
			go carry(in, out)
		}
	}()
	pool := x509.NewCertPool()
	pool.AddCert(r.Certificate())
	s := serve(t, sqlite(t), webhook.Static{"a": {URL: "https://" + l.Addr().String(), Secrets: []webhook.Secret{secret}}}, func(cfg *webhook.Config, _ *outbox.Mode) {
		cfg.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		cfg.TLS = &tls.Config{RootCAs: pool} //nolint:gosec // New sets MinVersion
		cfg.Timeout = time.Second
	})
	require.NoError(t, s.deliver("a"))
	dead.Store(1)
	require.Error(t, s.deliver("a"))
	require.Eventually(t, func() bool { return s.deliver("a") == nil }, time.Minute, time.Millisecond)
}

// An endpoint may close an idle connection at the moment at which a request is written to it.
func TestARequestOnAConnectionThatEndsIsRepeatedAtOnce(t *testing.T) {
	var connections atomic.Int32
	named := make(chan bool, 1)
	to, trust := speak(t, func(conn net.Conn) {
		is := connections.Add(1) // before the answer, after which the test goes on
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		if is > 1 {
			untilClosed(conn)
			return
		}
		q, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		_, sent := q.Header["Idempotency-Key"]
		named <- sent
	})
	s := serve(t, sqlite(t), webhook.Static{"a": to}, func(cfg *webhook.Config, mode *outbox.Mode) {
		trust(cfg, mode)
		cfg.Timeout = 20 * time.Second // the machine may be busy
	})
	require.NoError(t, s.deliver("a"))
	require.NoError(t, s.deliver("a"))
	require.EqualValues(t, 2, connections.Load())
	require.False(t, <-named, "the entry is not sent")
}
