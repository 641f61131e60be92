// Package echo5mw integrates the outbox with Echo v5: a middleware that runs each
// request in a transaction and sends the response after the commit, a readiness
// check, and endpoints to administer dead letters. Package echomw is the
// same for Echo v4.
//
//	e := echo.New()
//	e.Use(middleware.Recover(), echo5mw.Transaction(adapter))
//	e.POST("/orders", func(c *echo.Context) error {
//		ctx := c.Request().Context() // carries the transaction
//		tx, _ := adapter.TxFrom(ctx)
//		if err := tx.Create(&order).Error; err != nil {
//			return err // rolls back
//		}
//		if _, err := ob.Writer().Write(ctx, orderPlaced); err != nil {
//			return err
//		}
//		return c.JSON(http.StatusCreated, order) // sent after the commit
//	})
//
// The adapter is any [outbox.Transactor]: an adapter of package sqltx, outboxbun or outboxgorm. A
// client sees a success only after the transaction has committed. When the commit fails, the
// application's own error handler answers, and nothing of the success is sent.
package echo5mw
