package outboxotel_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

// Headers that are valid without tracing must be valid with it.
func TestHeadersThatHaveNoRoomForATraceContextStayWithinTheLimit(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(spans)), on(succeed))
	ctx, request := spans.start(t.Context(), "POST /orders")
	defer request.End()
	full, roomy := event(), event()
	full.Headers = map[string]string{"k": strings.Repeat("x", outbox.MaxHeadersBytes-1), "traceparent": ""}
	full.Headers["k"] = full.Headers["k"][:outbox.MaxHeadersBytes-1-len("traceparent")]
	roomy.Headers = map[string]string{"k": "v"}
	ids := a.write(ctx, t, full, roomy)
	require.NotContains(t, a.headers(t, ids[0]), "traceparent", "neither the new one nor another write's")
	require.Contains(t, a.headers(t, ids[1]), "traceparent")
}

// Exporters drop a whole batch if one string is not UTF-8.
func TestAttributesAreFitForExporters(t *testing.T) {
	t.Parallel()
	const dirty = "a\xffb"
	spans, p := newRecording(t), newMeters(t)
	env := event()
	env.EventID, env.AggregateID, env.AggregateType, env.EventType = dirty, dirty, dirty, dirty
	err := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans))(on(succeed).Listener).OnEvent(t.Context(), env)
	require.NoError(t, err)
	span := spans.exporter.GetSpans()[0]
	require.True(t, utf8.ValidString(span.Name))
	for _, kv := range span.Attributes {
		require.True(t, kv.Value.Type() != attribute.STRING || utf8.ValidString(kv.Value.AsString()), "%s", kv.Key)
	}
	newMetrics(t, p, outboxotel.WithEventKinds(3)).Died(outbox.EventKind{AggregateType: dirty, EventType: dirty})
	var rm metricdata.ResourceMetrics // read copies the labels, and corrects them
	require.NoError(t, p.reader.Collect(t.Context(), &rm))
	for _, md := range rm.ScopeMetrics[0].Metrics {
		for _, point := range md.Data.(metricdata.Sum[int64]).DataPoints {
			for _, kv := range point.Attributes.ToSlice() {
				require.True(t, utf8.ValidString(kv.Value.AsString()), "%s of %s", kv.Key, md.Name)
			}
		}
	}
}
