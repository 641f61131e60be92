// Package webhooks_test has the code of docs/how-to/webhooks.md.
package webhooks_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay/webhook"
)

type order struct {
	ID string `json:"id"`
}

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

const endpointTable = `
CREATE TABLE webhook_endpoint (
  id        VARCHAR(64) PRIMARY KEY,
  tenant_id VARCHAR(64) NOT NULL,
  kinds     TEXT NOT NULL,  -- such as ["OrderPlaced"]
  url       TEXT NOT NULL,
  secrets   TEXT NOT NULL,  -- such as ["whsec_…"]; the newest first
  paused    BOOLEAN NOT NULL DEFAULT FALSE,
  disabled  TEXT            -- why
)`

// endpoints are the rows of webhook_endpoint.
type endpoints struct{ db *sql.DB }

// For finds the endpoints of the event's tenant that want its kind.
func (e endpoints) For(ctx context.Context, env outbox.Envelope) (ids []string, err error) {
	rows, err := e.db.QueryContext(ctx, "SELECT id FROM webhook_endpoint WHERE tenant_id = ? AND kinds LIKE ? AND disabled IS NULL",
		env.TenantID, fmt.Sprintf("%%%q%%", env.EventType))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// Get reads an endpoint.
func (e endpoints) Get(ctx context.Context, id string) (to webhook.Endpoint, err error) {
	var secrets string
	err = e.db.QueryRowContext(ctx, "SELECT url, secrets, paused, disabled IS NOT NULL FROM webhook_endpoint WHERE id = ?", id).
		Scan(&to.URL, &secrets, &to.Paused, &to.Disabled)
	if errors.Is(err, sql.ErrNoRows) {
		return to, webhook.ErrNoEndpoint
	}
	if err != nil {
		return to, err
	}
	return to, json.Unmarshal([]byte(secrets), &to.Secrets)
}

// Disable is called when an endpoint has answered 410 Gone.
func (e endpoints) Disable(ctx context.Context, id, reason string) error {
	_, err := e.db.ExecContext(ctx, "UPDATE webhook_endpoint SET disabled = ? WHERE id = ?", reason, id)
	return err
}

// addWebhooks sends the orders to the customers' endpoints.
func addWebhooks(ob *outbox.Outbox, adapter *sqltx.Adapter, db *sql.DB, change func(*webhook.Config)) (*webhook.Hooks, error) {
	cfg := webhook.Config{
		Endpoints: endpoints{db},
		Write: func(ctx context.Context, deliveries []outbox.Envelope) error {
			return adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := adapter.WriteAll(ctx, tx, deliveries)
				return err
			})
		},
	}
	change(&cfg)
	hooks, err := webhook.New(cfg)
	if err != nil {
		return nil, err
	}
	return hooks, ob.Register(hooks.Bindings(orderPlaced.Kind())...)
}

const customersSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receive is what a customer runs.
func receive(w http.ResponseWriter, r *http.Request, seen func(id string) bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 2<<20))
	if err != nil {
		return
	}
	verifier, err := standardwebhooks.NewWebhook(customersSecret)
	if err == nil {
		err = verifier.Verify(body, r.Header)
	}
	if err != nil {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	if seen(r.Header.Get("webhook-id")) {
		return // a delivery may come twice
	}
	fmt.Println("an order for a customer:", string(body)[:len(`{"type":"OrderPlaced"`)])
	w.WriteHeader(http.StatusNoContent)
}

func Example() {
	ctx := context.Background()
	arrived := make(chan struct{}, 1)
	customer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		receive(w, r, func(string) bool { return false })
		arrived <- struct{}{}
	}))
	defer customer.Close()
	db, err := sqltx.Open("sqlite", "file:/webhooks?vfs=memdb&_txlock=immediate")
	check(err)
	defer db.Close()
	_, err = db.ExecContext(ctx, endpointTable)
	check(err)
	_, err = db.ExecContext(ctx, "INSERT INTO webhook_endpoint (id, tenant_id, kinds, url, secrets) VALUES ('7', 'acme', '[\"OrderPlaced\"]', ?, ?)",
		customer.URL, `["`+customersSecret+`"]`)
	check(err)

	store := sqlstore.SQLite()
	check(store.CreateSchema(ctx, db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	adapter, err := sqltx.New(db, ob.Writer())
	check(err)
	hooks, err := addWebhooks(ob, adapter, db, func(cfg *webhook.Config) {
		roots := x509.NewCertPool()
		roots.AddCert(customer.Certificate())
		cfg.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} // the customer is a test on this machine
		cfg.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	})
	check(err)
	defer hooks.Close()
	check(ob.Start(ctx))
	check(adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		env := orderPlaced.Envelope("o-1", order{"o-1"})
		env.TenantID = "acme"
		_, err := adapter.Write(ctx, tx, env)
		return err
	}))
	<-arrived
	check(ob.Close(ctx))
	// Output: an order for a customer: {"type":"OrderPlaced"
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
