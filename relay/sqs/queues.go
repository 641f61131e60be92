package relaysqs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/outboxkit/outbox-go/relay/internal/amazon"
)

// queues sends requests to queues of SQS.
type queues struct {
	client *sqs.Client

	mu   sync.Mutex
	urls map[string]string // by the name of the queue
}

// Target returns the URL of a queue, and asks SQS for it the first time.
func (q *queues) Target(ctx context.Context, queue string) (string, error) {
	if isURL(queue) {
		return queue, nil
	}
	q.mu.Lock()
	known := q.urls[queue]
	q.mu.Unlock()
	if known != "" {
		return known, nil
	}
	out, err := q.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return "", fmt.Errorf("asking for the URL of the queue: %w", amazon.Classify(err))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.urls[queue] = aws.ToString(out.QueueUrl)
	return q.urls[queue], nil
}

// Send sends messages of a queue in a request.
func (q *queues) Send(ctx context.Context, url string, list []amazon.Entry) (answers []amazon.Answer, err error) {
	entries := make([]types.SendMessageBatchRequestEntry, len(list))
	for i := range list {
		entries[i] = entry(&list[i])
	}
	out, err := q.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
	if err != nil {
		return nil, err
	}
	for _, stored := range out.Successful {
		answers = append(answers, amazon.Answer{ID: aws.ToString(stored.Id)})
	}
	for _, f := range out.Failed {
		answers = append(answers, amazon.Answer{
			ID: aws.ToString(f.Id), Failed: true, Code: aws.ToString(f.Code), Message: aws.ToString(f.Message), SenderFault: f.SenderFault,
		})
	}
	return answers, nil
}

// entry is the entry of a request for a message.
func entry(m *amazon.Entry) types.SendMessageBatchRequestEntry {
	e := types.SendMessageBatchRequestEntry{
		Id: &m.ID, MessageBody: &m.Body, MessageAttributes: make(map[string]types.MessageAttributeValue, len(m.Attributes)),
	}
	for i := range m.Attributes {
		a := &m.Attributes[i]
		e.MessageAttributes[a.Key] = types.MessageAttributeValue{DataType: aws.String(amazon.DataType), StringValue: &a.Value}
	}
	if m.Group != "" {
		e.MessageGroupId, e.MessageDeduplicationId = &m.Group, &m.Deduplication
	}
	return e
}

// CheckTopic reports the problem with the topic of a route.
func (*queues) CheckTopic(topic string) error {
	if isURL(topic) {
		if u, err := url.Parse(topic); err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" {
			return errors.New("is not the URL of a queue, such as https://sqs.eu-west-1.amazonaws.com/123456789012/orders")
		}
		return nil
	}
	const most = 80
	return service.CheckName("queue", topic, most)
}

func isURL(topic string) bool {
	return strings.HasPrefix(topic, "https://") || strings.HasPrefix(topic, "http://")
}
