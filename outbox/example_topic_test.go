package outbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// The writer and the listener of an event share its topic, so the compiler checks that
// they agree about the payload.
func ExampleTopic() {
	type invoice struct{ Number, Cents int }
	invoiceSent := outbox.NewTopic[invoice]("Invoice", "InvoiceSent")

	ob, _ := newShop(invoiceSent.Listen(func(_ context.Context, i invoice, env outbox.Envelope) error {
		fmt.Println(env.AggregateID, i.Cents)
		return nil
	}))
	deliverAll(ob, invoiceSent.Envelope("7", invoice{Number: 7, Cents: 4200}))
	// Output:
	// 7 4200
}

// An envelope is a plain value: set what else the event has.
func ExampleTopic_Envelope() {
	env := OrderPlaced.Envelope("o-1", Order{ID: "o-1", Total: 42})
	env.TenantID = "acme"
	env.Headers = map[string]string{"source": "web"}
	env.DeliverAfter = 10 * time.Minute
	fmt.Println(env.AggregateType, env.EventType, env.AggregateID, env.Payload)
	// Output:
	// Order OrderPlaced o-1 {"id":"o-1","total":42}
}

// Listen is for a listener that succeeds or fails. A failed event is delivered again.
func ExampleTopic_Listen() {
	ob, store := newShop(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		if o.Total < 0 {
			return errors.New("negative total")
		}
		return nil
	}))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1", Total: -1}))
	fmt.Println(store.Rows()[0].Status, store.Rows()[0].LastError)
	// Output:
	// RETRY negative total
}

// An event that no other attempt can deliver is dead at once.
func ExampleTopic_Listen_dead() {
	ob, store := newShop(OrderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
		if o.Total < 0 {
			return outbox.Dead(errors.New("negative total"))
		}
		return nil
	}))
	deliverAll(ob, OrderPlaced.Envelope("o-1", Order{ID: "o-1", Total: -1}))
	fmt.Println(store.Rows()[0].Status, store.Rows()[0].LastError)
	// Output:
	// DEAD negative total
}

// Decode is for code that has only the envelope, such as an interceptor.
func ExampleTopic_Decode() {
	o, err := OrderPlaced.Decode(OrderPlaced.Envelope("o-1", Order{ID: "o-1", Total: 42}))
	fmt.Println(o.Total, err)

	env := outbox.Envelope{EventID: "e-1", EventType: "OrderPlaced", AggregateType: "Order", Payload: outbox.RawJSON(`{"total": "many"}`)}
	_, err = OrderPlaced.Decode(env)
	fmt.Println(err) // without the payload, because errors go to logs
	// Output:
	// 42 <nil>
	// outbox: decoding event e-1 (Order/OrderPlaced): a JSON string at offset 16 does not fit field total of type int
}

// Kind names the event for rules, pauses and routes.
func ExampleTopic_Kind() {
	rules := map[outbox.EventKind]outbox.Rules{OrderPlaced.Kind(): {Rate: 10}}
	for kind := range rules {
		fmt.Println(kind)
	}
	// Output:
	// Order/OrderPlaced
}

// strict is a codec that refuses fields that the payload's type does not have.
type strict struct{}

func (strict) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

func (strict) Unmarshal(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// A topic may have a codec of its own. Payloads stay JSON, unless the codec is a BinaryCodec.
func ExampleTopic_WithCodec() {
	env := outbox.Envelope{Payload: outbox.RawJSON(`{"id": "o-1", "colour": "red"}`)}

	o, err := OrderPlaced.Decode(env)
	fmt.Println(o.ID, err)
	_, err = OrderPlaced.WithCodec(strict{}).Decode(env)
	fmt.Println(err != nil)
	// Output:
	// o-1 <nil>
	// true
}

// Without a topic: JSON and Decode convert the payload.
func ExampleDecode() {
	env := outbox.Envelope{
		AggregateType: "Order", EventType: "OrderPlaced", AggregateID: "o-1",
		Payload: outbox.JSON(Order{ID: "o-1", Total: 42}),
	}
	o, err := outbox.Decode[Order](env)
	fmt.Println(o.Total, err)
	// Output:
	// 42 <nil>
}

// A value that JSON cannot express is an error of the write, not a panic here.
func ExampleJSON() {
	fmt.Println(outbox.JSON(Order{ID: "o-1", Total: 42}))
	env := outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.JSON(make(chan int))}
	fmt.Println(env.Validate())
	// Output:
	// {"id":"o-1","total":42}
	// outbox: Envelope.Payload cannot be made: marshalling chan int: json: unsupported type: chan int
}

