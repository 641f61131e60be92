// Package relaywatermill publishes the events of an outbox through any publisher of Watermill, and
// so to each broker for which Watermill has a publisher.
//
//	publisher, err := relaywatermill.New(relaywatermill.Config{Publisher: kafkaPublisher})
//	…
//	r, err := relay.New(relay.Config{
//		Publisher: publisher,
//		Source:    "/orders",
//		Routes:    []relay.Route{relay.To("orders", orderPlaced.Kind())},
//	})
//
// The UUID of a message is the message's id. The metadata has the attributes of the CloudEvent with
// the prefix "ce-", "content-type", the event's headers, and under [MetadataKey] the key.
package relaywatermill
