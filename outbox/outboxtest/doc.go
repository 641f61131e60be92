// Package outboxtest helps to test code that uses the outbox, without a
// database and without waiting.
//
// # Does my code write the right events?
//
// Give the code an [outbox.Writer] on a [Store] in memory, begin a transaction
// that the test ends, and look at what was emitted:
//
//	store := outboxtest.NewStore()
//	writer, err := outbox.NewWriter(outbox.WriterConfig{Store: store, Source: store.DB()})
//
//	tx := outboxtest.NewScope(store.DB())
//	err = placeOrder(tx.Context(ctx), writer, order)
//	err = tx.Commit() // or tx.Rollback(cause), tx.CommitUnknown(landed)
//
//	outboxtest.AssertEmitted(t, store, outboxtest.Event{
//		Type: "OrderPlaced", Aggregate: "Order", AggregateID: order.ID, Payload: order,
//	})
//
// Code that begins its own transactions takes a [Transactor] instead of an
// adapter. Where the code writes to a real database, [Recorder.Hook] in
// outbox.Config.Hooks records what committed, and [AssertPending] reads what
// waits in any store.
//
// # Does my listener do the right thing?
//
// [Drain] delivers what is due now, on the test's goroutine and by the engine's
// rules, and returns what became of each event:
//
//	deliveries := outboxtest.Drain(t, outbox.DispatcherConfig{Store: store}, outbox.On("Order", "OrderPlaced", listener))
//
// With an engine that runs, [Recorder.Listener] answers as its script says, and
// [Recorder.WaitDeliveries] waits until it was called. Everything here works
// within testing/synctest, where an engine's hours pass in no time.
//
// Package conformance certifies stores and adapters.
package outboxtest
