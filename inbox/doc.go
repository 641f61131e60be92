// Package inbox lets a message take effect once, however often the message is delivered.
//
// Every queue and every outbox delivers at least once. A consumer that records each message in the
// transaction of the effect handles each message once:
//
//	box, err := inbox.New(inbox.Config{Dialect: inbox.Postgres})
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	first, err := box.Once(ctx, tx, "billing", msg.ID, func(ctx context.Context) error {
//		return charge(ctx, tx, msg)
//	})
//	...
//	err = tx.Commit() // then acknowledge the message
//
// The record and the effect are committed together. When the transaction rolls back, neither is
// left, and the next delivery runs the function again.
//
// Messages may come from anywhere: RabbitMQ, NATS, or an outbox whose table is in
// another database. A listener that writes to the database of its own outbox needs
// no inbox.
package inbox
