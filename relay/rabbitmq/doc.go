// Package relayrabbitmq publishes the events of an outbox to RabbitMQ.
//
//	publisher, err := relayrabbitmq.New(relayrabbitmq.Config{
//		URLs:     []string{"amqp://shop:secret@rabbitmq:5672/"},
//		Exchange: "shop",
//	})
//	…
//	r, err := relay.New(relay.Config{
//		Publisher: publisher,
//		Source:    "/shop",
//		Routes:    []relay.Route{relay.To("orders.placed", placed.Kind())}, // a routing key
//	})
//	…
//	err = ob.Register(r.Bindings()...)
//
// Messages are persistent and mandatory. An event is done when the broker has confirmed the
// message: the message is then in all queues to which the routing key leads, and in at least one
// queue. A message that leads to no queue is a failed delivery.
//
// The publisher connects when it first publishes, and again after it lost the connection. The
// publisher creates no exchanges, queues or bindings.
package relayrabbitmq
