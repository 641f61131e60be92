package webtest

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// The first Flush commits, and later data is sent as it is written.
func flushCommits(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		s := openShop(t, sqlite())
		goOn := make(chan struct{})
		var late, registered error
		server := serve(t, protocol, fw.New(t, s.app(map[string]Handler{"/": s.placing(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			_ = write(w, "data: 1\n\n")
			if len(s.record.Outcomes()) != 0 {
				t.Error("it has ended before the flush")
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
			late, registered = s.write(r), httptx.OnCommit(r.Context(), func(context.Context) {})
			<-goOn
			_ = write(w, "data: 2\n\n")
			return http.NewResponseController(w).Flush()
		})})))
		response, err := server.client.Do(server.request(http.MethodPost, "/", nil))
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		lines := bufio.NewReader(response.Body)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "data: 1\n", line)
		s.want(1, "commit")
		close(goOn)
		rest, err := io.ReadAll(lines)
		require.NoError(t, err)
		require.Equal(t, "\ndata: 2\n\n", string(rest))
		require.ErrorIs(t, late, outbox.ErrNoTransaction)
		require.ErrorIs(t, registered, outbox.ErrNoTransaction)
	})
}

func hijackCommits(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	hijack := s.placing(func(w http.ResponseWriter, _ *http.Request) error {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, _ = buffered.WriteString("HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\nConnection: close\r\n\r\n")
		if outcomes := s.record.Outcomes(); len(outcomes) == 1 && outcomes[0] == "commit" {
			_, _ = buffered.WriteString("raw")
		}
		return buffered.Flush()
	})
	doomed := func(w http.ResponseWriter, r *http.Request) error {
		if err := s.doom(r); err != nil {
			return err
		}
		return hijack(w, r)
	}
	handler := fw.New(t, s.app(map[string]Handler{"/": hijack, "/doomed": doomed}))
	serve(t, "HTTP1", handler).post("/").is(t, 202, "raw")
	s.want(1, "commit")
	// A connection of HTTP/2 cannot be hijacked, and the attempt commits nothing.
	serve(t, "HTTP2", handler).post("/").is(t, 500, "failed")
	s.want(1, "commit", "rollback")
	serve(t, "HTTP1", handler).post("/doomed").is(t, 500, "not committed")
	s.want(1, "commit", "rollback", "rollback")
}

func websocketCommits(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	var late error
	server := serve(t, "HTTP1", fw.New(t, s.app(map[string]Handler{"/": s.placing(func(w http.ResponseWriter, r *http.Request) error {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return err
		}
		late = s.write(r)
		if err := conn.Write(r.Context(), websocket.MessageText, []byte("hello")); err != nil {
			return err
		}
		return conn.Close(websocket.StatusNormalClosure, "")
	})})))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, server.url, &websocket.DialOptions{HTTPClient: server.client}) //nolint:bodyclose // the connection is the body.
	require.NoError(t, err)
	_, message, err := conn.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, "hello", string(message))
	s.want(1, "commit")
	_, _, err = conn.Read(ctx)
	require.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(err))
	server.wait()
	require.ErrorIs(t, late, outbox.ErrNoTransaction)
}

// A stream whose commit failed finds its context ended, with the reason, and nothing of the stream
// is sent.
func failedStream(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		s := openShop(t, sqlite())
		var cause error
		server := serve(t, protocol, fw.New(t, s.app(map[string]Handler{
			"/": s.placing(func(w http.ResponseWriter, r *http.Request) error {
				if err := s.doom(r); err != nil {
					return err
				}
				_ = write(w, "success")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				cause = context.Cause(r.Context())
				return nil
			}),
			"/panic": s.placing(func(w http.ResponseWriter, r *http.Request) error {
				if err := s.doom(r); err != nil {
					return err
				}
				_ = write(w, "success")
				w.(http.Flusher).Flush()
				panic("boom")
			}),
		})))
		server.post("/").is(t, 500, "not committed")
		var commit *httptx.CommitError
		require.ErrorAs(t, cause, &commit)
		got := server.post("/panic")
		require.Equal(t, 500, got.StatusCode)
		require.NotContains(t, got.body, "success")
		s.want(0, "rollback", "rollback")
	})
}

func maxBuffer(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		s, ended := openShop(t, sqlite()), &journal{}
		config := s.config()
		config.MaxBuffer = 100
		writing := func(size int) Handler {
			return s.placing(func(w http.ResponseWriter, _ *http.Request) error {
				before := len(s.record.Outcomes())
				for _, text := range []string{strings.Repeat("x", 60), strings.Repeat("y", size-60), ""} {
					if err := write(w, text); err != nil {
						return err
					}
					if len(s.record.Outcomes()) > before {
						ended.add("committed")
						return nil
					}
				}
				return nil
			})
		}
		server := serve(t, protocol, fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{
			"/fits": writing(100), "/over": writing(101),
		}}))
		require.Len(t, server.post("/fits").body, 100)
		require.Empty(t, ended.take())
		require.Len(t, server.post("/over").body, 101)
		require.Equal(t, []string{"committed"}, ended.take(), "the response that is too long has committed")
		s.want(2, "commit", "commit")
	})
}

func informational(t *testing.T, fw Framework) {
	if fw.NoInformational {
		t.Skip("the framework sends no informational responses")
	}
	eachProtocol(t, func(t *testing.T, protocol string) {
		s := openShop(t, sqlite())
		hinted := make(chan struct{})
		server := serve(t, protocol, fw.New(t, s.app(map[string]Handler{"/": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Link", "</style.css>")
			below(w).WriteHeader(http.StatusEarlyHints)
			<-hinted
			if len(s.record.Outcomes()) > 0 {
				t.Error("an informational response has ended the transaction")
			}
			return write(w, "success")
		})})))
		request := server.request(http.MethodPost, "/", nil)
		server.do(request.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(status int, _ textproto.MIMEHeader) error {
			require.Equal(t, http.StatusEarlyHints, status)
			close(hinted)
			return nil
		}}))).is(t, 200, "success")
		s.want(1, "commit")
	})
}

// below is the middleware's writer under the framework's writer, which takes an informational
// response for the final response.
func below(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapped.Unwrap()
	}
}

func deadlines(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		s := openShop(t, sqlite())
		server := serve(t, protocol, fw.New(t, s.app(map[string]Handler{"/": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
			controller := http.NewResponseController(w)
			steps := []error{controller.SetReadDeadline(time.Now().Add(time.Minute)), controller.SetWriteDeadline(time.Now().Add(time.Minute))}
			if protocol == "HTTP1" {
				steps = append(steps, controller.EnableFullDuplex())
			}
			for _, err := range steps {
				if err != nil {
					return err
				}
			}
			if len(s.record.Outcomes()) > 0 {
				t.Error("setting deadlines has ended the transaction")
			}
			return write(w, "set")
		})})))
		server.post("/").is(t, 200, "set")
	})
}
