package relaynats

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxkit/outbox-go/relay"
)

// Codes of the server for which the client has no names.
const (
	accountFull     jetstream.ErrorCode = 10002 // the account has no storage left; its Code is 400
	messageTooLarge jetstream.ErrorCode = 10054 // for the stream; older versions of nats.go have no constant
	headersTooLarge jetstream.ErrorCode = 10097 // more than 64 KiB
)

// classify says which kind of failure an error is. unrouted keeps the results for subjects without
// an answer.
func (p *Publisher) classify(ctx context.Context, m *relay.Message, err error, unrouted map[string]error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, relay.ErrRefused), errors.Is(err, relay.ErrUnavailable), errors.Is(err, errDropped),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: a body of %d bytes and its headers; the server's limit is %d: %w", relay.ErrRefused, len(m.Body), p.conn.MaxPayload(), err)
	case errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg), errors.Is(err, nats.ErrHeadersNotSupported):
		return fmt.Errorf("%w: %w", relay.ErrRefused, err)
	case errors.Is(err, nats.ErrPermissionViolation), errors.Is(err, jetstream.ErrInvalidJSAck):
		return err // a failed delivery: an operator may fix it
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		if unrouted[m.Topic] == nil {
			unrouted[m.Topic] = p.noAnswer(ctx, m.Topic)
		}
		return unrouted[m.Topic]
	case errors.As(err, &api):
		return classifyAPI(api, len(m.Body))
	default: // the connection's
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	}
}

// classifyAPI classifies an answer of a stream.
func classifyAPI(err *jetstream.APIError, size int) error {
	switch {
	case err.ErrorCode == messageTooLarge, err.ErrorCode == headersTooLarge:
		return fmt.Errorf("%w: a body of %d bytes: %w", relay.ErrRefused, size, err)
	case err.ErrorCode == accountFull, err.Code >= http.StatusInternalServerError, err.Code == http.StatusTooManyRequests, err.Code == http.StatusConflict:
		// An account or a stream that is full, a stream that has no leader, or another copy that is being stored.
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	default:
		return err
	}
}

// noAnswer says why no server answered a message: no stream has the subject, or the stream with the
// subject is away.
func (p *Publisher) noAnswer(ctx context.Context, subject string) error {
	stream, err := p.js.StreamNameBySubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: no stream has the subject", relay.ErrUnroutable)
	case err != nil:
		return fmt.Errorf("%w: nothing answers, and asking for the subject's stream failed: %w", relay.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: the stream %s does not answer", relay.ErrUnavailable, stream)
	}
}
