// Webhook sends an order's event to the endpoint of a customer, which verifies the signature. The customer
// handles the order and loses the connection before it answers, so the request comes again, and the customer
// handles it once. Then somebody else sends requests, which the customer refuses. The shop and the customer
// run in this process; each has a database.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	_ "modernc.org/sqlite"
)

// The shop gives the secret to the customer.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "webhook")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	_, err = run(ctx, dir, os.Stdout)
	cancel()
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

// run places an order, and returns how many orders the customer has at the end.
func run(ctx context.Context, dir string, out io.Writer) (orders int, err error) {
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(out, format+"\n", args...)
	}

	c, err := openCustomer(ctx, dir, say)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.db.Close()) }()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	server := &http.Server{Handler: c, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	endpoint := "http://" + listener.Addr().String() + "/orders"
	say("customer  waits for requests")

	s, err := openShop(ctx, dir, endpoint)
	if err != nil {
		return 0, err
	}
	err = s.placeOrder(ctx, order{ID: "o-1", Item: "tea"})
	if err == nil {
		say("shop      the order and its event are committed in one transaction")
		err = c.wait(ctx)
	}
	if err := errors.Join(err, s.close(ctx)); err != nil {
		return 0, err
	}

	for _, f := range []struct {
		what, secret string
		signed       time.Time
		body         string // empty: the body that was signed
	}{
		{"with a secret of their own", "whsec_b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcm90aGVy", time.Now(), ""},
		{"with a body that was changed", secret, time.Now(), `{"type":"OrderPlaced","data":{"ID":"o-2","Item":"gold"}}`},
		{"that was signed an hour ago", secret, time.Now().Add(-time.Hour), ""},
	} {
		say("somebody  sends a request %s", f.what)
		if err := forge(ctx, endpoint, f.secret, f.signed, f.body); err != nil {
			return 0, err
		}
	}
	err = c.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM incoming").Scan(&orders)
	say("customer  has %d order: sent twice, handled once", orders)
	return orders, err
}

// forge sends a request that the customer must refuse.
func forge(ctx context.Context, endpoint, secret string, signed time.Time, changed string) error {
	const id = "forged"
	body := []byte(`{"type":"OrderPlaced","data":{"ID":"o-2","Item":"tea"}}`)
	signer, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	signature, err := signer.Sign(id, signed, body)
	if err != nil {
		return err
	}
	if changed != "" {
		body = []byte(changed)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set(standardwebhooks.HeaderWebhookID, id)
	q.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(signed.Unix(), 10))
	q.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(q)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusUnauthorized {
		err = fmt.Errorf("the customer answered %s", answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}
