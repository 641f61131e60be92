// Package relaysqs publishes the events of an outbox to queues of Amazon SQS.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	…
//	publisher, err := relaysqs.New(relaysqs.Config{Client: sqs.NewFromConfig(cfg)})
//	…
//	r, err := relay.New(relay.Config{
//		Publisher: publisher,
//		Source:    "/shop",
//		Routes:    []relay.Route{relay.To("orders.fifo", placed.Kind(), paid.Kind())},
//	})
//	…
//	err = ob.Register(r.Bindings()...)
//
// The topic of a route is the name of a queue or the URL of a queue. The key of a message, by default
// the aggregate id, is the group of a FIFO queue, and the id of the message is the deduplication id.
// The publisher makes no queues.
package relaysqs
