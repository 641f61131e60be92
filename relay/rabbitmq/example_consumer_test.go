package relayrabbitmq_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxkit/outbox-go/inbox"
)

// A consumer that books each payment once, however often its message is delivered: it
// records the message in the transaction of the booking, and acknowledges after the
// commit.
func Example_consumer() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://billing@127.0.0.1:5432/billing")
	if err != nil {
		panic(err)
	}
	box, err := inbox.New(inbox.Config{Dialect: inbox.Postgres})
	if err != nil {
		panic(err)
	}
	conn, err := amqp.Dial("amqp://billing:billing@127.0.0.1:5672/")
	if err != nil {
		panic(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		panic(err)
	}
	fmt.Println(consume(ctx, ch, "billing", db, box)) // then connect again
}

// consume handles the messages of a queue until the channel or ctx ends. The caller closes
// the channel then, which gives back what was not acknowledged.
func consume(ctx context.Context, ch *amqp.Channel, queue string, db *sql.DB, box *inbox.Inbox) error {
	if err := ch.Qos(50, 0, false); err != nil { // messages in hand
		return err
	}
	deliveries, err := ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for d := range deliveries {
		if err := book(ctx, db, box, d); err != nil {
			slog.Warn("message goes back to the queue", "id", d.MessageId, "error", err)
			select { // the queue delivers it again at once
			case <-time.After(time.Second):
			case <-ctx.Done(): // the end of the channel gives it back
				return ctx.Err()
			}
			if err := d.Nack(false, true); err != nil {
				return err
			}
			continue
		}
		if err := d.Ack(false); err != nil { // it is delivered again, and skipped
			return err
		}
	}
	return errors.New("the channel has ended")
}

// book has the effect of a message, unless a committed transaction had it before.
func book(ctx context.Context, db *sql.DB, box *inbox.Inbox, d amqp.Delivery) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	_, err = box.Once(ctx, tx, "billing", d.MessageId, func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO booking (message, payload) VALUES ($1, $2)", d.MessageId, string(d.Body))
		return err
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}
