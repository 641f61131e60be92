package relaytest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/outboxkit/outbox-go/relay"
)

// Fake is a publisher that keeps the messages, for the tests of readers of a log, in which the broker is not the
// subject. The zero value takes all messages. A Fake is safe for concurrent use.
type Fake struct {
	mu      sync.Mutex
	got     []relay.Message
	away    bool
	refuse  string // an event
	refused int
}

var _ relay.Publisher = (*Fake)(nil)

// Publish implements [relay.Publisher].
func (f *Fake) Publish(_ context.Context, messages []relay.Message) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		f.refused++
		return slices.Repeat([]error{fmt.Errorf("%w: connection refused", relay.ErrUnavailable)}, len(messages))
	}
	errs := make([]error, len(messages))
	for i, m := range messages {
		if eventOf(m) == f.refuse {
			f.refused++
			errs[i] = fmt.Errorf("%w: too large", relay.ErrRefused)
			continue
		}
		f.got = append(f.got, m)
	}
	return errs
}

// eventOf is the event id at the end of a message's id.
func eventOf(m relay.Message) string { return m.ID[strings.LastIndexByte(m.ID, ':')+1:] }

// Ping implements [relay.Publisher].
func (*Fake) Ping(context.Context) error { return nil }

// Close implements [relay.Publisher].
func (*Fake) Close(context.Context) error { return nil }

// SetAway makes the broker unavailable, or available again.
func (f *Fake) SetAway(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// Refuse makes the broker refuse the message of an event; an empty id: it refuses no message.
func (f *Fake) Refuse(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = id
}

// Refused is how many calls failed because the broker was away, and how many messages it refused.
func (f *Fake) Refused() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// IDs are the ids of the events of the messages, in their order.
func (f *Fake) IDs() (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.got {
		ids = append(ids, eventOf(m))
	}
	return ids
}

// Message is the first message of an event; the zero message if there is no such message.
func (f *Fake) Message(id string) relay.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.IndexFunc(f.got, func(m relay.Message) bool { return eventOf(m) == id }); i >= 0 {
		return f.got[i]
	}
	return relay.Message{}
}
