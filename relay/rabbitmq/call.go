package relayrabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxkit/outbox-go/relay"
)

// window is the most messages that wait for their confirms on a channel.
const window = 500

// call is a call of Publish. The indexes of its methods are indexes of messages.
type call struct {
	p           *Publisher
	messages    []relay.Message
	publishings []amqp.Publishing
	errs        []error
}

// fail stores an error for messages.
func (c *call) fail(indexes []int, err error) {
	for _, i := range indexes {
		c.errs[i] = err
	}
}

// publish publishes the messages of a window. The broker closes a channel because of a single
// message without naming the message. In this case the messages without a confirm are published one
// by one.
func (c *call) publish(ctx context.Context, indexes []int) {
	lost, end := c.send(ctx, indexes)
	if len(lost) < 2 || !end.ofMessage() {
		if len(lost) > 0 {
			c.fail(lost, end.err())
		}
		return
	}
	for n, i := range lost {
		c.publish(ctx, lost[n:n+1])
		if errors.Is(c.errs[i], relay.ErrUnavailable) {
			c.fail(lost[n:], c.errs[i])
			return
		}
	}
}

// send sends messages and waits for their confirms. lost are the messages without a confirm because
// the channel ended; end is why the channel ended.
func (c *call) send(ctx context.Context, indexes []int) (lost []int, end ended) {
	l, err := c.p.connect(ctx)
	if err != nil {
		c.fail(indexes, err)
		return nil, end
	}
	defer context.AfterFunc(ctx, l.kill)()
	alarm, err := l.next()
	if err != nil {
		c.fail(indexes, err)
		return nil, end
	}
	s, err := l.take()
	if err != nil {
		c.fail(indexes, err)
		return nil, end
	}
	sent, unsent := c.write(l, s, indexes)
	waiting := wait(sent, alarm.raised)
	over := len(unsent) > 0
	if over {
		end.reason = <-s.ended // soon, for the channel is closed
	} else {
		select {
		case end.reason = <-s.ended:
			over = true
		default:
		}
	}
	for _, m := range sent {
		switch {
		case m.confirm.Acked():
		case over:
			lost = append(lost, m.index)
		case waiting:
			c.errs[m.index] = alarm.err()
		default:
			c.errs[m.index] = fmt.Errorf("%w: it rejects the message (basic.nack): a queue is full, or has failed", relay.ErrUnavailable)
		}
	}
	c.collect(s)
	l.give(s, !waiting)
	return append(lost, unsent...), end
}

// sent is a message that waits for its confirm.
type sent struct {
	index   int
	confirm *amqp.DeferredConfirmation
}

// write sends messages, and returns the messages that it could not send because the channel had
// ended.
func (c *call) write(l *link, s *session, indexes []int) (list []sent, unsent []int) {
	for n, i := range indexes {
		if c.errs[i] = checkFrame(&c.publishings[i], l.conn.Config.FrameSize); c.errs[i] != nil {
			continue
		}
		confirm, err := s.PublishWithDeferredConfirm(c.p.cfg.Exchange, c.messages[i].Topic, true, false, c.publishings[i])
		if err != nil {
			return list, indexes[n:]
		}
		list = append(list, sent{i, confirm})
	}
	return list, nil
}

// wait waits until the broker has answered for all messages, or the channel has ended, or the
// broker takes no messages. In the last case wait reports that some messages still wait.
func wait(list []sent, raised <-chan struct{}) (waiting bool) {
	for _, m := range list {
		select {
		case <-m.confirm.Done():
		case <-raised:
			return true
		}
	}
	return false
}

// collect stores the errors of the messages that the broker returned.
func (c *call) collect(s *session) {
	for {
		select {
		case r, open := <-s.returns:
			if !open {
				return
			}
			for i, m := range c.messages {
				if m.ID == r.MessageId {
					c.errs[i] = returned(r)
				}
			}
		default:
			return
		}
	}
}
