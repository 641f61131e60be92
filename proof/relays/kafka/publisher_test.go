package relaykafka_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relaykafka "github.com/outboxkit/outbox-go/relay/kafka"
)

func TestAnAcknowledgedMessageIsInTheTopic(t *testing.T) {
	c := start(t, kfake.SeedTopics(3, "orders"))
	p := publisher(t, c)
	before := time.Now().Add(-time.Minute)
	require.Nil(t, p.Publish(t.Context(), []relay.Message{relaytest.Message("orders", "o1", "1"), relaytest.Message("orders", "", "2")}))
	list := c.stored(t, "orders")
	require.Equal(t, map[string]int{"1": 1, "2": 1}, ids(list))
	for _, r := range list {
		require.Equal(t, []kgo.RecordHeader{
			{Key: "ce_id", Value: []byte(header(r, "ce_id"))},
			{Key: "content-type", Value: []byte("application/json")},
			{Key: "traceparent", Value: []byte("00-1")},
			{Key: relaykafka.HeaderMessageID, Value: []byte(header(r, "ce_id"))},
		}, r.Headers)
		require.True(t, r.Timestamp.After(before), "it is not that of the event")
		if header(r, "ce_id") == "1" {
			require.Equal(t, "o1", string(r.Key))
		} else {
			require.Nil(t, r.Key)
		}
	}
	require.NoError(t, p.Ping(t.Context()))
}

// limitTopic sets the most bytes of a batch of a topic.
func limitTopic(t *testing.T, c *cluster, topic, limit string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addr))
	require.NoError(t, err)
	defer client.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "max.message.bytes", &limit
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(t.Context(), client)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.Resources[0].ErrorCode))
}

func TestAMessageThatIsTooLargeIsRefusedAndNoOther(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{"idempotent": nil, "transactional": {kgo.TransactionalID("shop-1")}} {
		t.Run(name, func(t *testing.T) {
			c := start(t, kfake.SeedTopics(1, "small"))
			limitTopic(t, c, "small", "20000")
			p := publisher(t, c, append(opts, kgo.ProducerBatchCompression(kgo.NoCompression()))...)
			messages := make([]relay.Message, 300) // a batch of them is too large, too
			for i := range messages {
				messages[i] = relaytest.Message("small", fmt.Sprint(i), fmt.Sprint(i))
			}
			messages[7].Body = []byte(strings.Repeat("x", 30_000))      // the broker refuses it
			messages[200].Body = []byte(strings.Repeat("x", 2_000_000)) // the client refuses it
			for i, err := range relaytest.Publish(t, p, messages...) {
				if i != 7 && i != 200 {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, relay.ErrRefused)
				require.ErrorContains(t, err, "MESSAGE_TOO_LARGE")
			}
			list := c.stored(t, "small", kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			require.Len(t, list, 298, "each once")
			require.Len(t, ids(list), 298)
		})
	}
}

func TestATopicThatDoesNotExistIsUnroutable(t *testing.T) {
	c := start(t, kfake.SeedTopics(1, "known"))
	p := publisher(t, c)
	for range 3 { // the client asks more seldom after the first call
		began := time.Now()
		errs := relaytest.Publish(t, p, relaytest.Message("unknown", "a", "1"), relaytest.Message("known", "a", "2"), relaytest.Message("a b", "a", "3"))
		require.Less(t, time.Since(began), 4*time.Second, "the whole call waits for a topic that is missing")
		require.ErrorIs(t, errs[0], relay.ErrUnroutable)
		require.ErrorContains(t, errs[0], "UNKNOWN_TOPIC_OR_PARTITION")
		require.NoError(t, errs[1])
		require.ErrorIs(t, errs[2], relay.ErrRefused)
		require.ErrorContains(t, errs[2], `the topic has a ' '`)
		t.Logf("%s", time.Since(began))
	}
}

func TestTheClientsOptionsComeAfterThePublishers(t *testing.T) {
	c := start(t)
	p := publisher(t, c, kgo.UnknownTopicRetries(-1))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.ErrorIs(t, p.Publish(ctx, []relay.Message{relaytest.Message("unknown", "a", "1")})[0], relay.ErrUnavailable, "it asks until its time is up")
}

func TestWhatTheUserMayNotDo(t *testing.T) {
	c := start(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "open", "shut"), kfake.Superuser("PLAIN", "root", "root"),
		kfake.User("PLAIN", "clerk", "clerk",
			kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "open", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationAll, Allow: true},
			kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "shut", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true},
			kfake.ACL{Resource: kmsg.ACLResourceTypeCluster, Name: "kafka-cluster", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationIdempotentWrite, Allow: true}))
	as := func(user, pass string) kgo.Opt {
		return kgo.SASL(plain.Auth{User: user, Pass: pass}.AsMechanism())
	}
	p := publisher(t, c, as("clerk", "clerk"))
	errs := relaytest.Publish(t, p, relaytest.Message("open", "a", "1"), relaytest.Message("shut", "a", "2"))
	require.NoError(t, errs[0])
	require.ErrorContains(t, errs[1], "TOPIC_AUTHORIZATION_FAILED")
	for _, class := range []error{relay.ErrUnavailable, relay.ErrRefused, relay.ErrUnroutable} {
		require.NotErrorIs(t, errs[1], class, "it is a failed delivery")
	}

	wrong := publisher(t, c, as("clerk", relaytest.Secret))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for _, err := range []error{wrong.Publish(ctx, []relay.Message{relaytest.Message("open", "a", "3")})[0], wrong.Ping(t.Context())} {
		require.ErrorIs(t, err, relay.ErrUnavailable)
		require.NotContains(t, err.Error(), relaytest.Secret)
	}
}

