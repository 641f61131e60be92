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
// A relay is a batch listener that marks an event DONE only after the broker acknowledges the
// message. If the process crashes between the two, the event is published again with the same
// message id. While the broker cannot be reached, events stay in the table and no attempt is
// counted. A message that the broker refuses for good, such as a message above the size limit, is a
// dead letter with the broker's reason.
//
// Within a batch the messages of a key are published one after the other. When a message fails, the
// later messages of its key in the batch wait. Two batches may have messages of the same key at the
// same time, on one node or on two. Only [outbox.OrderedByKey] keeps the order of all events of an
// aggregate, on all nodes.
package relay
