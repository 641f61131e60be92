package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxkit/outbox-go/inbox"
)

// customer is another service, with a separate database. It imports no package of the shop.
type customer struct {
	db       *sql.DB
	box      *inbox.Inbox
	verifier *standardwebhooks.Webhook
	say      func(format string, args ...any)
	answered chan struct{} // gets a value when a request was answered
}

func openCustomer(ctx context.Context, dir string, say func(format string, args ...any)) (*customer, error) {
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, err
	}
	box, err := inbox.New(inbox.Config{Dialect: inbox.SQLite})
	if err != nil {
		return nil, err
	}
	db, err := open(dir, "customer")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE incoming (id TEXT PRIMARY KEY, item TEXT)")
	return &customer{db, box, verifier, say, make(chan struct{}, 1)}, errors.Join(err, box.CreateSchema(ctx, db))
}

// ServeHTTP takes a request of the shop.
func (c *customer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const most = 2 << 20 // a body of the shop has at most 1 MiB
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	// Verify compares the signature with the body as it came, and the timestamp with the clock.
	if err := c.verifier.Verify(body, r.Header); err != nil {
		c.say("customer  refuses the request: %v", err)
		http.Error(w, "the signature is not valid", http.StatusUnauthorized)
		return
	}
	id := r.Header.Get(standardwebhooks.HeaderWebhookID)
	first, err := c.handle(r.Context(), id, body)
	if err != nil {
		http.Error(w, "later", http.StatusInternalServerError)
		return
	}
	if first {
		c.say("customer  verifies %s, notes the order, commits, and loses the connection before it answers", id)
		panic(http.ErrAbortHandler) // a program of yours answers here, too
	}
	c.say("customer  verifies %s, has it in the inbox, and only answers", id)
	w.WriteHeader(http.StatusNoContent)
	select {
	case c.answered <- struct{}{}:
	default: // an earlier request has told it
	}
}

// handle notes an order, once for each id.
func (c *customer) handle(ctx context.Context, id string, body []byte) (first bool, err error) {
	var event struct {
		Type string
		Data struct{ ID, Item string }
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return false, err
	}
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	first, err = c.box.Once(ctx, tx, "shop", id, func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO incoming VALUES (?, ?)", event.Data.ID, event.Data.Item)
		return err
	})
	if err != nil {
		return false, err
	}
	return first, tx.Commit()
}

// wait waits until a request was answered.
func (c *customer) wait(ctx context.Context) error {
	select {
	case <-c.answered:
		return nil
	case <-ctx.Done():
		return errors.New("no request came twice")
	}
}
