// Package outboxfx makes an outbox part of an fx app.
//
//	fx.New(
//		fx.Provide(newSQLDB), // *sql.DB: all else has a default
//		outboxfx.Module,      // *outbox.Outbox, *outbox.Writer, *outbox.DeadLetters
//		outboxfx.AsListener(NewOrderListener, outboxfx.On("Order", "OrderPlaced")),
//		outboxfx.AsBinding(NewPaymentBinding), // returns an outbox.Binding, such as a topic's
//		fx.Supply(outboxfx.Config{Mode: outboxfx.MultiNode}),
//	)
//
// The outbox starts with the app, and drains when the app stops, before the
// database and what the listeners use are closed, within fx's stop timeout. It is
// made without its listeners, which are registered afterwards: a listener may
// depend on a service that writes through the same outbox.
//
// [NewModule] takes options: [Named] makes one of several outboxes, each with a
// database of its own, the others replace parts or add to them: [WithPrometheus]
// and [WithOTelMetrics] metrics, [WithOTel] traces. [LoadConfig] reads a [Config]
// from YAML and variables OUTBOX_….
//
// Errors of wiring come from fx.New, and from fx.ValidateApp as far as it can
// know them without calling a constructor.
package outboxfx
