// Package ginmw integrates the outbox with gin: a middleware that runs each request
// in a transaction and sends the response after the commit, a readiness check, and
// endpoints to administer dead letters.
//
//	r := gin.New()
//	r.Use(gin.Recovery(), ginmw.Transaction(adapter))
//	r.POST("/orders", func(c *gin.Context) {
//		ctx := c.Request.Context() // carries the transaction
//		tx, _ := adapter.TxFrom(ctx)
//		if err := tx.Create(&order).Error; err != nil {
//			_ = c.AbortWithError(http.StatusInternalServerError, err) // rolls back
//			return
//		}
//		if _, err := ob.Writer().Write(ctx, orderPlaced); err != nil {
//			_ = c.AbortWithError(http.StatusInternalServerError, err)
//			return
//		}
//		c.JSON(http.StatusCreated, order) // sent after the commit
//	})
//
// The adapter is any [outbox.Transactor]: an adapter of package sqltx, outboxbun or outboxgorm. A
// client sees a success only after the transaction has committed. When the commit fails, nothing of
// the success is sent, and the [*CommitError] is on the context.
package ginmw
