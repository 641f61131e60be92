// Package relaykafka publishes the events of an outbox to Kafka.
//
//	publisher, err := relaykafka.New(relaykafka.Config{
//		Brokers: []string{"kafka-1:9092", "kafka-2:9092"},
//		Options: []kgo.Opt{kgo.SASL(scram.Auth{User: "shop", Pass: secret}.AsSha512Mechanism()), kgo.DialTLS()},
//	})
//	…
//	r, err := relay.New(relay.Config{
//		Publisher: publisher,
//		Source:    "/shop",
//		Routes:    []relay.Route{relay.To("orders", placed.Kind(), paid.Kind())},
//	})
//	…
//	err = ob.Register(r.Bindings()...)
//
// The key of a message, by default the aggregate id, chooses the partition. Writes are
// idempotent and acknowledged by all replicas that are in sync. With kgo.TransactionalID
// among the options each call is a transaction.
//
// The publisher creates no topics, unless kgo.AllowAutoTopicCreation is among the options.
package relaykafka
