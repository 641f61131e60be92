package payloads_test

import (
	"context"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outboxkit/outbox-go/outbox"
)

// protobuf is a codec for topics of generated messages.
type protobuf struct{}

func (protobuf) ContentType() string { return "application/protobuf" }

func (protobuf) Marshal(v any) ([]byte, error) {
	message, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return proto.Marshal(message)
}

// Unmarshal gets a pointer to the topic's type, which is a pointer to a message.
func (protobuf) Unmarshal(data []byte, v any) error {
	pointer := reflect.ValueOf(v).Elem()
	pointer.Set(reflect.New(pointer.Type().Elem()))
	return proto.Unmarshal(data, pointer.Interface().(proto.Message))
}

// A topic of a generated type. Here it is one that comes with Protobuf.
var timeSpent = outbox.NewTopic[*durationpb.Duration]("Visit", "TimeSpent").WithCodec(protobuf{})

func Example_bytes() {
	data := []byte{0x08, 0x5a}
	env := outbox.Envelope{
		EventType: "TimeSpent", AggregateType: "Visit", AggregateID: "visit-1",
		Payload: outbox.Bytes("application/protobuf", data),
	}
	deliver(outbox.On(env.AggregateType, env.EventType, outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		fmt.Printf("%s % x\n", env.Payload.ContentType(), env.Payload.Bytes())
		return nil
	})), env)
	// Output:
	// application/protobuf 08 5a
}

func Example_protobuf() {
	deliver(
		timeSpent.Listen(func(_ context.Context, d *durationpb.Duration, env outbox.Envelope) error {
			fmt.Println(d.AsDuration(), env.Payload.ContentType(), env.Payload.Len(), "bytes")
			return nil
		}),
		timeSpent.Envelope("visit-1", &durationpb.Duration{Seconds: 90}),
	)
	// Output:
	// 1m30s application/protobuf 2 bytes
}
