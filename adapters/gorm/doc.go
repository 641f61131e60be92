// Package outboxgorm writes events in GORM's own transactions.
//
//	pool, err := sqltx.Open("pgx", dsn) // instead of sql.Open; or sqltx.Watch(pool)
//	db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}))
//	a, err := outboxgorm.New(db, ob.Writer())
//	…
//	err = db.Transaction(func(tx *gorm.DB) error {
//		if err := tx.Create(&order).Error; err != nil {
//			return err
//		}
//		_, err := a.Write(ctx, tx, orderPlaced)
//		return err
//	})
//
// Code that begins transactions stays as it is; the connection sees them, so the
// rules of package [github.com/outboxkit/outbox-go/adapters/sqltx] hold. Where
// GORM opens the pool itself, give gorm.Open the [Plugin].
package outboxgorm
