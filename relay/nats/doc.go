// Package relaynats publishes the events of an outbox to NATS JetStream.
//
//	publisher, err := relaynats.New(relaynats.Config{
//		URL:     "nats://127.0.0.1:4222",
//		Options: []nats.Option{nats.UserCredentials("orders.creds")},
//	})
//	…
//	r, err := relay.New(relay.Config{
//		Publisher: publisher,
//		Source:    "/orders",
//		Routes:    []relay.Route{relay.To("orders.placed", orderPlaced.Kind())},
//	})
//
// The topic of a route is the subject, which a stream must cover. The header Nats-Msg-Id is the
// message's id, so the stream drops a message that is published again within the duplicate window.
// Messages go out without waiting for each other's acknowledgement.
package relaynats
