package amazon

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/outboxkit/outbox-go/relay"
)

// requestsAtOnce is how many requests of a call run at a time. With four calls at a time, which is
// the relay's default, 20 requests run.
const requestsAtOnce = 5

// call is a call of Publish. The indexes of its methods are indexes of messages.
type call struct {
	client Client
	made   []Message
	errs   []error

	mu   sync.Mutex
	away map[string]error // by target: the first request that found the target away
}

// send sends messages of a target in a request. A request that was refused as a whole is sent again
// by halves, until the message to blame is alone. The service has stored no message of such a request.
func (c *call) send(ctx context.Context, target string, indexes []int) {
	if err := c.isAway(target); err != nil {
		c.fail(indexes, err)
		return
	}
	entries := make([]Entry, len(indexes))
	for n, i := range indexes {
		entries[n] = Entry{ID: strconv.Itoa(n), Message: &c.made[i]}
	}
	answers, err := c.client.Send(ctx, target, entries)
	if err == nil {
		c.answered(indexes, answers)
		return
	}
	err = Classify(err)
	if errors.Is(err, relay.ErrRefused) && len(indexes) > 1 {
		c.send(ctx, target, indexes[:len(indexes)/2])
		c.send(ctx, target, indexes[len(indexes)/2:])
		return
	}
	c.fail(indexes, err)
	if errors.Is(err, relay.ErrUnavailable) {
		c.mu.Lock()
		c.away[target] = err
		c.mu.Unlock()
	}
}

// answered stores the answer for each message of a request.
func (c *call) answered(indexes []int, answers []Answer) {
	errs := make(map[string]error, len(answers))
	for _, a := range answers {
		errs[a.ID] = a.err()
	}
	for n, i := range indexes {
		err, has := errs[strconv.Itoa(n)]
		if !has {
			err = errNoAnswer
		}
		c.errs[i] = err
	}
}

func (c *call) isAway(target string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away[target]
}

func (c *call) fail(indexes []int, err error) {
	for _, i := range indexes {
		c.errs[i] = err
	}
}
