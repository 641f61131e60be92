package outboxprom_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/outbox"
)

var placed = outbox.EventKind{AggregateType: "Order", EventType: "Placed"}

// callAll calls every method once.
func callAll(m outbox.Metrics, kind outbox.EventKind) {
	m.HotEnqueued(kind)
	m.HotDropped(kind)
	m.HotSkippedDelayed(kind)
	m.ColdEnqueued(kind)
	m.Delivered(kind, time.Second)
	m.Failed(kind)
	m.Died(kind)
	m.Expired(kind)
	m.Deferred(kind)
	m.ListenerRan(kind, time.Second)
	m.LeaseLost(1)
	m.QueueDepths(1, 1)
	m.OldestLag(time.Second)
	m.BatchRead(1)
}

// newMetrics makes metrics on a registry and closes them with the test.
func newMetrics(t testing.TB, registry prometheus.Registerer, opts ...outboxprom.Option) *outboxprom.Metrics {
	t.Helper()
	m, err := outboxprom.New(registry, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func TestEveryCallOfTheEngineIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]outboxprom.Option{
		"without event labels": nil,
		"with event labels":    {outboxprom.WithEventLabels(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewPedanticRegistry()
			callAll(newMetrics(t, registry, opts...), placed)
			f := scrape(t, registry)
			require.Len(t, f, 16)
			for name := range f {
				require.InDelta(t, 1, f.value(t, name), 0, name)
			}
		})
	}
}

func TestPrefixBecomesAValidName(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{
		"orders.outbox":    "orders_outbox",
		"orders-eu.outbox": "orders_eu_outbox",
		"Bestellungen/ö":   "Bestellungen__",
		"2nd":              "_2nd",
		"a:b c":            "a_b_c",
	} {
		registry := prometheus.NewPedanticRegistry()
		newMetrics(t, registry, outboxprom.WithPrefix(prefix))
		for name := range scrape(t, registry) { // which parses names strictly
			require.Truef(t, strings.HasPrefix(name, want+"_"), "prefix %q gives %s", prefix, name)
		}
	}
}

func TestBadOptionsAreNamedAllAtOnceAndNothingIsRegistered(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	_, err := outboxprom.New(registry, nil, outboxprom.WithPrefix("…"), outboxprom.WithEventLabels(-1), outboxprom.WithConstLabels(prometheus.Labels{
		"le": "1", "quantile": "1", "__own": "1", "event_type": "x", "9": "x", "ok": "x", "bytes": "\xff", "": "x",
	}))
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	for _, part := range []string{"WithPrefix", "WithEventLabels", `"le"`, `"quantile"`, `"__own"`, `"event_type"`, `"9"`, `"bytes"`, `""`} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), `"ok"`)
	require.Empty(t, scrape(t, registry))

	_, err = outboxprom.New(nil)
	require.ErrorAs(t, err, &field)
	var none *prometheus.Registry
	_, err = outboxprom.New(none)
	require.ErrorAs(t, err, &field)
	_, err = outboxprom.New(registry, outboxprom.WithPrefix(""))
	require.ErrorAs(t, err, &field)
}

func TestConstLabelsAreCopied(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	labels := prometheus.Labels{"outbox": "orders"}
	option := outboxprom.WithConstLabels(labels)
	labels["outbox"] = "changed"
	newMetrics(t, registry, option)
	require.Zero(t, scrape(t, registry).value(t, "outbox_lease_lost_total", "outbox", "orders"))
}

func TestRegisteringTwiceIsAnErrorThatLeavesTheFirstAlone(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	first := newMetrics(t, registry)
	first.HotEnqueued(placed)
	_, err := outboxprom.New(registry)
	require.ErrorIs(t, err, outboxprom.ErrRegistered)
	require.ErrorContains(t, err, "WithPrefix")
	require.ErrorContains(t, err, "WithConstLabels")

	// The registry also rejects the same names with another type.
	for _, opt := range []outboxprom.Option{outboxprom.WithEventLabels(1), outboxprom.WithConstLabels(prometheus.Labels{"outbox": "b"})} {
		_, err = outboxprom.New(registry, opt)
		require.ErrorContains(t, err, "WithConstLabels")
	}
	require.InDelta(t, 1, scrape(t, registry).value(t, "outbox_enqueue_hot_total"), 0)
}

