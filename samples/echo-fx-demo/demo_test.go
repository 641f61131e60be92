package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func everyDatabase(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	for _, target := range testdb.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlace(t, target))
		})
	}
}

func TestStoppedUnderLoad(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, p *place) { interrupt(t, p, syscall.SIGTERM) })
}

func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, p *place) { interrupt(t, p, syscall.SIGKILL) })
}

func interrupt(t *testing.T, p *place, signal syscall.Signal) {
	t.Helper()
	s := p.start(t)
	var l load
	l.run(s, 8)
	require.Eventually(t, func() bool { return l.count() > 100 }, 60*time.Second, time.Millisecond)
	require.NoError(t, s.Process.Signal(signal))
	if signal == syscall.SIGTERM {
		s.end(t)
	} else {
		_ = s.Wait()
	}
	l.wg.Wait()

	again := p.start(t)
	require.Eventually(t, func() bool {
		byOrder, _ := p.delivered(t)
		for _, id := range l.placed {
			if byOrder[id] == 0 {
				return false
			}
		}
		return true
	}, 60*time.Second, 20*time.Millisecond, "each order that was answered with 201 is delivered")
	// No more may follow.
	var stats struct {
		Pending int `json:"pending"`
		Dead    int `json:"dead"`
	}
	require.Eventually(t, func() bool {
		again.get(t, "/admin/outbox/stats", &stats)
		return stats.Pending == 0
	}, 60*time.Second, 20*time.Millisecond)
	require.Zero(t, stats.Dead)

	var saved struct {
		Orders []struct {
			OrderID string `json:"order_id"`
		}
	}
	again.get(t, "/orders?limit=10000", &saved)
	byOrder, byCustomer := p.delivered(t)
	require.Len(t, byOrder, len(saved.Orders), "delivered is what was saved, and nothing else")
	for _, o := range saved.Orders {
		require.Positive(t, byOrder[o.OrderID])
	}
	for _, customer := range l.refused {
		require.Zero(t, byCustomer[customer], "%s got an error for the order", customer)
	}
	if signal == syscall.SIGTERM {
		for id, n := range byOrder {
			require.Equal(t, 1, n, "order %s was delivered %d times without a crash", id, n)
		}
	}
	require.NoError(t, again.Process.Signal(syscall.SIGTERM))
	again.end(t)
}

func TestTour(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, p *place) {
		cmd := exec.CommandContext(t.Context(), binary, "-tour")
		cmd.Env = append(os.Environ(), p.env...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "Every order that was saved has its event delivered, and no other.")
		require.Contains(t, string(out), "dead: the warehouse does not know the item")
	})
}

