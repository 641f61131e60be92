// Package fibermw integrates the outbox with Fiber v3: a middleware that runs each request in a
// transaction and sends the response after the commit, a readiness check, and endpoints to
// administer dead letters.
//
//	app := fiber.New()
//	app.Use(recoverer.New(), fibermw.Transaction(adapter))
//	app.Post("/orders", func(c fiber.Ctx) error {
//		ctx := c.Context() // carries the transaction; c itself does not
//		tx, _ := adapter.TxFrom(ctx)
//		if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
//			return err // rolls back
//		}
//		if _, err := ob.Writer().Write(ctx, orderPlaced); err != nil {
//			return err
//		}
//		return c.Status(fiber.StatusCreated).JSON(order) // sent after the commit
//	})
//
// The adapter is any [outbox.Transactor]: an adapter of package sqltx, outboxbun or outboxgorm. A
// client sees a success only after the transaction has committed. When the commit fails, nothing of
// the success is sent, and the app's ErrorHandler gets a [*CommitError].
//
// Fiber is built on fasthttp, which differs from net/http: the handler has the whole request body,
// and the response leaves after all handlers have returned. A handler does not learn that the client
// has gone, so such a request commits too.
package fibermw
