package outboxotel

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// nowhere is the span where none could be made.
var nowhere trace.Span = noop.Span{}

// shield is deferred around what calls propagators, samplers and processors of
// the user's. Watching a write or a delivery must not decide about it: a panic
// there would abort the write, or fail a delivery that has succeeded.
func (t *tracing) shield(doing string) {
	if r := recover(); r != nil {
		t.report(fmt.Errorf("outboxotel: %s panicked: %v", doing, r))
	}
}

// report tells OpenTelemetry's error handler, once: what goes wrong here goes
// wrong with every event.
func (t *tracing) report(err error) {
	t.reported.Do(func() { handle(fmt.Errorf("%w (this is reported once)", err)) })
}

// handle tells OpenTelemetry's error handler, which is the user's too.
func handle(err error) {
	defer func() { _ = recover() }() // there is nobody left to tell
	otel.Handle(err)
}
