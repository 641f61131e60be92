package webtest

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// protocols are the protocols of the tests, by name.
var protocols = map[string]func(p *http.Protocols){
	"HTTP1": func(p *http.Protocols) { p.SetHTTP1(true) },
	"HTTP2": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
}

// eachProtocol runs a test over each protocol.
func eachProtocol(t *testing.T, fn func(t *testing.T, protocol string)) {
	t.Helper()
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			fn(t, protocol)
		})
	}
}

// server is a real server with a real client, whose connections can be cut.
type server struct {
	t      testing.TB
	url    string
	client *http.Client
	ended  chan struct{} // gets a value when a request has been handled

	mu    sync.Mutex
	conns []net.Conn
}

func serve(t testing.TB, protocol string, handler http.Handler) *server {
	t.Helper()
	s := &server{t: t, ended: make(chan struct{}, 100)}
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { s.ended <- struct{}{} }()
		handler.ServeHTTP(w, r)
	}))
	backend.Config.ErrorLog = log.New(io.Discard, "", 0)
	backend.Config.Protocols = new(http.Protocols)
	protocols[protocol](backend.Config.Protocols)
	backend.Start()
	transport := &http.Transport{DisableCompression: true, Protocols: backend.Config.Protocols, DialContext: s.dial}
	s.url = backend.URL
	s.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       30 * time.Second,
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		backend.Close()
	})
	return s
}

func (s *server) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err == nil {
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
	}
	return conn, err
}

// kill cuts the client's connections as the end of the client's process would.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// wait waits until a request has been handled.
func (s *server) wait() {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		s.t.Fatal("the request has not ended")
	}
}

// answer is the answer that the client saw.
type answer struct {
	*http.Response
	body string
	err  error // of reading the body
}

// request makes a request; headers are names and values.
func (s *server) request(method, path string, body io.Reader, headers ...string) *http.Request {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	require.NoError(s.t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return request
}

// send sends a request and reads the whole answer.
func (s *server) send(method, path string, headers ...string) answer {
	s.t.Helper()
	return s.do(s.request(method, path, nil, headers...))
}

func (s *server) post(path string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, path)
}

func (s *server) do(request *http.Request) answer {
	s.t.Helper()
	response, err := s.client.Do(request)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{Response: response, body: strings.TrimSpace(string(body)), err: err}
}

// is checks status and body.
func (a answer) is(t testing.TB, status int, body string) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, body, a.body)
	require.Equal(t, status, a.StatusCode)
}

// spy is the outermost writer: it reports when a final response leaves.
type spy struct {
	http.ResponseWriter
	report func(event string)
}

// spied is a handler whose responses are reported.
func spied(report func(event string), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &spy{w, report}
		next.ServeHTTP(s, r)
		report("returned")
	})
}

func (s *spy) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *spy) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		s.report("sent")
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *spy) Write(b []byte) (int, error) {
	s.report("sent")
	return s.ResponseWriter.Write(b)
}

func (s *spy) Flush() {
	s.report("sent")
	_ = http.NewResponseController(s.ResponseWriter).Flush()
}

func (s *spy) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	s.report("sent")
	return http.NewResponseController(s.ResponseWriter).Hijack()
}

func (s *spy) CloseNotify() <-chan bool {
	return s.ResponseWriter.(http.CloseNotifier).CloseNotify() //nolint:staticcheck // gin calls CloseNotify.
}
