// Package relaypubsub publishes the events of an outbox to Google Cloud Pub/Sub.
//
//	publisher, err := relaypubsub.New(relaypubsub.Config{Project: "shop"})
//	…
//	r, err := relay.New(relay.Config{
//		Publisher: publisher,
//		Source:    "/shop",
//		Routes:    []relay.Route{relay.To("orders", placed.Kind(), paid.Kind())},
//	})
//	…
//	err = ob.Register(r.Bindings()...)
//
// The topic of a route is the id of a topic of the project, or a whole name such as
// projects/shop/topics/orders. The key of a message, by default the aggregate id, is the ordering key.
// The publisher makes no topics.
package relaypubsub
