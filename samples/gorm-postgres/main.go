// Gorm-postgres is a small order service with GORM, PostgreSQL and Echo. An order and the event are
// saved in the same transaction; after the commit the event is delivered to a listener, which sends
// a mail.
//
//	DATABASE_URL=postgres://… go run ./samples/gorm-postgres
//	curl --json '{"item":"tea"}' http://localhost:8080/orders
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/echo5mw"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Order is a row of the service's table, and the payload of the event.
type Order struct {
	ID   string `json:"id" gorm:"primaryKey"`
	Item string `json:"item"`
}

var orderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

// mailer sends the mail for an order. A mailer is called at least once for each event.
type mailer func(ctx context.Context, eventID string, order Order) error

// service is the whole service.
type service struct {
	pool   *sql.DB
	outbox *outbox.Outbox
	orders *outboxgorm.Adapter
	http   http.Server
}

func newService(ctx context.Context, dsn string, mail mailer) (_ *service, err error) {
	s := &service{}
	if s.pool, err = sqltx.Open("pgx", dsn); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.pool.Close())
		}
	}()
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: s.pool}))
	if err != nil {
		return nil, err
	}
	store := sqlstore.Postgres()
	if err := errors.Join(store.CreateSchema(ctx, s.pool), db.AutoMigrate(&Order{})); err != nil {
		return nil, err // in production, migrations create both tables
	}
	if s.outbox, err = outbox.New(outbox.Config{DB: s.pool, Store: store, Mode: outbox.MultiNode{}}); err != nil {
		return nil, err
	}
	if s.orders, err = outboxgorm.New(db, s.outbox.Writer()); err != nil {
		return nil, err
	}
	e := echo.New()
	e.Use(middleware.Recover(), echo5mw.Transaction(s.orders)) // the response is sent after the commit
	e.POST("/orders", s.place)
	e.GET("/healthz", echo5mw.Health(echo5mw.HealthConfig{Outbox: s.outbox}))
	s.http = http.Server{Handler: e, ReadTimeout: 10 * time.Second}
	return s, s.outbox.Register(orderPlaced.Listen(func(ctx context.Context, order Order, env outbox.Envelope) error {
		return mail(ctx, env.EventID, order) // an error is retried
	}))
}

func (s *service) place(c *echo.Context) error {
	ctx, order := c.Request().Context(), Order{}
	if err := c.Bind(&order); err != nil {
		return err
	}
	if order.Item == "" {
		return echo.NewHTTPError(http.StatusBadRequest, "item is missing")
	}
	order.ID = rand.Text()
	tx, _ := s.orders.TxFrom(ctx) // the request's transaction
	if err := tx.Create(&order).Error; err != nil {
		return err // rolls back
	}
	if _, err := s.orders.Write(ctx, tx, orderPlaced.Envelope(order.ID, order)); err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, order)
}

// run serves until ctx ends, then answers the requests under way and delivers the
// queued events.
func (s *service) run(ctx context.Context, addr string) error {
	if err := s.outbox.Start(ctx); err != nil {
		return err
	}
	s.http.Addr = addr
	failed := make(chan error, 1)
	go func() { failed <- s.http.ListenAndServe() }()
	var err error
	select {
	case err = <-failed: // the port is taken, for example
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(err, s.http.Shutdown(stop), s.outbox.Close(stop), s.pool.Close())
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	s, err := newService(ctx, os.Getenv("DATABASE_URL"), func(_ context.Context, eventID string, order Order) error {
		log.Printf("mail for order %s of %s (event %s)", order.ID, order.Item, eventID)
		return nil
	})
	if err == nil {
		err = s.run(ctx, ":8080")
	}
	if err != nil {
		log.Fatal(err)
	}
}
