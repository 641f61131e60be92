// Package outboxotel traces and measures an outbox with OpenTelemetry. The package needs only the
// API, so it works with any SDK, and does almost nothing without an SDK.
//
// # Traces
//
// [Hook] puts the context of the span that is active when an event is written into the event's
// headers; [Interceptor] creates a span for each delivery and connects this span with the span that
// wrote the event:
//
//	o, err := outbox.New(outbox.Config{
//		DB: db, Store: store,
//		Hooks:        []outbox.WriterHook{outboxotel.Hook()},
//		Interceptors: []outbox.Interceptor{outboxotel.Interceptor()},
//	})
//
// Processes that only write need the hook, processes that only deliver the interceptor. Both use
// the global provider unless [WithTracerProvider] names another provider, and W3C Trace Context
// with Baggage unless [WithPropagator] names another propagator.
//
// # Link or child
//
// By default a delivery is the root of its own trace, with a link to the span that
// wrote the event. This suits late and repeated deliveries, and requests that write
// many events: the sampler decides for each delivery.
//
// [WithChildOf] makes the delivery part of the request's trace. This is easier to read if events
// are delivered at once. With a parent-based sampler, the producer's sampling then decides for the
// deliveries too.
//
// Either way each attempt is a span, and the listener's context has this span and the baggage of
// the write.
//
// # The content of a span
//
// A delivery is a span of kind consumer, "deliver order/order.placed"; with [WithProducerSpan] a
// write is a span of kind producer, "write order/order.placed". Both have the attributes of the
// semantic conventions for messaging and the attributes of the outbox. A retry or a death is an
// error, with the exception recorded. Payload, headers and tenant are never recorded.
// docs/reference/metrics.md lists the attributes.
//
// An event that dies without a delivery, for example because it killed the process each time, has
// no span for the death.
//
// # Metrics
//
// [NewMetrics] passes the engine's metrics to the metric API:
//
//	metrics, err := outboxotel.NewMetrics(outboxotel.WithEventKinds(100))
//	o, err := outbox.New(outbox.Config{DB: db, Store: store, Metrics: metrics})
//	err = metrics.WatchTable(o)
//
// [Metrics.WatchTable] adds figures of the table: pending, due, delayed and dead events, the age of
// the oldest due event, and the time of the last poll. A collection reads the table, at most every
// 15 seconds, and waits for the read at most one second.
//
// Names begin with "outbox.", or with [WithPrefix]; times are in seconds. Each outbox of a process
// needs a different prefix or different attributes.
package outboxotel
