// Package outboxfx makes an outbox part of an fx app.
//
//	fx.New(
//		fx.Provide(newSQLDB), // *sql.DB: everything else has a default
//		outboxfx.Module,      // *outbox.Outbox, *outbox.Writer, *outbox.DeadLetters
//		outboxfx.AsListener(NewOrderListener, outboxfx.On("Order", "OrderPlaced")),
//		outboxfx.AsBinding(NewPaymentBinding), // returns an outbox.Binding, such as a topic's
//		fx.Replace(outboxfx.Config{Mode: outboxfx.MultiNode}),
//	)
//
// The outbox starts with the app. It drains when the app stops, within fx's stop timeout, before
// the database and the resources of the listeners are closed.
//
// The module provides a default [Config]; fx.Replace, fx.Decorate or [WithConfig] changes it.
// [NewModule] takes options: [Named] makes one of several outboxes, each with a separate database;
// other options replace parts or add to them.
//
// Package outboxconf reads a Config from YAML and environment variables, fxprom
// exports metrics to Prometheus, fxotel exports metrics and traces to
// OpenTelemetry.
package outboxfx
