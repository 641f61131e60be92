// Package outboxotel traces and measures an outbox with OpenTelemetry. It needs
// only the API, so it works with any SDK, and does almost nothing without one.
//
// # Traces
//
// [Hook] puts the context of the span that is active when an event is written into
// the event's headers; [Interceptor] creates a span for each delivery and connects
// it with the span that wrote:
//
//	o, err := outbox.New(outbox.Config{
//		DB: db, Store: store,
//		Hooks:        []outbox.WriterHook{outboxotel.Hook()},
//		Interceptors: []outbox.Interceptor{outboxotel.Interceptor()},
//	})
//
// Processes that only write need the hook, processes that only deliver the
// interceptor. Both use the global provider unless [WithTracerProvider] names
// another, and W3C Trace Context with Baggage unless [WithPropagator] does.
//
// # Link or child
//
// By default a delivery is the root of its own trace, with a link to the span that
// wrote the event. This suits late and repeated deliveries, and requests that write
// many events: the sampler decides for each delivery.
//
// [WithChildOf] makes the delivery part of the request's trace. That is easier to
// read if events are delivered at once. With a parent-based sampler the producer's
// sampling then decides for the deliveries too.
//
// Either way each attempt is a span, and the listener's context has that span and
// the baggage of the write.
//
// # What a span says
//
// A delivery is a span of kind consumer, "deliver order/order.placed"; with
// [WithProducerSpan] a write is one of kind producer, "write order/order.placed".
// Both have the attributes of the semantic conventions for messaging and those of
// the outbox. A retry or a death is an error, with the exception recorded. Payload,
// headers and tenant are never recorded. docs/reference/metrics.md lists the attributes.
//
// An event that dies without a delivery, for example because it killed its process
// each time, has no span for its death.
//
// # Metrics
//
// [NewMetrics] passes the engine's metrics to the metric API:
//
//	metrics, err := outboxotel.NewMetrics(outboxotel.WithEventKinds(100))
//	o, err := outbox.New(outbox.Config{DB: db, Store: store, Metrics: metrics})
//	err = metrics.WatchTable(o)
//
// [Metrics.WatchTable] adds what the table holds: pending, due, delayed and dead
// events, the age of the oldest due one, and the time of the last poll. A
// collection reads the table, at most every 15 seconds, and waits for it at most
// one second.
//
// Names begin with "outbox.", or with [WithPrefix]; times are in seconds. Each
// outbox of a process needs its own prefix or attributes.
package outboxotel
