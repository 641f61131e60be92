package relayrabbitmq

import (
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxkit/outbox-go/relay"
)

// ended is why a channel ended: the broker's reason, or the reason of the connection.
type ended struct{ reason *amqp.Error }

// ofMessage reports whether the broker closed the channel because of a single message. The other
// messages without a confirm are not to blame.
func (e ended) ofMessage() bool {
	if e.reason == nil || !e.reason.Server {
		return false
	}
	switch e.reason.Code {
	case amqp.PreconditionFailed, amqp.ContentTooLarge:
		return true
	default:
		return e.ofTopic()
	}
}

// ofTopic reports whether the user may write to the exchange, but not with this key.
func (e ended) ofTopic() bool {
	return e.reason.Code == amqp.AccessRefused && strings.Contains(e.reason.Reason, "access to topic")
}

// err is the error of a message that the broker had not confirmed.
func (e ended) err() error {
	if e.reason == nil {
		return fmt.Errorf("%w: the connection was closed", relay.ErrUnavailable)
	}
	text := fmt.Sprintf("%s (%d)", e.reason.Reason, e.reason.Code)
	switch {
	case !e.reason.Server:
	case e.reason.Code == amqp.NotFound: // the exchange
		return fmt.Errorf("%w: %s", relay.ErrUnroutable, text)
	case e.ofTopic():
		return fmt.Errorf("the broker does not allow it: %s", text)
	case e.ofMessage():
		return fmt.Errorf("%w: %s", relay.ErrRefused, text)
	}
	return fmt.Errorf("%w: %s", relay.ErrUnavailable, text)
}

// returned is the error of a message that leads to no queue.
func returned(r amqp.Return) error {
	return fmt.Errorf("%w: %s (%d): no queue is bound for it", relay.ErrUnroutable, r.ReplyText, r.ReplyCode)
}
