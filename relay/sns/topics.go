package relaysns

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/outboxkit/outbox-go/relay/internal/amazon"
)

// topics sends requests to topics of SNS.
type topics struct{ client *sns.Client }

// Target returns the ARN.
func (topics) Target(_ context.Context, arn string) (string, error) { return arn, nil }

// Send sends messages of a topic in a request.
func (t topics) Send(ctx context.Context, arn string, list []amazon.Entry) (answers []amazon.Answer, err error) {
	entries := make([]types.PublishBatchRequestEntry, len(list))
	for i := range list {
		entries[i] = entry(&list[i])
	}
	out, err := t.client.PublishBatch(ctx, &sns.PublishBatchInput{TopicArn: &arn, PublishBatchRequestEntries: entries})
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
func entry(m *amazon.Entry) types.PublishBatchRequestEntry {
	e := types.PublishBatchRequestEntry{
		Id: &m.ID, Message: &m.Body, MessageAttributes: make(map[string]types.MessageAttributeValue, len(m.Attributes)),
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
func (topics) CheckTopic(arn string) error {
	const (
		most = 256
		// parts of arn:partition:sns:region:account:name
		kind, region, account, last, parts = 2, 3, 4, 5, 6
	)
	part := strings.Split(arn, ":")
	if len(part) != parts || part[0] != "arn" || part[kind] != "sns" || part[region] == "" || part[account] == "" {
		return errors.New("is not the ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:orders")
	}
	return service.CheckName("topic", part[last], most)
}
