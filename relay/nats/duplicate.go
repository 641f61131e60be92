package relaynats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxkit/outbox-go/relay"
)

// duplicate is an acknowledgement of a message that the stream did not store, because the stream
// has a message with the same id.
type duplicate struct {
	at  int // the message's place in the call
	ack *jetstream.PubAck
}

const (
	// verifyAtOnce is how many messages of a call are compared at the same time.
	verifyAtOnce = 32
	// verifyTimeout is how long the comparison may take: a request that the account is not allowed
	// to make gets no answer.
	verifyTimeout = 5 * time.Second
)

// errDropped is the class of errors about messages that the stream dropped.
var errDropped = errors.New("the stream dropped the message")

// verify compares the messages that the stream dropped with the stored messages. A stored message
// that is an earlier attempt of the same message is the purpose of the id. Any other message means
// that the stream has lost this message, and the result is an error.
func (p *Publisher) verify(ctx context.Context, c *call, dropped []duplicate, sent []*nats.Msg, errs []error) {
	if len(dropped) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	streams := streamsByName{p: p, found: map[string]foundStream{}}
	var wg sync.WaitGroup
	turns := make(chan struct{}, verifyAtOnce)
	for _, d := range dropped {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			err := p.compare(ctx, &streams, d.ack, sent[d.at])
			if err != nil && !errors.Is(err, errDropped) {
				err = c.unverified(d.ack, err)
			}
			errs[d.at] = err
		})
	}
	wg.Wait()
}

// compare returns nil if the stored message is an earlier attempt of m.
func (p *Publisher) compare(ctx context.Context, streams *streamsByName, ack *jetstream.PubAck, m *nats.Msg) error {
	stream, err := streams.get(ctx, ack.Stream)
	if err != nil {
		return err
	}
	stored, err := stream.GetMsg(ctx, ack.Sequence)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil // consumed or deleted since; the id has the topic and the source
	case err != nil:
		return err
	case !sameContent(stored, m):
		return foreign(ack, m)
	case stored.Subject == m.Subject || stream.CachedInfo().Config.SubjectTransform != nil:
		return nil
	}
	// The account may map the subject to the stored subject. In this case no stream has m's
	// subject.
	own, err := p.js.StreamNameBySubject(ctx, m.Subject)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err != nil:
		return err
	case own == ack.Stream:
		return foreign(ack, m)
	default:
		return nil
	}
}

// sameContent reports whether a stored message has the body and the attributes of m. Other headers
// may differ between two attempts, because Route.HeadersOf makes them.
func sameContent(stored *jetstream.RawStreamMsg, m *nats.Msg) bool {
	if !bytes.Equal(stored.Data, m.Data) {
		return false
	}
	for key, values := range m.Header {
		if strings.HasPrefix(key, attributePrefix) && !slices.Equal(stored.Header[key], values) {
			return false
		}
	}
	return true
}

func foreign(ack *jetstream.PubAck, m *nats.Msg) error {
	return fmt.Errorf("%w: %s has another message with the id %.300q at sequence %d; give each service a Source of its own, "+
		"and choose event ids that are unique within it", errDropped, ack.Stream, m.Header.Get(jetstream.MsgIDHeader), ack.Sequence)
}

// unverified is the error of a comparison that failed.
func (c *call) unverified(ack *jetstream.PubAck, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for subject, denied := range c.denied {
		if strings.HasPrefix(subject, "$JS.API.") {
			return fmt.Errorf("%w, and the account may not read the one that %s has at sequence %d instead; allow it to publish to %s: %w",
				errDropped, ack.Stream, ack.Sequence, subject, denied)
		}
	}
	return fmt.Errorf("%w: reading the message that %s has at sequence %d in place of this one: %w", relay.ErrUnavailable, ack.Stream, ack.Sequence, err)
}

// streamsByName asks for each stream once.
type streamsByName struct {
	p     *Publisher
	mu    sync.Mutex
	found map[string]foundStream
}

type foundStream struct {
	jetstream.Stream
	err error
}

func (s *streamsByName) get(ctx context.Context, name string) (jetstream.Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, known := s.found[name]
	if !known {
		f.Stream, f.err = s.p.js.Stream(ctx, name)
		s.found[name] = f
	}
	return f.Stream, f.err
}
