package outbox

import "context"

// Topic binds an aggregate type, an event type and a payload type, so that the compiler checks that
// the writer and the listener of an event use the same payload type. A topic is a value, safe for
// concurrent use.
type Topic[T any] struct {
	aggregate AggregateType
	event     EventType
	codec     Codec
}

// NewTopic makes a topic. An empty aggregate is [Global].
func NewTopic[T any](aggregate AggregateType, event EventType) Topic[T] {
	return Topic[T]{aggregate: orGlobal(aggregate), event: event}
}

// WithCodec returns the same topic with another codec for its payloads. A nil
// codec is [DefaultCodec].
func (t Topic[T]) WithCodec(codec Codec) Topic[T] {
	t.codec = codec
	return t
}

// AggregateType is the topic's aggregate type.
func (t Topic[T]) AggregateType() AggregateType { return t.aggregate }

// EventType is the topic's event type.
func (t Topic[T]) EventType() EventType { return t.event }

// Kind is the pair of both types, as rules and pauses name the pair.
func (t Topic[T]) Kind() EventKind { return EventKind{AggregateType: t.aggregate, EventType: t.event} }

// Envelope returns an envelope with the topic's types; set further fields on it. A
// marshalling error is returned by Write.
func (t Topic[T]) Envelope(aggregateID string, payload T) Envelope {
	return Envelope{EventType: t.event, AggregateType: t.aggregate, AggregateID: aggregateID, Payload: Encode(t.codec, payload)}
}

// Decode unmarshals the payload of env with the topic's codec.
func (t Topic[T]) Decode(env Envelope) (T, error) {
	if t.codec != nil {
		env.Payload = env.Payload.WithCodec(t.codec)
	}
	return Decode[T](env)
}

// Listen makes a binding for fn, whose errors mean the same as the errors of a [Listener]. An event
// whose payload does not decode is dead at once, because another attempt would fail in the same
// way. If the codec may fail for a while, register a listener with [On] that calls [Topic.Decode]
// and returns the error of Decode: then the event is retried.
func (t Topic[T]) Listen(fn func(ctx context.Context, payload T, env Envelope) error, opts ...BindingOption) Binding {
	if fn == nil {
		return On(t.aggregate, t.event, nil, opts...)
	}
	return On(t.aggregate, t.event, ListenerFunc(func(ctx context.Context, env Envelope) error {
		payload, err := t.Decode(env)
		if err != nil {
			return Dead(err)
		}
		return fn(ctx, payload, env)
	}), opts...)
}

// Event is an event of a [Topic]: the decoded payload and the envelope.
type Event[T any] struct {
	Payload  T
	Envelope Envelope
}

// ListenBatch makes a binding for fn, which gets the topic's events in batches; see
// [BatchListener]. An event whose payload does not decode is dead at once and in no
// batch.
func (t Topic[T]) ListenBatch(opts BatchOptions, fn func(ctx context.Context, batch []Event[T]) ([]error, error), more ...BindingOption) Binding {
	if fn == nil {
		return On(t.aggregate, t.event, nil, more...)
	}
	decode := func(env Envelope) (any, error) { return t.Decode(env) }
	return On(t.aggregate, t.event, newBatchListener(opts, decode, func(ctx context.Context, members []*batchMember) ([]error, error) {
		batch := make([]Event[T], len(members))
		for i, m := range members {
			batch[i].Payload, _ = m.payload.(T) // nil when T is an interface and the payload null
			batch[i].Envelope = m.env
		}
		return fn(ctx, batch)
	}), more...)
}
