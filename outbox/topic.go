package outbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Topic binds an aggregate type, an event type and a payload type, so that the compiler checks that
// the writer and the listener of an event use the same payload type. A topic is a value, safe for
// concurrent use.
type Topic[T any] struct {
	aggregate AggregateType
	event     EventType
	codec     Codec
	versions  *versions[T] // nil: version 1 alone
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
	env := Envelope{EventType: t.event, AggregateType: t.aggregate, AggregateID: aggregateID, Payload: Encode(t.codec, payload)}
	if t.versions != nil {
		env.Payload = env.Payload.WithVersion(t.versions.current)
	}
	return env
}

// Decode unmarshals the payload of env with the topic's codec. An [Upcaster] of the topic turns a
// payload of an older version into a T. The error is [ErrNewerVersion] for a payload of a version
// that is newer than the topic's version.
func (t Topic[T]) Decode(env Envelope) (T, error) {
	if t.codec != nil {
		env.Payload = env.Payload.WithCodec(t.codec)
	}
	if t.versions == nil && env.Payload.version == 0 {
		return Decode[T](env)
	}
	return t.decodeVersion(env)
}

// Listen makes a binding for fn, whose errors mean the same as the errors of a [Listener]. An event
// whose payload does not decode is dead at once, because another attempt would fail in the same
// way. If the codec may fail for a while, register a listener with [On] that calls [Topic.Decode]
// and returns the error of Decode: then the event is retried. An event with [ErrNewerVersion] is
// deferred, so that a process of a newer build delivers the event.
func (t Topic[T]) Listen(fn func(ctx context.Context, payload T, env Envelope) error, opts ...BindingOption) Binding {
	if fn == nil {
		return On(t.aggregate, t.event, nil, opts...)
	}
	return On(t.aggregate, t.event, ListenerFunc(func(ctx context.Context, env Envelope) error {
		payload, err := t.Decode(env)
		if err != nil {
			return undecoded(env, err)
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

// versions are the versions of a payload that a topic reads.
type versions[T any] struct {
	current int
	older   []Upcaster[T]
}

// WithVersion returns the same topic with a version of its payload's format. A topic without a
// version has version 1. Increase the version with a change that older listeners or waiting events
// would not survive, and give a function for each older version of which events may still wait or be
// dead:
//
//	orderPlaced.WithVersion(3, outbox.From(2, fromV2), outbox.From(1, fromV1))
//
// The topic's payloads have the version (see [Payload.Version]), and [Topic.Decode] chooses the
// function by it. A version below 1 is an error of Write.
func (t Topic[T]) WithVersion(version int, older ...Upcaster[T]) Topic[T] {
	t.versions = &versions[T]{version, slices.Clone(older)}
	return t
}

// Versions are the versions that [Topic.Decode] reads, in ascending order.
func (t Topic[T]) Versions() []int {
	if t.versions == nil {
		return []int{1}
	}
	all := []int{t.versions.current}
	for _, up := range t.versions.older {
		all = append(all, up.versions...)
	}
	all = slices.DeleteFunc(all, func(version int) bool { return version > t.versions.current })
	slices.Sort(all)
	return slices.Compact(all)
}

// Version is the version of the payloads that [Topic.Envelope] makes.
func (t Topic[T]) Version() int {
	if t.versions == nil {
		return 1
	}
	return t.versions.current
}

// PayloadType is the type T.
func (t Topic[T]) PayloadType() reflect.Type { return reflect.TypeFor[T]() }

// ContentType is the content type of the topic's payloads: [ContentTypeJSON], or the type that the
// topic's [BinaryCodec] names.
func (t Topic[T]) ContentType() string { return contentTypeOf(codecOr(t.codec)) }

// Upcaster turns payloads of older versions into a T. Make an Upcaster with [From].
type Upcaster[T any] struct {
	versions []int
	decode   func(env Envelope) (T, error) // of one of these versions
}

// From makes an [Upcaster] that decodes a payload of this version as an Old and calls up with the
// Old. An error of up makes the event dead. The upcasters of Old make a chain, so that a new version
// needs a single new function:
//
//	orderPlaced.WithVersion(3, outbox.From(2, v2ToV3, outbox.From(1, v1ToV2)))
func From[Old, T any](version int, up func(Old) (T, error), older ...Upcaster[Old]) Upcaster[T] {
	before := Topic[Old]{versions: &versions[Old]{version, slices.Clone(older)}}
	return Upcaster[T]{
		versions: before.Versions(),
		decode: func(env Envelope) (T, error) {
			var none T
			old, err := before.Decode(env)
			if err != nil {
				return none, err
			}
			if up == nil {
				return none, fmt.Errorf("outbox: the function of outbox.From(%d) is nil", version)
			}
			payload, err := up(old)
			if err != nil {
				return none, fmt.Errorf("outbox: reading event %s (%s/%s) of version %d (%d bytes): %w",
					env.EventID, env.AggregateType, env.EventType, env.Payload.Version(), env.Payload.Len(), err)
			}
			return payload, nil
		},
	}
}

// decodeVersion is Decode for an event whose version may not be the topic's version.
func (t Topic[T]) decodeVersion(env Envelope) (T, error) {
	var none T
	version := env.Payload.Version()
	switch current := t.Version(); {
	case version == current:
		return Decode[T](env)
	case version > current:
		return none, fmt.Errorf("%w: event %s (%s/%s) has version %d (%d bytes), and this build reads version %d; a newer build delivers the event",
			ErrNewerVersion, env.EventID, env.AggregateType, env.EventType, version, env.Payload.Len(), current)
	}
	if t.versions != nil {
		for _, up := range t.versions.older {
			if slices.Contains(up.versions, version) {
				return up.decode(env)
			}
		}
	}
	return none, fmt.Errorf("outbox: event %s (%s/%s) has version %d (%d bytes), and the topic reads %v; add outbox.From(%d, …) to the topic and replay the event",
		env.EventID, env.AggregateType, env.EventType, version, env.Payload.Len(), t.Versions(), version)
}

// undecoded is the error of a listener whose event does not decode.
func undecoded(env Envelope, err error) error {
	if errors.Is(err, ErrNewerVersion) {
		return fmt.Errorf("%w: %w", err, Defer(unroutableDelay(time.Since(env.OccurredAt))))
	}
	return Dead(err)
}
