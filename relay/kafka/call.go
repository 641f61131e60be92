package relaykafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxkit/outbox-go/relay"
)

// The binding of CloudEvents to Kafka.
const (
	attributePrefix = "ce_"
	contentType     = "content-type"
)

// HeaderMessageID is the header with the id of the message ([relay.Message]), for the inbox
// of a consumer.
const HeaderMessageID = "message-id"

// call is a call of Publish. The indexes of its methods are indexes of messages.
type call struct {
	p        *Publisher
	messages []relay.Message
	errs     []error
	away     error // the first ErrUnavailable
}

// record is the record that the client sends for a message. The timestamp is the time of sending,
// because brokers delete by timestamp: an event that waited for long would be gone too soon.
func record(m *relay.Message) *kgo.Record {
	headers := m.HeaderList(attributePrefix, contentType)
	r := &kgo.Record{Topic: m.Topic, Value: m.Body, Headers: make([]kgo.RecordHeader, 0, len(headers)+1)}
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	for _, h := range headers {
		if h.Key != HeaderMessageID {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: []byte(h.Value)})
		}
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderMessageID, Value: []byte(m.ID)})
	return r
}

// publish publishes messages. The messages of a batch that was refused as a whole are published
// again by halves, until the messages to blame are alone. No message of such a batch was stored.
func (c *call) publish(ctx context.Context, indexes []int) {
	switch {
	case len(indexes) == 0:
		return
	case c.away != nil:
		c.fail(indexes, c.away)
		return
	}
	aborted := c.attempt(ctx, indexes)
	var refused []int
	for _, i := range indexes {
		if ofBatch(c.errs[i]) {
			refused = append(refused, i)
		}
	}
	c.publish(ctx, aborted)
	if len(refused) > 1 {
		c.publish(ctx, refused[:len(refused)/2])
		c.publish(ctx, refused[len(refused)/2:])
	}
}

// attempt sends messages once, and returns the messages of an aborted transaction that had no
// error.
func (c *call) attempt(ctx context.Context, indexes []int) (aborted []int) {
	client, err := c.p.get()
	if err != nil {
		c.unavailable(indexes, err)
		return nil
	}
	defer context.AfterFunc(ctx, func() { c.p.drop(client) })()
	if c.p.transactional {
		aborted, err = c.transact(ctx, client, indexes)
	} else {
		err = c.send(ctx, client, indexes)
	}
	if err == nil {
		return aborted
	}
	c.p.drop(client)
	if c.p.transactional {
		c.unavailable(indexes, err) // nothing is committed, as far as the client knows
		return nil
	}
	c.away = err
	return nil
}

// send sends messages and waits for their acknowledgements. The result is the first error that says
// that a broker is not available.
func (c *call) send(ctx context.Context, client *kgo.Client, indexes []int) (away error) {
	records, at := make([]*kgo.Record, len(indexes)), make(map[*kgo.Record]int, len(indexes))
	for n, i := range indexes {
		records[n] = record(&c.messages[i])
		at[records[n]] = i
	}
	for _, result := range client.ProduceSync(ctx, records...) {
		i := at[result.Record]
		c.errs[i] = nil
		if result.Err == nil {
			continue
		}
		if ctx.Err() != nil && errors.Is(result.Err, kgo.ErrClientClosed) {
			result.Err = fmt.Errorf("no acknowledgement: %w", ctx.Err())
		}
		c.errs[i] = classify(result.Err)
		if away == nil && errors.Is(c.errs[i], relay.ErrUnavailable) {
			away = c.errs[i]
		}
	}
	return away
}

// transact sends messages in a transaction, which is aborted when a message fails.
func (c *call) transact(ctx context.Context, client *kgo.Client, indexes []int) (aborted []int, err error) {
	if err := client.BeginTransaction(); err != nil {
		return nil, classify(err)
	}
	if err := c.send(ctx, client, indexes); err != nil {
		return nil, err
	}
	for _, i := range indexes {
		if c.errs[i] == nil {
			aborted = append(aborted, i)
		}
	}
	end := kgo.TryAbort
	if len(aborted) == len(indexes) {
		aborted, end = nil, kgo.TryCommit
	}
	if err := client.EndTransaction(ctx, end); err != nil {
		return nil, classify(err)
	}
	return aborted, nil
}

func (c *call) unavailable(indexes []int, err error) {
	c.away = err
	c.fail(indexes, err)
}

func (c *call) fail(indexes []int, err error) {
	for _, i := range indexes {
		c.errs[i] = err
	}
}
