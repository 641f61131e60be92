package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// binary is the built sample.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "echo-fx-demo-test")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "echo-fx-demo")
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("building the sample: %v\n%s", err, out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// place holds a sample's data. It outlives the process.
type place struct {
	dir string
	env []string
}

func newPlace(t testing.TB, target testdb.Target) *place {
	t.Helper()
	p := &place{dir: t.TempDir(), env: []string{"ADMIN_PASSWORD=secret", "HOME=" + t.TempDir()}}
	if target.Kind != testdb.SQLite {
		p.env = append(p.env, "DATABASE_URL="+address(t, testdb.Open(t, target)))
	}
	return p
}

// address is the test's database as the sample takes it.
func address(t testing.TB, db *testdb.DB) string {
	t.Helper()
	if db.Kind == testdb.Postgres {
		return db.DSN
	}
	config, err := mysql.ParseDSN(db.DSN)
	require.NoError(t, err)
	u := url.URL{Scheme: "mysql", Host: config.Addr, Path: "/" + config.DBName, User: url.UserPassword(config.User, config.Passwd)}
	return u.String()
}

// process is a running sample.
type process struct {
	*exec.Cmd
	url    string
	client *http.Client
	errors *bytes.Buffer
	mu     sync.Mutex
	lines  []string // of its output
}

func (s *process) output() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

func (s *process) keep(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (p *place) start(t testing.TB, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), binary, append([]string{"-addr", "127.0.0.1:0", "-data", p.dir}, args...)...)
	cmd.Env = append(os.Environ(), p.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	s := &process{Cmd: cmd, errors: &stderr, client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "serving on "); ok {
			s.url, _, _ = strings.Cut(rest, ",")
			go func() {
				for lines.Scan() {
					s.keep(lines.Text())
				}
			}()
			return s
		}
		s.keep(lines.Text()) // the span of an event from an earlier run
	}
	require.NoError(t, cmd.Wait(), "the sample did not start: %s", stderr.String())
	return nil
}

func (s *process) call(method, path, body string) (status int, answer []byte, err error) {
	return s.send(method, path, body, "")
}

// placeBy places an order by key.
func (s *process) placeBy(key, body string) (status int, answer string, err error) {
	status, text, err := s.send(http.MethodPost, "/orders", body, key)
	return status, string(text), err
}

func (s *process) send(method, path, body, key string) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(context.Background(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	request.SetBasicAuth("admin", "secret")
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

func (s *process) get(t testing.TB, path string, v any) {
	t.Helper()
	status, answer, err := s.call(http.MethodGet, path, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s", answer)
	require.NoError(t, json.Unmarshal(answer, v))
}

// healthy waits for the first poll.
func (s *process) healthy(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, _, err := s.call(http.MethodGet, "/healthz", "")
		return err == nil && status == http.StatusOK
	}, 20*time.Second, 5*time.Millisecond)
}

// end waits for the process after a signal to stop.
func (s *process) end(t testing.TB) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Wait() }()
	select {
	case err := <-done:
		require.NoError(t, err, "%s", s.errors.String())
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not stop: %s", s.errors.String())
	}
}

// delivered counts the deliveries of each order in the file, which outlives the
// process. A kill may have cut a line off.
func (p *place) delivered(t testing.TB) (byOrder, byCustomer map[string]int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "deliveries.jsonl"))
	require.NoError(t, err)
	byOrder, byCustomer = map[string]int{}, map[string]int{}
	for line := range bytes.Lines(text) {
		var d struct {
			OrderID  string `json:"order_id"`
			Customer string `json:"customer"`
		}
		if json.Unmarshal(line, &d) == nil {
			byOrder[d.OrderID]++
			byCustomer[d.Customer]++
		}
	}
	return byOrder, byCustomer
}

// load sends orders, some of which fail, until the process is gone.
type load struct {
	mu      sync.Mutex
	placed  []string // ids of the orders that were answered with 201
	refused []string // customers whose request was answered with an error
	wg      sync.WaitGroup
}

func (l *load) run(s *process, clients int) {
	failures := []string{"", "", "?simulate=handler-error", "", "?simulate=commit-failure", "", "?simulate=panic", "?simulate=listener-error"}
	for client := range clients {
		l.wg.Go(func() {
			for n := 0; ; n++ {
				customer := fmt.Sprintf("c%d-%d", client, n)
				status, answer, err := s.call(http.MethodPost, "/orders"+failures[n%len(failures)],
					fmt.Sprintf(`{"customer":%q,"item":"tea","quantity":1}`, customer))
				if err != nil {
					return // it is gone, and whether this order was placed is unknown
				}
				var order struct {
					OrderID string `json:"order_id"`
				}
				l.mu.Lock()
				if status == http.StatusCreated && json.Unmarshal(answer, &order) == nil {
					l.placed = append(l.placed, order.OrderID)
				} else {
					l.refused = append(l.refused, customer)
				}
				l.mu.Unlock()
			}
		})
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.placed)
}
