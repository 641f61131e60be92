// Package relayredis publishes the events of an outbox to Redis Streams.
//
//	publisher, err := relayredis.New(relayredis.Config{
//		Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}},
//		MaxLen:  1_000_000,
//	})
//	…
//	r, err := relay.New(relay.Config{
//		Publisher: publisher,
//		Source:    "/orders",
//		Routes:    []relay.Route{relay.To("orders", orderPlaced.Kind())},
//	})
//
// The topic of a route is the key of the stream. An entry has the fields "message-id", which is the
// message's id, "content-type" and "data", the attributes of the CloudEvent with the prefix "ce-",
// and the event's headers. The messages of a batch go out in a single pipeline. Redis does not drop
// repeated entries: a consumer compares message-id, such as with an inbox.
package relayredis
