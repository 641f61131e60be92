package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Message is the message that a [Publisher] sends for an event.
type Message struct {
	// Topic is the topic, subject or routing key that the route gives.
	Topic string
	// Key orders the messages of a batch: messages with the same key are published one after the
	// other. A broker with partitions chooses the partition by the key. May be empty.
	Key string
	// ID identifies the message: the topic, the source and the event's id, with colons between. A
	// broker that drops repeated messages compares the ID, and so does the inbox of a consumer. An
	// event's id alone is unique only within the event's table, while a stream or a consumer may
	// have messages of several topics and services. At most 255 bytes: a longer ID is replaced with
	// its SHA-256 in hexadecimal.
	ID string
	// Time is when the event happened.
	Time time.Time
	// ContentType is the content type of Body.
	ContentType string
	// Attributes are the CloudEvents 1.0 attributes, without a prefix. Each protocol adds its own
	// prefix. Empty unless the format is [Binary].
	Attributes []Attribute
	// Headers are the headers of the event, such as the trace context, or of [Route.HeadersOf].
	Headers map[string]string
	// Body is the payload, or the whole CloudEvent in the format [Structured].
	Body []byte
}

// Attribute is an attribute of a CloudEvent.
type Attribute struct{ Name, Value string }

// Format says how an event becomes a message.
type Format string

const (
	// Binary has the payload as the body and the attributes of CloudEvents 1.0 as headers. Binary
	// is the default.
	Binary Format = "binary"
	// Structured has a CloudEvent in JSON as the body.
	Structured Format = "structured"
	// Plain has the payload as the body and no attributes.
	Plain Format = "plain"
)

const contentStructured = "application/cloudevents+json"

// message makes the message of an event for a route. A panic of the route's functions is an error
// of this event, not of the whole batch.
func (r *Relay) message(env outbox.Envelope, to *Route) (m Message, err error) {
	defer recovered(&err)
	m = Message{
		Topic: to.Topic, Key: env.AggregateID, Time: env.OccurredAt,
		ContentType: env.Payload.ContentType(), Headers: env.Headers, Body: env.Payload.Bytes(),
	}
	if to.KeyOf != nil {
		m.Key = to.KeyOf(env)
	}
	if to.HeadersOf != nil {
		m.Headers = to.HeadersOf(env)
	}
	if to.TopicOf != nil {
		if m.Topic, err = to.TopicOf(env); err != nil {
			return m, err
		}
	}
	if m.Topic == "" {
		return m, fmt.Errorf("%w: the route's function gives no topic", ErrRefused)
	}
	m.ID = messageID(m.Topic, r.cfg.Source, env.EventID)
	switch r.cfg.Format {
	case Binary:
		m.Attributes = r.attributes(env, m.Key)
	case Structured:
		m.ContentType = contentStructured
		body := map[string]any{}
		if env.Payload.IsJSON() {
			body["data"] = env.Payload
		} else {
			body["data_base64"] = env.Payload
		}
		for _, a := range r.attributes(env, m.Key) {
			body[a.Name] = a.Value
		}
		if m.Body, err = json.Marshal(body); err != nil {
			return m, fmt.Errorf("%w: making the CloudEvent: %w", ErrRefused, err)
		}
	case Plain:
	}
	return m, nil
}

// maxID is the most bytes of a message's id: of a short string of AMQP, and of the inbox.
const maxID = 255

// messageID is the id of the message that carries an event of a source to a topic.
func messageID(topic, source, event string) string {
	id := topic + ":" + source + ":" + event
	if len(id) <= maxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// attributes are the attributes that CloudEvents 1.0 requires, the optional attributes that the
// event has, the extension for partitions, and an attribute of the outbox's own.
func (r *Relay) attributes(env outbox.Envelope, key string) []Attribute {
	list := []Attribute{
		{"specversion", "1.0"},
		{"id", env.EventID},
		{"source", r.cfg.Source},
		{"type", string(env.EventType)},
		{"time", env.OccurredAt.UTC().Format(time.RFC3339Nano)},
		{"datacontenttype", env.Payload.ContentType()},
		{"aggregatetype", string(env.AggregateType)},
	}
	if version := env.Payload.Version(); version > 1 {
		list = append(list, Attribute{"dataversion", strconv.Itoa(version)})
	}
	if env.AggregateID != "" {
		list = append(list, Attribute{"subject", env.AggregateID})
	}
	if key != "" {
		list = append(list, Attribute{"partitionkey", key})
	}
	return list
}
