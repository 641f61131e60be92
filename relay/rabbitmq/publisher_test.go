package relayrabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relayrabbitmq "github.com/outboxkit/outbox-go/relay/rabbitmq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// message has its id as its key.
func message(topic, id string) relay.Message { return relaytest.Message(topic, id, id) }

func publisher(t testing.TB, cfg relayrabbitmq.Config) *relayrabbitmq.Publisher {
	t.Helper()
	p, err := relayrabbitmq.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// ids are the different messages of a queue.
func ids(list []amqp.Delivery) map[string]int {
	all := map[string]int{}
	for _, d := range list {
		all[d.MessageId]++
	}
	return all
}

func TestPublisher(t *testing.T) {
	s := start(t)
	for name, test := range map[string]func(t *testing.T, s *server){
		"a confirmed message is in the queue":                     confirmed,
		"a message that leads to no queue is unroutable":          unroutable,
		"without its exchange all messages are unroutable":        noExchange,
		"a message that is too large is refused, and no other":    tooLarge,
		"a topic without permission fails, and no other":          topicRefused,
		"an exchange without permission is an outage":             exchangeRefused,
		"a wrong password is an outage, and in no error":          wrongPassword,
		"a full queue is an outage":                               fullQueue,
		"what the protocol cannot carry is refused":               invalid,
		"headers of events are no instructions":                   instructions,
		"no memory is an outage at once":                          blocked,
		"a broker that does not answer is an outage":              frozen,
		"calls run side by side":                                  sideBySide,
		"credentials of the options are used for each connection": sasl,
		"after Close nothing is published":                        closed,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

func confirmed(t *testing.T, s *server) {
	s.declare(t, "confirmed", "confirmed", "orders.#", nil)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "confirmed"})
	require.Nil(t, p.Publish(t.Context(), []relay.Message{message("orders.placed", "1"), message("orders.paid", "2")}))
	list := s.stored(t, "confirmed")
	require.Len(t, list, 2)
	d := list[0]
	require.Equal(t, []string{"1", "application/json", "orders.placed"}, []string{d.MessageId, d.ContentType, d.RoutingKey})
	require.Equal(t, amqp.Persistent, d.DeliveryMode)
	require.True(t, d.Timestamp.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
	require.Equal(t, amqp.Table{"cloudEvents_id": "1", "traceparent": "00-1"}, d.Headers)
	require.NoError(t, p.Ping(t.Context()))
}

func unroutable(t *testing.T, s *server) {
	s.declare(t, "unroutable", "unroutable", "known", nil)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "unroutable"})
	messages := make([]relay.Message, 1200) // more than a window
	for i := range messages {
		messages[i] = message("unknown", fmt.Sprint(i))
	}
	messages[1100].Topic = "known"
	for i, err := range relaytest.Publish(t, p, messages...) {
		if i == 1100 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, relay.ErrUnroutable)
		require.ErrorContains(t, err, "NO_ROUTE (312)")
	}
	require.Equal(t, map[string]int{"1100": 1}, ids(s.stored(t, "unroutable")))
}

func noExchange(t *testing.T, s *server) {
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "later"})
	for _, err := range relaytest.Publish(t, p, message("a", "1"), message("a", "2")) {
		require.ErrorIs(t, err, relay.ErrUnroutable)
		require.ErrorContains(t, err, "no exchange 'later'")
	}
	s.declare(t, "later", "later", "#", nil)
	require.Equal(t, []error{nil, nil}, relaytest.Publish(t, p, message("a", "1"), message("a", "2")))
	require.Equal(t, map[string]int{"1": 1, "2": 1}, ids(s.stored(t, "later")))
}

func tooLarge(t *testing.T, s *server) {
	s.declare(t, "large", "large", "#", nil)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "large"})
	messages := make([]relay.Message, 20)
	for i := range messages {
		messages[i] = message("a", fmt.Sprint(i))
	}
	for _, i := range []int{5, 12} {
		messages[i].Body = []byte(strings.Repeat("x", maxMessage+i))
	}
	for i, err := range relaytest.Publish(t, p, messages...) {
		if i != 5 && i != 12 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, relay.ErrRefused)
		require.ErrorContains(t, err, fmt.Sprintf("message size %d is larger than configured max size 100000", maxMessage+i))
	}
	require.Len(t, ids(s.stored(t, "large")), 18)
}

