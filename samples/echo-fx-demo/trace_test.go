package main_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

const anOrder = `{"customer":"Ada","item":"tea","quantity":1}`

// spanContext names a span.
type spanContext struct{ TraceID, SpanID string }

// span is a line that the console exporter prints.
type span struct {
	Name                 string
	SpanKind             int
	StartTime            time.Time
	SpanContext, Parent  spanContext
	Attributes, Resource []struct {
		Key   string
		Value struct{ Value any }
	}
	Status struct{ Code string }
}

// spans are those that the sample has printed, as they began.
func (s *process) spans() []span {
	var found []span
	for _, line := range s.output() {
		var printed span
		if json.Unmarshal([]byte(line), &printed) == nil && printed.Name != "" {
			found = append(found, printed)
		}
	}
	slices.SortFunc(found, func(a, b span) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

// tree is the names of the spans below one, each line deeper than its parent's.
func tree(spans []span, below spanContext) string {
	var text strings.Builder
	for _, s := range spans {
		if s.Parent.SpanID == below.SpanID && s.SpanContext.TraceID == below.TraceID {
			text.WriteString(s.Name + "\n")
			for line := range strings.Lines(tree(spans, s.SpanContext)) {
				text.WriteString("  " + line)
			}
		}
	}
	return text.String()
}

// caller is the span of a client of the service.
var caller = spanContext{"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"}

// placeOrder sends an order in the caller's trace.
func (s *process) placeOrder(t *testing.T, query string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/orders"+query, strings.NewReader(anOrder))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("traceparent", "00-"+caller.TraceID+"-"+caller.SpanID+"-01")
	response, err := s.client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusCreated, response.StatusCode)
}

// grows waits until the spans that the processes printed are that tree, and
// returns them.
func grows(t *testing.T, want string, processes ...*process) []span {
	t.Helper()
	var found []span
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		found = nil
		for _, s := range processes {
			found = append(found, s.spans()...)
		}
		assert.Equal(c, strings.TrimLeft(want, "\n"), tree(found, caller))
		assert.Len(c, found, strings.Count(strings.TrimSpace(want), "\n")+1, "no span is elsewhere")
	}, 20*time.Second, 5*time.Millisecond)
	return found
}

// tracing is a place whose samples print their spans.
func tracing(t *testing.T, env ...string) *place {
	t.Helper()
	p := newPlace(t, testdb.Main()[2])
	p.env = append(append(p.env, "OTEL_TRACES_EXPORTER=console"), env...)
	return p
}

// One trace from the request through the write to the listener.
func TestARequestAndItsDeliveryAreOneTrace(t *testing.T) {
	t.Parallel()
	s := tracing(t, "OUTBOX_POLLER_INTERVAL=1h").start(t) // without the poller
	s.placeOrder(t, "")
	grows(t, `
POST /orders
  write Order/OrderPlaced
    deliver Order/OrderPlaced
      ship order
`, s)
}

func TestAnEventThatOutlivesItsProcessStaysInTheTrace(t *testing.T) {
	t.Parallel()
	p := tracing(t, "OUTBOX_MODE=writer-only")
	killed := p.start(t)
	killed.placeOrder(t, "")
	grows(t, `
POST /orders
  write Order/OrderPlaced
`, killed)
	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait() // "signal: killed"

	p.env = append(p.env, "OUTBOX_MODE=single-node")
	grows(t, `
POST /orders
  write Order/OrderPlaced
    deliver Order/OrderPlaced
      ship order
`, killed, p.start(t))
}

func TestEachAttemptIsInTheTrace(t *testing.T) {
	t.Parallel()
	s := tracing(t).start(t)
	s.placeOrder(t, "?simulate=listener-error")
	found := grows(t, `
POST /orders
  write Order/OrderPlaced
    deliver Order/OrderPlaced
    deliver Order/OrderPlaced
    deliver Order/OrderPlaced
      ship order
`, s)
	var outcomes []string
	for _, attempt := range found {
		if strings.HasPrefix(attempt.Name, "deliver ") {
			outcomes = append(outcomes, attempt.Status.Code)
		}
	}
	require.Equal(t, []string{"Error", "Error", "Unset"}, outcomes)
}

