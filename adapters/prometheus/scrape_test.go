package outboxprom_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
)

// families are the result of a scrape, by name.
type families map[string]*dto.MetricFamily

// scrape asks a registry over HTTP, as Prometheus does.
func scrape(t testing.TB, registry *prometheus.Registry) families {
	t.Helper()
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	found := families{}
	for decoder := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header)); ; {
		family := &dto.MetricFamily{}
		err := decoder.Decode(family)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		found[family.GetName()] = family
	}
}

// gather asks a registry without HTTP, for tests with synctest.
func gather(t testing.TB, registry *prometheus.Registry) families {
	t.Helper()
	list, err := registry.Gather()
	require.NoError(t, err)
	found := families{}
	for _, family := range list {
		found[family.GetName()] = family
	}
	return found
}

// metric finds the one metric of a name that has the labels, given as name,
// value, name, value; nil when there is none.
func (f families) metric(t testing.TB, name string, labels ...string) *dto.Metric {
	t.Helper()
	var found *dto.Metric
	for _, m := range f[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			require.Nil(t, found, "several %s have %v", name, labels)
			found = m
		}
	}
	return found
}

// value is a counter's or gauge's value, or a histogram's count.
func (f families) value(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	m := f.metric(t, name, labels...)
	require.NotNil(t, m, "there is no %s %v", name, labels)
	switch f[name].GetType() {
	case dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	case dto.MetricType_GAUGE:
		return m.GetGauge().GetValue()
	case dto.MetricType_HISTOGRAM:
		return float64(m.GetHistogram().GetSampleCount())
	default:
		require.Failf(t, "unexpected type", "%s is a %s", name, f[name].GetType())
		return 0
	}
}

// eventually polls until the condition holds.
func eventually(t testing.TB, condition func() bool, message string) {
	t.Helper()
	require.Eventually(t, condition, 20*time.Second, 5*time.Millisecond, message)
}