func TestBadInputIsAnswered(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testdb.Main()[2])
	s := p.start(t)
	for body, says := range map[string]string{
		``:                                "is missing or blank",
		`{`:                               "unexpected EOF",
		`[]`:                              "cannot unmarshal array into Go value of type main.orderRequest",
		`{"customer":1}`:                  "cannot unmarshal number into Go struct field orderRequest.customer of type string",
		`{"customer":"Ada","item":""}`:    "item is missing or blank",
		`{"customer":"Ada","item":"tea"}`: "quantity is 0",
		`{"customer":"Ada","item":"tea","quantity":-1}`:                             "quantity is -1",
		`{"customer":"Ada","item":"tea","quantity":"1"}`:                            "cannot unmarshal string into Go struct field orderRequest.quantity of type int",
		`{"customer":"` + strings.Repeat("é", 101) + `","item":"tea","quantity":1}`: "customer is longer than 100 characters",
		`{"customer":"A\u0000","item":"tea","quantity":1}`:                          "customer contains a NUL",
	} {
		status, answer, err := s.call(http.MethodPost, "/orders", body)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, status, "%.60s", body)
		var problem struct{ Error string }
		require.NoError(t, json.Unmarshal(answer, &problem), "%.60s: %s", body, answer)
		require.Contains(t, problem.Error, says, "%.60s", body)
	}
	for path, says := range map[string]string{
		"/orders?limit=x": "invalid syntax", "/orders?limit=0": "from 1", "/deliveries?limit=100000": "from 1 to 10000",
	} {
		status, answer, err := s.call(http.MethodGet, path, "")
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, status, path)
		require.Contains(t, string(answer), says)
	}
	status, answer, err := s.call(http.MethodPost, "/orders?simulate=x", anOrder)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, string(answer), "known are")
	status, _, err = s.call(http.MethodPost, "/orders", strings.Repeat(" ", 70_000)+anOrder)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	status, answer, err = s.call(http.MethodPost, "/orders/bulk", `{"customer":"Ada","item":"tea","quantity":1,"n":1001}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, string(answer), "n is 1001")

	var saved struct{ Orders []any }
	s.get(t, "/orders", &saved)
	require.Empty(t, saved.Orders)
	var stats struct{ Pending, Dead int }
	s.get(t, "/admin/outbox/stats", &stats)
	require.Zero(t, stats)
	byOrder, _ := p.delivered(t)
	require.Empty(t, byOrder)
}

func TestAdminNeedsThePassword(t *testing.T) {
	t.Parallel()
	s := newPlace(t, testdb.Main()[2]).start(t)
	for _, password := range []string{"", "wrong"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/admin/outbox/stats", nil)
		require.NoError(t, err)
		if password != "" {
			request.SetBasicAuth("admin", password)
		}
		response, err := s.client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusUnauthorized, response.StatusCode)
	}
	status, _, err := s.call(http.MethodGet, "/admin/outbox/stats", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	s.healthy(t)
}

func TestMetricsAreScraped(t *testing.T) {
	t.Parallel()
	s := newPlace(t, testdb.Main()[2]).start(t)
	for _, simulate := range []string{"", "", "?simulate=listener-dead", "?simulate=handler-error"} {
		_, _, err := s.call(http.MethodPost, "/orders"+simulate, `{"customer":"Ada","item":"tea","quantity":1}`)
		require.NoError(t, err)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, text, err := s.call(http.MethodGet, "/metrics", "")
		require.NoError(c, err)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		require.NoError(c, err)
		for name, want := range map[string]float64{"outbox_enqueue_hot_total": 3, "outbox_dispatch_success_total": 2, "outbox_dispatch_dead_total": 1} {
			require.Contains(c, families, name)
			m := families[name].GetMetric()[0]
			require.InDelta(c, want, m.GetCounter().GetValue(), 0, name)
			require.Equal(c, "OrderPlaced", m.GetLabel()[1].GetValue())
		}
		require.Contains(c, families, "outbox_table_up")
		require.Contains(c, families, "go_goroutines")
	}, 20*time.Second, 20*time.Millisecond)
}

func TestWrongSettingsAreExplained(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		env  string
		says string
	}{
		"database":  {nil, "DATABASE_URL=oracle://x", "known are postgres:// and mysql://"},
		"nowhere":   {nil, "DATABASE_URL=postgres://127.0.0.1:1/x?sslmode=disable", "connecting to postgres://127.0.0.1:1/x"},
		"no url":    {nil, "DATABASE_URL=postgres://u:s3cr3t%zz@h/x", "is not a URL: invalid URL escape"},
		"argument":  {[]string{"serve"}, "", `"serve" is unexpected`},
		"variable":  {nil, "OUTBOX_DISPATCHER_WORKERS=3", "OUTBOX_DISPATCHER_WORKERS"},
		"no config": {[]string{"-config", "missing.yaml"}, "", "missing.yaml"},
		"traces":    {nil, "OTEL_TRACES_EXPORTER=jaeger", "known are none, console and otlp"},
		"port":      {[]string{"-addr", "127.0.0.1:99999"}, "", "99999"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), binary, append([]string{"-addr", "127.0.0.1:0", "-data", t.TempDir()}, tc.args...)...)
			cmd.Env = append(os.Environ(), tc.env)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.True(t, errors.As(err, &exit), "%s", out)
			require.Equal(t, 1, exit.ExitCode())
			require.Contains(t, string(out), tc.says)
			require.NotContains(t, string(out), "s3cr3t")
		})
	}
}

// A client that sends its body slowly delays neither others nor the end.
func TestASlowClientDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testdb.Main()[2])
	s := p.start(t)
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: demo\r\nContent-Length: 100\r\n\r\n{\"cus")
	require.NoError(t, err)
	for range 3 {
		status, answer, err := s.call(http.MethodPost, "/orders", `{"customer":"Ada","item":"tea","quantity":1}`)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status, "%s", answer)
	}
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	s.end(t)
	byOrder, _ := p.delivered(t)
	require.Len(t, byOrder, 3)
}

func TestAGivenPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	s := newPlace(t, testdb.Main()[2]).start(t)
	require.Eventually(t, func() bool { return strings.Contains(strings.Join(s.output(), "\n"), "/admin/outbox/stats") }, 20*time.Second, time.Millisecond)
	require.NotContains(t, strings.Join(s.output(), "\n"), "secret")
	require.Contains(t, strings.Join(s.output(), "\n"), "admin:$ADMIN_PASSWORD")
}

func TestOtherMethodsAreNotAllowed(t *testing.T) {
	t.Parallel()
	s := newPlace(t, testdb.Main()[2]).start(t)
	status, _, err := s.call(http.MethodPut, "/orders", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusMethodNotAllowed, status)
	status, answer, err := s.call(http.MethodPost, "/orders/bulk?simulate=handler-error", `{"customer":"Ada","item":"tea","quantity":1,"n":2}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusInternalServerError, status, "%s", answer)
}

// Clients send their orders with the same keys again and again, while the service is killed and started
// ten times: one order, one event and one answer for each key.
func TestTheSameKeysWhileTheServiceIsKilled(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, p *place) {
		const customers, kills, clients = 40, 10, 4
		var mu sync.Mutex
		answers := map[string]string{}
		send := func(s *process, customer string) bool {
			status, answer, err := s.placeBy(customer, fmt.Sprintf(`{"customer":%q,"item":"tea","quantity":1}`, customer))
			if err != nil {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			if status != http.StatusCreated {
				t.Errorf("%s was answered %d %s", customer, status, answer)
			} else if first, again := answers[customer]; again && first != answer {
				t.Errorf("%s was answered %s, and then %s", customer, first, answer)
			}
			answers[customer] = answer
			return true
		}
		for round := range kills {
			s := p.start(t)
			var got atomic.Int64
			var wg sync.WaitGroup
			for client := range clients {
				wg.Go(func() {
					for i := client; send(s, fmt.Sprint("customer-", i%customers)); i += 1 + round%3 {
						got.Add(1)
					}
				})
			}
			require.Eventually(t, func() bool { return got.Load() >= int64(7*round) }, 60*time.Second, time.Millisecond)
			_ = s.Process.Kill()
			_ = s.Wait()
			wg.Wait()
		}
		s := p.start(t)
		for i := range customers {
			require.True(t, send(s, fmt.Sprint("customer-", i)))
		}
		var found struct{ Orders []struct{ Customer string } }
		s.get(t, "/orders?limit=1000", &found)
		require.Len(t, found.Orders, customers)
		require.Eventually(t, func() bool {
			byOrder, byCustomer := p.delivered(t)
			return len(byOrder) == customers && len(byCustomer) == customers
		}, 60*time.Second, 5*time.Millisecond)
		require.Len(t, answers, customers)
	})
}