func topicRefused(t *testing.T, s *server) {
	s.declare(t, "limited", "limited", "#", nil)
	s.ctl(t, "add_user", "clerk", "clerk")
	s.ctl(t, "set_permissions", "clerk", "", ".*", "")
	s.ctl(t, "set_topic_permissions", "clerk", "limited", "^open", "")
	p := publisher(t, relayrabbitmq.Config{URLs: []string{"amqp://clerk:clerk@" + s.addr + "/"}, Exchange: "limited"})
	errs := relaytest.Publish(t, p, message("open", "1"), message("shut", "2"), message("open", "3"))
	require.NoError(t, errs[0])
	require.NoError(t, errs[2])
	require.ErrorContains(t, errs[1], "ACCESS_REFUSED")
	for _, class := range []error{relay.ErrUnavailable, relay.ErrRefused, relay.ErrUnroutable} {
		require.NotErrorIs(t, errs[1], class, "it is a failed delivery")
	}
}

func exchangeRefused(t *testing.T, s *server) {
	s.declare(t, "shut", "shut", "#", nil)
	s.ctl(t, "add_user", "reader", "reader")
	s.ctl(t, "set_permissions", "reader", "", "", ".*")
	p := publisher(t, relayrabbitmq.Config{URLs: []string{"amqp://reader:reader@" + s.addr + "/"}, Exchange: "shut"})
	for _, err := range relaytest.Publish(t, p, message("a", "1"), message("a", "2")) {
		require.ErrorIs(t, err, relay.ErrUnavailable)
		require.ErrorContains(t, err, "ACCESS_REFUSED")
	}
}

func wrongPassword(t *testing.T, s *server) {
	p := publisher(t, relayrabbitmq.Config{URLs: []string{"amqp://guest:" + relaytest.Secret + "@" + s.addr + "/"}})
	for _, err := range []error{relaytest.Publish(t, p, message("a", "1"))[0], p.Ping(t.Context())} {
		require.ErrorIs(t, err, relay.ErrUnavailable)
		require.ErrorContains(t, err, "403")
		require.NotContains(t, err.Error(), relaytest.Secret)
	}
}

func fullQueue(t *testing.T, s *server) {
	s.declare(t, "full", "full", "#", amqp.Table{amqp.QueueMaxLenArg: int32(1), amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish})
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "full"})
	require.NoError(t, relaytest.Publish(t, p, message("a", "1"))[0])
	relaytest.Eventually(t, "the queue is full", func() bool {
		err := relaytest.Publish(t, p, message("a", "2"))[0]
		if err != nil {
			require.ErrorIs(t, err, relay.ErrUnavailable)
			require.ErrorContains(t, err, "basic.nack")
		}
		return err != nil
	})
}

func invalid(t *testing.T, s *server) {
	s.declare(t, "invalid", "invalid", "#", nil)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "invalid"})
	long, key, many := message(strings.Repeat("t", 256), "1"), message("a", "2"), message("a", "3")
	key.Headers = map[string]string{strings.Repeat("k", 256): "v"}
	many.Headers = map[string]string{"h": strings.Repeat("v", 131_000)}
	broken := message("\xff", "4")
	fits := message("a", "5")
	fits.Headers = map[string]string{"h": strings.Repeat("v", 130_000)}
	errs := relaytest.Publish(t, p, long, key, many, broken, fits)
	for i, want := range []string{"the topic has 256 bytes", "has 256 bytes", "the headers take 131", "(1 bytes) is not valid UTF-8"} {
		require.ErrorIs(t, errs[i], relay.ErrRefused)
		require.ErrorContains(t, errs[i], want)
	}
	require.NoError(t, errs[4])
	require.Equal(t, map[string]int{"5": 1}, ids(s.stored(t, "invalid")))
}

// A header of an event may come from a request. The broker refuses a text in CC and BCC, and
// with it the channel; a list would lead the message to other queues.
func instructions(t *testing.T, s *server) {
	s.declare(t, "instructions", "instructions", "#", nil)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "instructions"})
	m := message("a", "1")
	m.Headers = map[string]string{
		"CC": "b", "BCC": "c", "x-death": "d", "x-first-death-queue": "e", "x-last-death-reason": "f",
		"cc": "g", "x-request-id": "h",
	}
	require.Nil(t, p.Publish(t.Context(), []relay.Message{m}))
	list := s.stored(t, "instructions")
	require.Len(t, list, 1)
	require.Equal(t, amqp.Table{"cloudEvents_id": "1", "cc": "g", "x-request-id": "h"}, list[0].Headers)
}