func TestScrapesAndProbesHaveNoTraces(t *testing.T) {
	t.Parallel()
	s := tracing(t).start(t)
	s.healthy(t)
	for _, path := range []string{"/metrics", "/orders"} {
		status, answer, err := s.call(http.MethodGet, path, "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "%s", answer)
	}
	require.Eventually(t, func() bool { return len(s.spans()) > 0 }, 20*time.Second, 5*time.Millisecond)
	require.Len(t, s.spans(), 1)
	require.Equal(t, "GET /orders", s.spans()[0].Name)
}

func TestSpansAreOfTheServiceThatTheEnvironmentNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env  []string
		want map[string]any
	}{
		"default":         {nil, map[string]any{"service.name": "echo-fx-demo", "telemetry.sdk.language": "go"}},
		"name":            {[]string{"OTEL_SERVICE_NAME=shop"}, map[string]any{"service.name": "shop"}},
		"attributes":      {[]string{"OTEL_RESOURCE_ATTRIBUTES=service.name=shop,host.name=h1"}, map[string]any{"service.name": "shop", "host.name": "h1"}},
		"both":            {[]string{"OTEL_SERVICE_NAME=shop", "OTEL_RESOURCE_ATTRIBUTES=service.name=bar"}, map[string]any{"service.name": "shop"}},
		"an unclear part": {[]string{"OTEL_RESOURCE_ATTRIBUTES=host.name=h1,what"}, map[string]any{"service.name": "echo-fx-demo", "host.name": "h1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tracing(t, append([]string{"OTEL_SERVICE_NAME=", "OTEL_RESOURCE_ATTRIBUTES=", "OTEL_TRACES_EXPORTER=Console"}, tc.env...)...).start(t)
			status, _, err := s.call(http.MethodGet, "/orders", "")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			require.Eventually(t, func() bool { return len(s.spans()) == 1 }, 20*time.Second, 5*time.Millisecond)
			got := map[string]any{}
			for _, attribute := range s.spans()[0].Resource {
				got[attribute.Key] = attribute.Value.Value
			}
			require.Subset(t, got, tc.want)
		})
	}
}

// A collector that accepts spans and never answers does not fail the service, and
// does not delay its end for long.
func TestACollectorThatDoesNotAnswerDoesNotFailTheService(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	collector, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel accepts, and the test never reads
	require.NoError(t, err)
	defer func() { _ = collector.Close() }()
	p := tracing(t, "OTEL_TRACES_EXPORTER=OTLP", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+collector.Addr().String())
	s := p.start(t)
	s.placeOrder(t, "")
	require.Eventually(t, func() bool { byOrder, _ := p.delivered(t); return len(byOrder) == 1 }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, s.Process.Signal(syscall.SIGTERM))
	signalled := time.Now()
	s.end(t)
	require.Less(t, time.Since(signalled), 8*time.Second, "an exporter tries for 10 seconds")
	require.Contains(t, s.errors.String(), "WARN the last spans could not be sent")
}

// The tour is silent about failures that it makes on purpose, and only those.
func TestTheTourReportsLostSpans(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), binary, "-tour")
	cmd.Env = append(os.Environ(), tracing(t, "OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1").env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "traces export")
	require.Equal(t, 1, strings.Count(string(out), "level="), "%s", out)
}

func TestHelpNamesTheVariables(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), binary, "-h")
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, says := range []string{"-tour", "DATABASE_URL", "OTEL_TRACES_EXPORTER", "OTEL_SERVICE_NAME", "GET /metrics"} {
		require.Contains(t, string(out), says)
	}
}
