package testing_test

import (
	"context"
	"errors"
	"net/http"

	"github.com/outboxkit/outbox-go/outbox"
)

// The code under test.

type Order struct {
	ID   string `json:"id"`
	Item string `json:"item"`
}

var orderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

type Shop struct {
	tx     outbox.Transactor // an adapter, such as *sqltx.Adapter
	events *outbox.Writer
	orders interface {
		Save(ctx context.Context, o Order) error
	}
}

func (s *Shop) Place(ctx context.Context, o Order) error {
	return outbox.InTx(ctx, s.tx, func(ctx context.Context) error {
		if err := s.orders.Save(ctx, o); err != nil {
			return err
		}
		_, err := s.events.Write(ctx, orderPlaced.Envelope(o.ID, o))
		return err
	})
}

// ServeHTTP writes in the transaction that the middleware began.
func (s *Shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o := Order{ID: r.FormValue("id"), Item: r.FormValue("item")}
	if _, err := s.events.Write(r.Context(), orderPlaced.Envelope(o.ID, o)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

var errNoAddress = errors.New("the customer has no address")

// mailListener sends a mail for each order.
func mailListener(send func(ctx context.Context, o Order, key string) error) outbox.Binding {
	return orderPlaced.Listen(func(ctx context.Context, o Order, env outbox.Envelope) error {
		err := send(ctx, o, env.EventID)
		if errors.Is(err, errNoAddress) {
			return outbox.Dead(err)
		}
		return err
	})
}
