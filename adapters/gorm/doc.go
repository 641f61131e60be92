// Package outboxgorm writes events in GORM's own transactions.
//
//	err := db.Use(outboxgorm.Plugin())
//	a, err := outboxgorm.New(db, ob.Writer())
//	err = db.Transaction(func(tx *gorm.DB) error {
//		if err := tx.Create(&order).Error; err != nil {
//			return err
//		}
//		_, err := a.Write(ctx, tx, orderPlaced)
//		return err
//	})
//
// Code that begins transactions stays as it is: the plugin stands between GORM
// and its connection pool, so it sees Transaction, Begin, the transactions that
// GORM itself begins around Create, Save, Update and Delete, and savepoints,
// with prepared statements and with dbresolver. [Adapter.Write] takes the *gorm.DB of the
// transaction, whatever was derived from it, or the one that a model hook got.
// For code below that has nothing but a context, [WithTx] puts the transaction
// into one.
//
// What the plugin cannot see: handles made before db.Use, db.Connection (use
// [Connection]), COMMIT and ROLLBACK called on what [SQLTx] hands out, and on
// MySQL a deadlock that only the rows of Rows report and the caller swallows.
// The first two are refused with [outbox.ErrUnmanagedTransaction].
package outboxgorm
