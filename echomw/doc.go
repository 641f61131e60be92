// Package echomw puts the outbox into an Echo application: a transaction for
// each request, whose response leaves only after the commit, a readiness check
// and an administration of dead letters.
//
//	e := echo.New()
//	e.Use(middleware.Recover(), echomw.Transaction(adapter))
//	e.POST("/orders", func(c echo.Context) error {
//		ctx := c.Request().Context() // carries the transaction
//		tx, _ := a.TxFrom(ctx)
//		if err := tx.Create(&order).Error; err != nil {
//			return err // rolled back
//		}
//		if _, err := ob.Writer().Write(ctx, orderPlaced); err != nil {
//			return err
//		}
//		return c.JSON(http.StatusCreated, order) // committed, then sent
//	})
//
// The adapter is any [outbox.Transactor]: one of packages sqltx, outboxbun and
// outboxgorm. What a client sees is what happened: a success only after the
// transaction has committed, and when the commit fails the answer of the
// application's own error handler, with nothing left of the success.
package echomw
