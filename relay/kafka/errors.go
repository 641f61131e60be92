package relaykafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/outboxkit/outbox-go/relay"
)

// kafkaError is the error of Kafka itself in err, or nil.
func kafkaError(err error) *kerr.Error {
	var e *kerr.Error
	errors.As(err, &e)
	return e
}

// classify wraps an error of the client with its class. Errors that are not Kafka's own are errors
// of the network, of contexts and of a client that was closed.
func classify(err error) error {
	switch kafkaError(err) {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
		kerr.InvalidTopicException, kerr.UnsupportedForMessageFormat, kerr.PolicyViolation:
		return fmt.Errorf("%w: %w", relay.ErrRefused, err)
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID:
		return fmt.Errorf("%w: %w", relay.ErrUnroutable, err)
	case kerr.TopicAuthorizationFailed:
		return fmt.Errorf("the broker does not allow it: %w", err)
	default:
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	}
}

// ofBatch reports whether the broker refused a whole batch. A single message of the batch may be to
// blame, or only the size of all messages together.
func ofBatch(err error) bool {
	switch kafkaError(err) {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp:
		return true
	default:
		return false
	}
}

// checkTopic returns the problem with the name of a topic.
func checkTopic(topic string) error {
	const most = 249
	switch {
	case len(topic) > most:
		return fmt.Errorf("has %d bytes; Kafka allows %d", len(topic), most)
	case topic == "." || topic == "..":
		return errors.New("is not a name that Kafka allows")
	}
	for _, c := range []byte(topic) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("has a %q; Kafka allows letters and digits of ASCII, dots, underscores and hyphens", c)
		}
	}
	return nil
}
