// Package webhook sends events to HTTP endpoints of other people, signed as [Standard Webhooks] says.
//
//	hooks, err := webhook.New(webhook.Config{
//		Endpoints: customers, // yours: which endpoints get an event, and an endpoint's URL and secrets
//		Write: func(ctx context.Context, deliveries []outbox.Envelope) error {
//			return adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
//				_, err := adapter.WriteAll(ctx, tx, deliveries)
//				return err
//			})
//		},
//	})
//	…
//	err = ob.Register(hooks.Bindings(orderPlaced.Kind(), orderPaid.Kind())...)
//
// An event that has endpoints becomes a delivery for each of them: a further event of the outbox, of
// the [Kind] of this package, whose aggregate id is the endpoint. So each endpoint has separate retries,
// dead letters, bounds and pauses, and an endpoint that is slow or away holds up no other. The URL and
// the secrets are read when a delivery begins. They are in no row, log line or error.
//
// A request is a POST with the headers webhook-id, webhook-timestamp and webhook-signature. The body is
// the same in each attempt and for each endpoint, and the webhook-id is the event's id: a receiver that
// has seen the id drops the request, because a delivery may come twice.
//
// Connections to private, loopback, link-local and other special addresses are refused when they are
// dialed, after the name was resolved, and redirects are not followed: an endpoint's owner cannot reach
// the network of the service. See [Config].AllowNetworks.
//
// [Standard Webhooks]: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
package webhook
