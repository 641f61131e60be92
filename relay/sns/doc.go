// Package relaysns publishes the events of an outbox to topics of Amazon SNS.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	…
//	publisher, err := relaysns.New(relaysns.Config{Client: sns.NewFromConfig(cfg)})
//	…
//	r, err := relay.New(relay.Config{
//		Publisher: publisher,
//		Source:    "/shop",
//		Routes:    []relay.Route{relay.To("arn:aws:sns:eu-west-1:123456789012:orders.fifo", placed.Kind(), paid.Kind())},
//	})
//	…
//	err = ob.Register(r.Bindings()...)
//
// The topic of a route is the ARN of a topic. The key of a message, by default the aggregate id, is the
// group of a FIFO topic, and the id of the message is the deduplication id. The publisher makes no topics
// and no subscriptions.
package relaysns
