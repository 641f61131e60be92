// Package relay publishes the events of an outbox to a message broker.
//
//	r, err := relay.New(relay.Config{
//		Publisher: publisher, // of relay/nats, relay/redis, …, or yours
//		Source:    "/orders",
//		Routes: []relay.Route{
//			relay.To("orders.placed", orderPlaced.Kind()),
//			relay.To("orders.paid", orderPaid.Kind()),
//		},
//	})
//	…
//	err = ob.Register(r.Bindings()...)
//
// A relay is a batch listener. An event is done when the broker has acknowledged its
// message, and not before: a crash in between publishes it again, with the same message
// id. While the broker cannot be reached, events stay in the table and no attempt is
// counted. A message that the broker refuses for good, such as one above its size limit,
// is a dead letter with the broker's reason.
//
// The messages of one key are published one after the other. When one of them fails, the
// later ones of its batch wait. Under [outbox.OrderedByKey] that holds for all events of
// the key, on all nodes.
package relay
