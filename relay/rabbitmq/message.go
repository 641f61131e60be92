package relayrabbitmq

import (
	"fmt"
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxkit/outbox-go/relay"
)

const (
	// maxName is the most bytes of a short string of AMQP: names and keys.
	maxName = 255
	// attributePrefix is the prefix in the binding of CloudEvents to AMQP 1.0. There is no binding
	// for AMQP 0.9.1, whose headers RabbitMQ gives to consumers of 1.0 unchanged.
	attributePrefix = "cloudEvents_"
	// otherProperties is more than the size of a message's properties without the headers.
	otherProperties = 512
)

// publishing is the publishing that the client sends for a message. Values that the protocol cannot
// carry are refused: for these the client would close the connection.
func publishing(m relay.Message) (amqp.Publishing, error) {
	headers := m.HeaderList(attributePrefix, "")
	p := amqp.Publishing{
		MessageId: m.ID, Timestamp: m.Time, ContentType: m.ContentType,
		DeliveryMode: amqp.Persistent, Headers: make(amqp.Table, len(headers)), Body: m.Body,
	}
	if err := checkTopic(m.Topic); err != nil {
		return p, fmt.Errorf("%w: the topic %w", relay.ErrRefused, err)
	}
	for _, h := range headers {
		if h.Key == attributePrefix+"datacontenttype" || instruction(h.Key) {
			continue // the property ContentType says the first
		}
		if len(h.Key) > maxName {
			return p, fmt.Errorf("%w: the key of the header %.20q… has %d bytes; AMQP allows %d", relay.ErrRefused, h.Key, len(h.Key), maxName)
		}
		p.Headers[h.Key] = h.Value
	}
	return p, nil
}

// instruction reports whether the broker would read a header of an event as an instruction: further
// routing keys (CC, BCC), or the queues that have dead-lettered the message. The broker refuses a
// text in such a header, or fails later because of it.
func instruction(key string) bool {
	switch key {
	case "CC", "BCC", "x-death":
		return true
	default:
		return strings.HasPrefix(key, "x-first-death-") || strings.HasPrefix(key, "x-last-death-")
	}
}

// checkTopic returns the problem with a routing key.
func checkTopic(topic string) error {
	switch {
	case len(topic) > maxName:
		return fmt.Errorf("has %d bytes; a routing key of AMQP has at most %d", len(topic), maxName)
	case !utf8.ValidString(topic):
		return fmt.Errorf("(%d bytes) is not valid UTF-8", len(topic))
	default:
		return nil
	}
}

// checkFrame refuses a message whose headers do not fit into a frame, which cannot be
// split. The broker would close the connection. A frame of 0 bytes has no limit.
func checkFrame(p *amqp.Publishing, frame int) error {
	size := otherProperties
	for key, value := range p.Headers {
		size += len(key) + len(value.(string)) + 6 // lengths and type
	}
	if frame > 0 && size > frame {
		return fmt.Errorf("%w: the headers take %d bytes; the connection's frames have %d (frame_max)", relay.ErrRefused, size, frame)
	}
	return nil
}