func TestTwoOutboxesShareARegistryAndCloseEachForItself(t *testing.T) {
	t.Parallel()
	label := func(name string) outboxprom.Option {
		return outboxprom.WithConstLabels(prometheus.Labels{"outbox": name})
	}
	for name, opts := range map[string][2]outboxprom.Option{
		"by prefix": {outboxprom.WithPrefix("a"), outboxprom.WithPrefix("b")},
		"by labels": {label("a"), label("b")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewPedanticRegistry()
			a := newMetrics(t, registry, opts[0])
			require.NoError(t, a.WatchTable(&source{}))
			one := count(scrape(t, registry))
			b := newMetrics(t, registry, opts[1])
			require.NoError(t, b.WatchTable(&source{}))
			callAll(a, placed)
			callAll(b, placed)
			require.Equal(t, 2*one, count(scrape(t, registry)))
			require.NoError(t, a.Close())
			require.Equal(t, one, count(scrape(t, registry)))
			callAll(a, placed) // late, without effect

			again := newMetrics(t, registry, opts[0])
			require.NoError(t, a.Close(), "closing again leaves the other outbox's metrics")
			require.Greater(t, count(scrape(t, registry)), one)
			require.NoError(t, again.Close())
			require.Equal(t, one, count(scrape(t, registry)))
		})
	}
}

// count is how many metrics there are, of all names.
func count(f families) (n int) {
	for _, family := range f {
		n += len(family.GetMetric())
	}
	return n
}

func TestKindsBeyondTheLimitCountAsOther(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, registry, outboxprom.WithEventLabels(10))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				m.Failed(outbox.EventKind{AggregateType: "Order", EventType: outbox.EventType(fmt.Sprint("type-", i))})
			}
			m.Failed(outbox.EventKind{}) // an undecodable row does not count toward the limit
		})
	}
	wg.Wait()
	f := scrape(t, registry)
	const name = "outbox_dispatch_failure_total"
	require.Len(t, f[name].GetMetric(), 10+2)
	require.InDelta(t, 4, f.value(t, name, "event_type", "unknown", "aggregate_type", "unknown"), 0)
	require.InDelta(t, 4*990, f.value(t, name, "event_type", "other", "aggregate_type", "other"), 0)
	total := 0.0
	for _, metric := range f[name].GetMetric() {
		total += metric.GetCounter().GetValue()
	}
	require.InDelta(t, 4*1001, total, 0)
}

func TestAListenerIsALabelOfOutcomes(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, registry, outboxprom.WithEventLabels(0))
	mail := placed
	mail.Listener = "mail"
	m.HotEnqueued(placed)
	m.ColdEnqueued(placed)
	m.Delivered(placed, time.Second)
	m.Died(mail)
	m.ListenerRan(mail, time.Second)
	f := scrape(t, registry)
	require.InDelta(t, 1, f.value(t, "outbox_dispatch_dead_total", "event_type", "Placed", "aggregate_type", "Order", "listener", "mail"), 0)
	require.InDelta(t, 1, f.value(t, "outbox_dispatch_success_total", "event_type", "Placed", "aggregate_type", "Order", "listener", ""), 0)
	require.Len(t, f["outbox_listener_duration_seconds"].GetMetric(), 2)
	require.Len(t, f["outbox_enqueue_hot_total"].GetMetric(), 1, "what is queued is of no listener")
}

func TestAKindHasEverySeriesFromItsFirstEventOn(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, registry, outboxprom.WithEventLabels(0))
	m.HotEnqueued(placed)
	f := scrape(t, registry)
	require.Zero(t, f.value(t, "outbox_dispatch_dead_total", "event_type", "Placed", "aggregate_type", "Order"),
		"a counter that begins at 1 has no rate")
	require.Len(t, f["outbox_dispatch_latency_seconds"].GetMetric(), 1)
}

func TestTypesThatAreNotUTF8AreToldAllTheSame(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, registry, outboxprom.WithEventLabels(0))
	m.Died(outbox.EventKind{AggregateType: "Or\xffder", EventType: "a\"b\nc"})
	require.InDelta(t, 1, scrape(t, registry).value(t, "outbox_dispatch_dead_total", "event_type", "a\"b\nc", "aggregate_type", "Or\uFFFDder"), 0)
}

func TestNegativeFiguresAreZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, registry)
	m.Delivered(placed, -time.Hour)
	m.ListenerRan(placed, -time.Hour)
	m.LeaseLost(-1)
	f := scrape(t, registry)
	require.Zero(t, f.metric(t, "outbox_dispatch_latency_seconds").GetHistogram().GetSampleSum())
	require.Zero(t, f.metric(t, "outbox_listener_duration_seconds").GetHistogram().GetSampleSum())
	require.Zero(t, f.value(t, "outbox_lease_lost_total"))
}

func TestNamesFollowTheConventions(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(t, registry)
	require.NoError(t, m.WatchTable(&source{stats: outbox.Stats{PollInterval: time.Second}}))
	problems, err := lint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	f := scrape(t, registry)
	require.Len(t, f, 31)
	for name, family := range f {
		require.NotEmpty(t, family.GetHelp(), name)
		require.Equal(t, family.GetType().String() == "COUNTER", strings.HasSuffix(name, "_total"), name)
	}
}
