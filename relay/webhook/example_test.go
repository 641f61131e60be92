package webhook_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay/webhook"
)

// addWebhooks sends the orders of an outbox to two endpoints.
func addWebhooks(ob *outbox.Outbox, adapter *sqltx.Adapter) (*webhook.Hooks, error) {
	hooks, err := webhook.New(webhook.Config{
		Endpoints: webhook.Static{
			"shipping": {URL: "https://hooks.shipping.example/orders", Secrets: []webhook.Secret{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
			"billing":  {URL: "https://billing.example/hooks", Secrets: []webhook.Secret{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx"}},
		},
		Write: func(ctx context.Context, deliveries []outbox.Envelope) error {
			return adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := adapter.WriteAll(ctx, tx, deliveries)
				return err
			})
		},
	})
	if err != nil {
		return nil, err
	}
	return hooks, ob.Register(hooks.Bindings(orderPlaced.Kind())...)
}

func Example() {
	_ = addWebhooks // docs/code/webhooks has a program that runs

	// The fields that are wrong are named.
	if _, err := webhook.New(webhook.Config{Endpoints: webhook.Static{}}); err != nil {
		fmt.Println(err)
	}
	// A secret is not printed by accident.
	fmt.Println(webhook.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	// Output:
	// outbox: webhook.Config.Write is nil; set a function that calls WriteAll of your adapter in a transaction
	// whsec_…
}
