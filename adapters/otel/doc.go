// Package outboxotel traces and measures an outbox with OpenTelemetry. It needs
// the API alone, so it works with any SDK, and does next to nothing without one.
//
// # Traces
//
// [Hook] puts the context of the span that is active when an event is written
// into the event's headers; [Interceptor] makes a span of each delivery and
// connects it with the one that wrote:
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
// By default a delivery is the root of a trace of its own, with a link to the
// span that wrote the event. That holds whenever the delivery comes, also an
// hour later and for the tenth time: the trace of the request is complete when
// the request is, one request that writes a thousand events does not become one
// trace of a thousand deliveries, and the sampler decides about deliveries by
// themselves.
//
// [WithChildOf] makes the delivery a part of the request's trace. That reads
// better where events are delivered at once and traces are looked at by
// somebody who follows one request. The producer's sampling then decides for
// the deliveries too, if the sampler is a parent-based one.
//
// Either way each attempt is a span, and the listener's context carries it, with
// the baggage of the write, so that what the listener calls or writes belongs to
// the same trace.
//
// # What a span says
//
// A delivery is a span of kind consumer, "deliver order/order.placed"; with
// [WithProducerSpan] a write is one of kind producer, "write
// order/order.placed". Both have the attributes of the semantic conventions for
// messaging and those of the outbox: aggregate type and id, event type, the
// attempt from the second on, and, unless the event is done, the outcome, which
// is retry, dead, deferred or released. A retry or a death is an error, with the
// exception recorded. Payload, headers and tenant are never shown.
// docs/OBSERVABILITY.md has the table.
//
// An event whose attempts were used up without an outcome, as when it kills its
// process each time, dies without a delivery and thus without a span.
//
// # Metrics
//
// [NewMetrics] passes the engine's figures on to the metric API:
//
//	metrics, err := outboxotel.NewMetrics(outboxotel.WithEventKinds(100))
//	o, err := outbox.New(outbox.Config{DB: db, Store: store, Metrics: metrics})
//	err = metrics.WatchTable(o)
//
// [Metrics.WatchTable] adds what the table holds: pending, due, delayed and dead
// events, the age of the oldest due one, and when the poller last got through. It
// reads the table when figures are collected, at most every 15 seconds, and a
// collection does not wait long for it.
//
// Names begin with "outbox.", or with what [WithPrefix] says; times are in
// seconds. Each outbox of a process needs its own.
package outboxotel
