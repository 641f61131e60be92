// Package outboxtest tests code that uses the outbox, without a database and
// without waiting.
//
// # Does my code write the right events?
//
// Give the code an [outbox.Writer] on a [Store] in memory, begin a transaction
// that the test ends, and check the emitted events:
//
//	store := outboxtest.NewStore()
//	writer := store.Writer()
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
// adapter. If the code writes to a real database, [Recorder.Hook] in
// outbox.Config.Hooks records the committed events, and [AssertPending] reads the
// waiting events of any store.
//
// # Does my listener do the right thing?
//
// [Drain] delivers the due events on the test's goroutine, by the engine's rules, and returns the
// result of each event:
//
//	deliveries := outboxtest.Drain(t, outbox.Config{Store: store}, outbox.On("Order", "OrderPlaced", listener))
//
// With a running engine, [Recorder.Listener] answers as scripted, and [Recorder.WaitDeliveries]
// waits for the listener's calls. The whole package works within testing/synctest, where hours pass
// at once.
//
// Package conformance certifies stores and adapters.
package outboxtest