func TestABrokerThatDoesNotAnswerIsAnOutage(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{"idempotent": nil, "transactional": {kgo.TransactionalID("shop-1")}} {
		t.Run(name, func(t *testing.T) {
			c := start(t, kfake.SeedTopics(1, "orders"))
			proxy := relaytest.NewProxy(t, c.addr)
			p := publisher(t, c, append(opts, proxied(proxy))...)
			require.NoError(t, relaytest.Publish(t, p, relaytest.Message("orders", "a", "0"))[0])
			thaw := proxy.BeginFreeze()
			relaytest.Eventually(t, "a call fails", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				errs := p.Publish(ctx, []relay.Message{relaytest.Message("orders", "a", "1"), relaytest.Message("orders", "b", "2")})
				for _, err := range errs {
					require.ErrorIs(t, err, relay.ErrUnavailable)
				}
				return errs != nil
			})
			thaw()
			relaytest.Eventually(t, "it publishes again", func() bool {
				return relaytest.Publish(t, p, relaytest.Message("orders", "a", "1"), relaytest.Message("orders", "b", "2"))[0] == nil
			})
			require.Len(t, ids(c.stored(t, "orders")), 3)
		})
	}
}

// What a closed client had in hand must not be sent later: the outbox may have published
// more of the key through another node meanwhile.
func TestNothingIsSentAfterItsCall(t *testing.T) {
	c := start(t, kfake.SeedTopics(1, "orders"))
	p := publisher(t, c)
	require.NoError(t, relaytest.Publish(t, p, relaytest.Message("orders", "a", "0"))[0])
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Publish(ctx, []relay.Message{relaytest.Message("orders", "a", "1")})[0], relay.ErrUnavailable)
	c.Start(t)
	require.NoError(t, relaytest.Publish(t, p, relaytest.Message("orders", "a", "2"))[0])
	require.Equal(t, map[string]int{"0": 1, "2": 1}, ids(c.stored(t, "orders")))
}

// muted is a connection whose client gets no answers while silent is set.
type muted struct {
	net.Conn
	silent *atomic.Bool
}

func (m muted) Read(b []byte) (int, error) {
	for {
		n, err := m.Conn.Read(b)
		if err != nil || !m.silent.Load() {
			return n, err
		}
	}
}

