package amazon_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/internal/amazon"
)

// fault is an error of the SDK.
type fault struct{ code, message string }

func (f *fault) Error() string        { return f.code }
func (f *fault) ErrorCode() string    { return f.code }
func (f *fault) ErrorMessage() string { return f.message }

// client answers requests with answer, and keeps their bodies by topic.
type client struct {
	answer func(list []amazon.Entry) ([]amazon.Answer, error)

	mu       sync.Mutex
	requests map[string][][]string
}

func (c *client) CheckTopic(topic string) error {
	if topic == "" {
		return errors.New("is empty")
	}
	return nil
}

func (c *client) Target(_ context.Context, topic string) (string, error) {
	if topic == "missing" {
		return "", amazon.Classify(&fault{"NotFound", "no such topic"})
	}
	return "to " + topic, nil
}

func (c *client) Send(_ context.Context, target string, list []amazon.Entry) (answers []amazon.Answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var bodies []string
	for _, e := range list {
		bodies = append(bodies, e.Body)
		answers = append(answers, amazon.Answer{ID: e.ID})
	}
	c.requests[target] = append(c.requests[target], bodies)
	if c.answer != nil {
		return c.answer(list)
	}
	return answers, nil
}

func publish(answer func(list []amazon.Entry) ([]amazon.Answer, error), messages ...relay.Message) (*client, []error) {
	c := &client{answer: answer, requests: map[string][][]string{}}
	p := amazon.NewPublisher(amazon.Service{Name: "SQS", MaxBytes: 1000, RequestBytes: 500}, c)
	return c, p.Publish(context.Background(), messages)
}

func messages(topic string, bodies ...string) (list []relay.Message) {
	for i, body := range bodies {
		list = append(list, relay.Message{Topic: topic, ID: fmt.Sprint(i), Body: []byte(body)})
	}
	return list
}

func TestRequestsAreWithinTheLimits(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 600)
	c, errs := publish(nil, messages("a", "1", "2", large, "3", strings.Repeat("x", 1001), "")...)
	require.Len(t, errs, 6)
	require.NoError(t, errors.Join(errs[:4]...))
	require.ErrorIs(t, errs[4], relay.ErrRefused)
	require.ErrorIs(t, errs[5], relay.ErrRefused)
	require.ElementsMatch(t, [][]string{{"1", "2"}, {large}, {"3"}}, c.requests["to a"])
}

func TestTheMessageToBlameFailsAlone(t *testing.T) {
	t.Parallel()
	c, errs := publish(func(list []amazon.Entry) (answers []amazon.Answer, err error) {
		for _, e := range list {
			if e.Body == "bad" {
				return nil, &fault{"BatchRequestTooLong", "too long"}
			}
			answers = append(answers, amazon.Answer{ID: e.ID})
		}
		return answers, nil
	}, messages("a", "1", "2", "bad", "3")...)
	require.ErrorIs(t, errs[2], relay.ErrRefused)
	require.NoError(t, errors.Join(slices.Delete(errs, 2, 3)...))
	require.Equal(t, [][]string{{"1", "2", "bad", "3"}, {"1", "2"}, {"bad", "3"}, {"bad"}, {"3"}}, c.requests["to a"])
}

func TestATopicThatIsAwayHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	away := messages("away", slices.Repeat([]string{"1"}, 500)...)
	list := append(append(away, messages("missing", "1")...), append(messages("", "1"), messages("here", "1")...)...)
	c, errs := publish(func(list []amazon.Entry) ([]amazon.Answer, error) {
		if len(list) > 1 {
			return nil, &fault{"ServiceUnavailable", "later"}
		}
		return []amazon.Answer{{ID: list[0].ID}}, nil
	}, list...)
	for _, err := range errs[:500] {
		require.ErrorIs(t, err, relay.ErrUnavailable)
	}
	require.ErrorIs(t, errs[500], relay.ErrUnroutable)
	require.ErrorIs(t, errs[501], relay.ErrRefused)
	require.NoError(t, errs[502])
	require.LessOrEqual(t, len(c.requests["to away"]), 5, "the requests that ran at a time")
}

func TestAMessageWithoutAnAnswerIsNotPublished(t *testing.T) {
	t.Parallel()
	_, errs := publish(func([]amazon.Entry) ([]amazon.Answer, error) {
		return []amazon.Answer{{ID: "0"}, {ID: "1", Failed: true, Code: "InternalError"}, {ID: "2", Failed: true, Code: "InvalidParameter", SenderFault: true}}, nil
	}, messages("a", "1", "2", "3", "4")...)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], relay.ErrUnavailable)
	require.ErrorIs(t, errs[2], relay.ErrRefused)
	require.ErrorIs(t, errs[3], relay.ErrUnavailable)
}
