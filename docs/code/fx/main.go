// Shop is an fx app with an outbox on PostgreSQL.
package main

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

func main() {
	fx.New(
		fx.Provide(newSQLDB, newAdapter, newShop), // sqltx.Open and sqltx.New; your service
		outboxfx.Module,
		outboxfx.AsBinding(newOrderListener),
		fx.Replace(outboxfx.Config{Mode: outboxfx.MultiNode, CreateSchema: true}),
		fx.Invoke(func(*shop) {}),      // your server
		fx.StopTimeout(45*time.Second), // 10 s for requests, and more than 4 × DrainTimeout + 7 s
	).Run()
}

type order struct{ ID string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

type shop struct {
	tx     *sqltx.Adapter
	events *outbox.Writer
}

func newShop(tx *sqltx.Adapter, events *outbox.Writer) *shop { return &shop{tx, events} }

func (s *shop) place(ctx context.Context, id string) error {
	return outbox.InTx(ctx, s.tx, func(ctx context.Context) error {
		// … the business rows, and in the same transaction:
		_, err := s.events.Write(ctx, orderPlaced.Envelope(id, order{id}))
		return err
	})
}

func newOrderListener() outbox.Binding {
	return orderPlaced.Listen(func(ctx context.Context, o order, env outbox.Envelope) error {
		return sendMail(ctx, env.EventID, o) // after the commit, at least once
	})
}

// sendMail takes the event's id as the idempotency key.
func sendMail(ctx context.Context, key string, o order) error {
	slog.InfoContext(ctx, "mail", "order", o.ID, "key", key)
	return nil
}

func newSQLDB(lc fx.Lifecycle) (*sql.DB, error) {
	db, err := sqltx.Open("pgx", os.Getenv("DATABASE_URL"))
	if err == nil {
		lc.Append(fx.StopHook(db.Close))
	}
	return db, err
}

func newAdapter(db *sql.DB, w *outbox.Writer) (*sqltx.Adapter, error) { return sqltx.New(db, w) }