func blocked(t *testing.T, s *server) {
	s.declare(t, "blocked", "blocked", "#", nil)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "blocked"})
	require.NoError(t, relaytest.Publish(t, p, message("a", "0"))[0])
	s.ctl(t, "set_vm_memory_high_watermark", "absolute", "1MB")
	on := true
	defer func() {
		if on {
			s.ctl(t, "set_vm_memory_high_watermark", "0.4")
		}
	}()
	began := time.Now()
	relaytest.Eventually(t, "the broker takes no messages", func() bool { return relaytest.Publish(t, p, message("a", "1"))[0] != nil })
	for range 20 {
		err := relaytest.Publish(t, p, message("a", "1"))[0]
		require.ErrorIs(t, err, relay.ErrUnavailable)
		require.ErrorContains(t, err, "it takes no messages: low on memory")
	}
	require.Less(t, time.Since(began), 25*time.Second, "a call does not wait for its timeout")
	require.ErrorIs(t, p.Ping(t.Context()), relay.ErrUnavailable)
	s.ctl(t, "set_vm_memory_high_watermark", "0.4")
	on = false
	relaytest.Eventually(t, "the broker takes messages again", func() bool { return relaytest.Publish(t, p, message("a", "2"))[0] == nil })
	require.NoError(t, p.Ping(t.Context()))
	copies := ids(s.stored(t, "blocked"))
	require.Len(t, copies, 3)
	require.LessOrEqual(t, copies["1"], 2, "nothing is sent while the alarm is on")
}

func frozen(t *testing.T, s *server) {
	s.declare(t, "frozen", "frozen", "#", nil)
	proxy := relaytest.NewProxy(t, s.addr)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{"amqp://guest:guest@" + proxy.Addr + "/"}, Exchange: "frozen"})
	require.NoError(t, relaytest.Publish(t, p, message("a", "0"))[0])
	thaw := proxy.BeginFreeze()
	large := message("a", "1")
	large.Body = make([]byte, 90_000)
	messages := make([]relay.Message, 300) // more than the buffers of the sockets hold
	for i := range messages {
		large.ID = fmt.Sprint(i + 1)
		messages[i] = large
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	for _, err := range p.Publish(ctx, messages) { // ends with its context
		require.ErrorIs(t, err, relay.ErrUnavailable)
	}
	short, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	require.ErrorIs(t, p.Publish(short, messages[:1])[0], relay.ErrUnavailable, "connecting ends with its context, too")
	thaw()
	relaytest.Eventually(t, "it connects again", func() bool { return relaytest.Publish(t, p, message("a", "again"))[0] == nil })
}

func TestTopicsThatAMQPCannotHave(t *testing.T) {
	p := publisher(t, relayrabbitmq.Config{URLs: []string{"amqp://127.0.0.1:1/"}})
	require.NoError(t, p.CheckTopic(strings.Repeat("t", 255)))
	require.ErrorContains(t, p.CheckTopic(strings.Repeat("t", 256)), "has 256 bytes")
	require.ErrorContains(t, p.CheckTopic("\xff"), "is not valid UTF-8")
}

func sideBySide(t *testing.T, s *server) {
	s.declare(t, "side", "side", "#", nil)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{"amqp://guest:guest@127.0.0.1:1/", s.url()}, Exchange: "side"})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for n := range 20 {
				if errs := p.Publish(t.Context(), []relay.Message{message("a", fmt.Sprintf("%d-%d", i, n))}); errs != nil {
					t.Error(errs)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, ids(s.stored(t, "side")), 400)
}

func sasl(t *testing.T, s *server) {
	s.declare(t, "sasl", "sasl", "#", nil)
	proxy := relaytest.NewProxy(t, s.addr)
	p := publisher(t, relayrabbitmq.Config{
		URLs: []string{"amqp://nobody:nothing@" + proxy.Addr + "/"}, Exchange: "sasl",
		AMQP: amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}},
	})
	for i := range 3 {
		relaytest.Eventually(t, "it publishes", func() bool { return relaytest.Publish(t, p, message("a", fmt.Sprint(i)))[0] == nil })
		proxy.Cut(time.Millisecond)
	}
	require.Len(t, ids(s.stored(t, "sasl")), 3)
}

func closed(t *testing.T, s *server) {
	s.declare(t, "closed", "closed", "#", nil)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "closed"})
	require.NoError(t, relaytest.Publish(t, p, message("a", "1"))[0])
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()), "again")
	err := relaytest.Publish(t, p, message("a", "2"))[0]
	require.ErrorIs(t, err, relay.ErrUnavailable)
	require.ErrorContains(t, err, "the publisher is closed")
	require.Error(t, p.Ping(t.Context()))
}

func TestAnInvalidConfigIsReportedWhole(t *testing.T) {
	_, err := relayrabbitmq.New(relayrabbitmq.Config{
		URLs: []string{"amqp://guest:" + relaytest.Secret + "?@host/", "http://" + relaytest.Secret}, Exchange: strings.Repeat("x", 256),
		AMQP: amqp.Config{Recovery: &amqp.Recovery{}},
	})
	for _, want := range []string{
		"relayrabbitmq.Config.URLs[0] (", "relayrabbitmq.Config.URLs[1] (",
		"relayrabbitmq.Config.Exchange has 256 bytes", "relayrabbitmq.Config.AMQP.Recovery is set",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), relaytest.Secret)
	_, err = relayrabbitmq.New(relayrabbitmq.Config{})
	require.ErrorContains(t, err, "relayrabbitmq.Config.URLs is empty")
}