// RawJSON takes text that is JSON already, such as a request's body.
func ExampleRawJSON() {
	env := outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.RawJSON(`{"id": "o-1"}`)}
	fmt.Println(env.Validate())
	env.Payload = outbox.RawJSON(`{"id": `)
	fmt.Println(env.Validate())
	// Output:
	// <nil>
	// outbox: Envelope.Payload of event type "OrderPlaced" is not valid JSON (7 bytes; the error is at offset 7)
}

// Encode marshals with another codec, which also decodes the payload in this process.
func ExampleEncode() {
	env := outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.Encode(strict{}, map[string]string{"colour": "red"})}
	_, err := outbox.Decode[Order](env)
	fmt.Println(err != nil)
	// Output:
	// true
}

// Bytes takes data of any format, such as a message that Protobuf has encoded.
func ExampleBytes() {
	env := outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.Bytes("application/protobuf", []byte{0x08, 0x2a})}
	fmt.Printf("%v %s % x\n", env.Validate(), env.Payload.ContentType(), env.Payload.Bytes())
	// Output:
	// <nil> application/protobuf 08 2a
}

// Validate reports everything that a write would refuse.
func ExampleEnvelope_Validate() {
	err := outbox.Envelope{AggregateID: "o-1"}.Validate()
	fmt.Println(err)
	var field *outbox.FieldError
	fmt.Println(errors.Is(err, outbox.ErrInvalidEnvelope), errors.As(err, &field))
	// Output:
	// outbox: Envelope.EventType is required
	// outbox: Envelope.Payload is required; make one with outbox.JSON, outbox.RawJSON or outbox.Bytes
	// true true
}

// A log or a %v of an envelope shows no payload, no headers and no tenant.
func ExampleEnvelope_String() {
	env := OrderPlaced.Envelope("o-1", Order{ID: "o-1", Total: 42})
	env.EventID = "01HZX3T4Q9V5W6Y7Z8A9B0C1D2"
	fmt.Println(env)
	// Output:
	// Envelope{EventID:01HZX3T4Q9V5W6Y7Z8A9B0C1D2 EventType:OrderPlaced AggregateType:Order AggregateID:o-1 OccurredAt:- AvailableAt:- Attempts:0}
}

// Decode of a payload takes a pointer, for a type that is known only at run time.
func ExamplePayload_Decode() {
	var fields map[string]any
	check(outbox.JSON(Order{ID: "o-1", Total: 42}).Decode(&fields))
	fmt.Println(fields["id"], fields["total"])
	// Output:
	// o-1 42
}

// A row of an older build has the old payload: a function turns it into the new payload.
func ExampleTopic_WithVersion() {
	type euros struct{ Total int }
	type cents struct{ Cents int }
	paid := outbox.NewTopic[cents]("Bill", "BillPaid").WithVersion(2,
		outbox.From(1, func(old euros) (cents, error) { return cents{100 * old.Total}, nil }))

	old := outbox.NewTopic[euros]("Bill", "BillPaid").Envelope("b-1", euros{3}) // of version 1
	c, err := paid.Decode(old)
	fmt.Println(c.Cents, err, paid.Envelope("b-1", cents{300}).Payload.Version())
	// Output:
	// 300 <nil> 2
}

// Functions make a chain: a new version needs a single new function.
func ExampleFrom() {
	type v1 struct{ Euros int }
	type v2 struct{ Cents int }
	type v3 struct {
		Cents    int
		Currency string
	}
	from1 := func(old v1) (v2, error) { return v2{100 * old.Euros}, nil }
	from2 := func(old v2) (v3, error) { return v3{old.Cents, "EUR"}, nil }
	paid := outbox.NewTopic[v3]("Bill", "BillPaid").WithVersion(3, outbox.From(2, from2, outbox.From(1, from1)))

	fmt.Println(paid.Versions())
	fmt.Println(paid.Decode(outbox.Envelope{Payload: outbox.JSON(v1{2})}))
	// Output:
	// [1 2 3]
	// {200 EUR} <nil>
}