// The broker has the message, and its answer is lost. The outbox publishes it again. A
// consumer of committed messages sees the copy only without transactions.
func TestTransactionsLeaveNoCopiesWhenAnAnswerIsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		opts   []kgo.Opt
		copies int
	}{"idempotent": {nil, 2}, "transactional": {[]kgo.Opt{kgo.TransactionalID("shop-1")}, 1}} {
		t.Run(name, func(t *testing.T) {
			c := start(t, kfake.SeedTopics(1, "orders"))
			var silent atomic.Bool
			p := publisher(t, c, append(tc.opts, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return muted{conn, &silent}, err
			}))...)
			require.NoError(t, relaytest.Publish(t, p, relaytest.Message("orders", "a", "0"))[0])
			silent.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, p.Publish(ctx, []relay.Message{relaytest.Message("orders", "a", "1")})[0], relay.ErrUnavailable)
			silent.Store(false)
			require.NoError(t, relaytest.Publish(t, p, relaytest.Message("orders", "a", "1"))[0])
			require.Equal(t, map[string]int{"0": 1, "1": 2}, ids(c.stored(t, "orders")), "the broker has both")
			require.Equal(t, map[string]int{"0": 1, "1": tc.copies}, ids(c.stored(t, "orders", kgo.FetchIsolationLevel(kgo.ReadCommitted()))))
		})
	}
}

// A process that took over the transactional id has ended again, as in a rolling deploy.
func TestAPublisherThatWasFencedPublishesAgain(t *testing.T) {
	c := start(t, kfake.SeedTopics(1, "orders"))
	p, other := publisher(t, c, kgo.TransactionalID("shop-1")), publisher(t, c, kgo.TransactionalID("shop-1"))
	require.NoError(t, relaytest.Publish(t, p, relaytest.Message("orders", "a", "0"))[0])
	require.NoError(t, relaytest.Publish(t, other, relaytest.Message("orders", "a", "1"))[0])
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	errs := p.Publish(ctx, []relay.Message{relaytest.Message("orders", "a", "2")})
	require.ErrorIs(t, errs[0], relay.ErrUnavailable)
	require.NoError(t, ctx.Err(), "it fails before its time is up")
	require.NoError(t, relaytest.Publish(t, p, relaytest.Message("orders", "a", "2"))[0])
	require.Equal(t, map[string]int{"0": 1, "1": 1, "2": 1}, ids(c.stored(t, "orders", kgo.FetchIsolationLevel(kgo.ReadCommitted()))))
}

func TestCallsRunSideBySide(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{"idempotent": nil, "transactional": {kgo.TransactionalID("shop-1")}} {
		t.Run(name, func(t *testing.T) {
			c := start(t, kfake.SeedTopics(3, "orders"))
			p := publisher(t, c, opts...)
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for n := range 5 {
						if errs := p.Publish(t.Context(), []relay.Message{relaytest.Message("orders", fmt.Sprint(i), fmt.Sprintf("%d-%d", i, n))}); errs != nil {
							t.Error(errs)
						}
					}
				})
			}
			all.Wait()
			list := c.stored(t, "orders", kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			require.Len(t, list, 40)
			require.Len(t, ids(list), 40)
		})
	}
}

func TestAfterCloseNothingIsPublished(t *testing.T) {
	c := start(t, kfake.SeedTopics(1, "orders"))
	p := publisher(t, c)
	require.NoError(t, relaytest.Publish(t, p, relaytest.Message("orders", "a", "1"))[0])
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()), "again")
	err := relaytest.Publish(t, p, relaytest.Message("orders", "a", "2"))[0]
	require.ErrorIs(t, err, relay.ErrUnavailable)
	require.ErrorContains(t, err, "the publisher is closed")
	require.Error(t, p.Ping(t.Context()))
}

func TestAnInvalidConfigIsReportedWhole(t *testing.T) {
	_, err := relaykafka.New(relaykafka.Config{Options: []kgo.Opt{kgo.DisableIdempotentWrite()}})
	require.ErrorContains(t, err, "relaykafka.Config.Brokers is empty")
	require.ErrorContains(t, err, "relaykafka.Config.Options have kgo.DisableIdempotentWrite")
	_, err = relaykafka.New(relaykafka.Config{Brokers: []string{"127.0.0.1:1"}, Options: []kgo.Opt{kgo.MaxBufferedRecords(-1)}})
	require.ErrorContains(t, err, "relaykafka.Config.Options make no client: ")

	p, err := relaykafka.New(relaykafka.Config{Brokers: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(t.Context())) }()
	require.NoError(t, p.CheckTopic("orders.placed_V-1"))
	for topic, want := range map[string]string{"a/b": `has a '/'`, "..": "is not a name", strings.Repeat("t", 250): "has 250 bytes", "é": "letters and digits of ASCII"} {
		require.ErrorContains(t, p.CheckTopic(topic), want)
	}
}
