package relayredis_test

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	relayredis "github.com/outboxkit/outbox-go/relay/redis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a private server, and a client of it.
func start(t testing.TB, args ...string) (addr string, server *relaytest.Process, client *redis.Client) {
	t.Helper()
	addr, server = relaytest.StartRedis(t, args...)
	client = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return addr, server, client
}

func publisher(t testing.TB, addr string, change func(cfg *relayredis.Config)) *relayredis.Publisher {
	t.Helper()
	cfg := relayredis.Config{Options: &redis.UniversalOptions{Addrs: []string{addr}}}
	if change != nil {
		change(&cfg)
	}
	p, err := relayredis.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	return p
}

// messages are n messages to a stream.
func messages(topic string, n int) []relay.Message {
	list := make([]relay.Message, n)
	for i := range list {
		list[i] = relay.Message{Topic: topic, ID: topic + "-" + strconv.Itoa(i+1), ContentType: "application/json", Body: []byte("SECRET")}
	}
	return list
}

func TestAnEntryHasTheEvent(t *testing.T) {
	addr, _, client := start(t)
	p := publisher(t, addr, nil)
	require.NoError(t, p.Ping(t.Context()))
	require.Nil(t, p.Publish(t.Context(), []relay.Message{{
		Topic: "orders", Key: "o1", ID: "e1", ContentType: "application/json", Body: []byte(`{"n":1}`),
		Attributes: []relay.Attribute{{Name: "id", Value: "e1"}, {Name: "type", Value: "Placed"}},
		Headers:    map[string]string{"traceparent": "00-1-2-01", "data": "another"},
	}}))
	entries, err := client.XRange(t.Context(), "orders", "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, map[string]any{
		"message-id": "e1", "content-type": "application/json", "data": `{"n":1}`, "ce-id": "e1", "ce-type": "Placed", "traceparent": "00-1-2-01",
	}, entries[0].Values)
}

func TestMaxLen(t *testing.T) {
	addr, _, client := start(t, "--stream-node-max-entries", "10")
	p := publisher(t, addr, func(cfg *relayredis.Config) { cfg.MaxLen = 25 })
	require.Nil(t, p.Publish(t.Context(), messages("ok", 100)))
	n, err := client.XLen(t.Context(), "ok").Result()
	require.NoError(t, err)
	require.EqualValues(t, 30, n, "whole nodes of ten entries")
}

// The server would close the connection, and no message of the batch would be published.
func TestMessagesAboveTheBrokersLimit(t *testing.T) {
	const limit = 1 << 20
	addr, _, client := start(t, "--proto-max-bulk-len", strconv.Itoa(limit))
	p := publisher(t, addr, func(cfg *relayredis.Config) { cfg.MaxBytes = limit })
	list := messages("ok", 4)
	list[1].Body = bytes.Repeat([]byte("S"), limit+1)
	list[2].Body = bytes.Repeat([]byte("S"), limit)
	list[3].Headers = map[string]string{"long": strings.Repeat("S", limit+1)}
	errs := p.Publish(t.Context(), list)
	require.Len(t, errs, 4)
	require.NoError(t, errs[0])
	require.NoError(t, errs[2])
	require.EqualError(t, errs[1], `the broker refuses the message: the field "data" has 1048577 bytes; relayredis.Config.MaxBytes allows 1048576`)
	require.ErrorIs(t, errs[1], relay.ErrRefused)
	require.ErrorContains(t, errs[3], `the field "long" has 1048577 bytes`)
	n, err := client.XLen(t.Context(), "ok").Result()
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
}

// No event is to blame for it, so no attempt counts.
func TestAConnectionThatCannotBeSetUpIsAnOutage(t *testing.T) {
	addr, _, client := start(t)
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "relay", "on", ">secret-1", "~*", "+@all", "-select").Err())
	for text, change := range map[string]func(o *redis.UniversalOptions){
		"DB index is out of range": func(o *redis.UniversalOptions) { o.DB = 99 },
		"NOPERM":                   func(o *redis.UniversalOptions) { o.Username, o.Password, o.DB = "relay", "secret-1", 1 },
	} {
		p := publisher(t, addr, func(cfg *relayredis.Config) { change(cfg.Options) })
		errs := p.Publish(t.Context(), messages("ok", 2))
		require.Len(t, errs, 2)
		for _, err := range errs {
			require.ErrorIs(t, err, relay.ErrUnavailable)
			require.ErrorContains(t, err, text)
			require.NotContains(t, err.Error(), "secret-1")
		}
	}
}

// Each failure is that of its message; the others are there.
func TestAnEntryThatTheServerDoesNotTake(t *testing.T) {
	addr, _, client := start(t)
	require.NoError(t, client.Do(t.Context(), "SET", "text", "x").Err())
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "relay", "on", ">r", "~ok", "~text", "~missing", "+@all").Err())
	require.NoError(t, client.Do(t.Context(), "XGROUP", "CREATE", "ok", "g", "$", "MKSTREAM").Err())
	p := publisher(t, addr, func(cfg *relayredis.Config) {
		cfg.Options.Username, cfg.Options.Password, cfg.NoMkStream = "relay", "r", true
	})
	for topic, want := range map[string]struct {
		is   error // nil: a failed delivery of no class
		text string
	}{
		"text":    {relay.ErrUnroutable, "WRONGTYPE"},
		"missing": {relay.ErrUnroutable, "there is no stream of that name"},
		"secret":  {nil, "NOPERM"},
	} {
		list := messages("ok", 3)
		list[1].Topic = topic
		errs := p.Publish(t.Context(), list)
		require.Len(t, errs, 3, topic)
		require.NoError(t, errs[0])
		require.NoError(t, errs[2])
		require.ErrorContains(t, errs[1], want.text)
		require.NotContains(t, errs[1].Error(), "SECRET", "no payload")
		for _, class := range []error{relay.ErrRefused, relay.ErrUnroutable, relay.ErrUnavailable} {
			require.Equal(t, errors.Is(want.is, class), errors.Is(errs[1], class), "%v", errs[1])
		}
	}
}

func TestAServerThatTakesNothingIsAnOutage(t *testing.T) {
	addr, _, client := start(t)
	p := publisher(t, addr, nil)
	outage := func(text string) {
		t.Helper()
		errs := p.Publish(t.Context(), messages("ok", 2))
		require.Len(t, errs, 2)
		require.ErrorIs(t, errs[1], relay.ErrUnavailable)
		require.ErrorContains(t, errs[1], text)
	}
	set := func(key, value string) { require.NoError(t, client.ConfigSet(t.Context(), key, value).Err()) }
	require.Nil(t, p.Publish(t.Context(), messages("ok", 2)))

	set("maxmemory", "1")
	outage("OOM")
	set("maxmemory", "0")
	require.NoError(t, client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	outage("READONLY")
	require.NoError(t, client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	require.Nil(t, p.Publish(t.Context(), messages("ok", 2)))

	set("requirepass", "p")
	p = publisher(t, addr, nil)
	outage("NOAUTH")
	require.ErrorIs(t, p.Ping(t.Context()), relay.ErrUnavailable)
	p = publisher(t, addr, func(cfg *relayredis.Config) { cfg.Options.Password = "wrong-1" })
	outage("WRONGPASS")
	require.NotContains(t, p.Ping(t.Context()).Error(), "wrong-1")
}

func TestAServerThatIsAway(t *testing.T) {
	p := publisher(t, relaytest.FreeAddr(t), nil)
	errs := p.Publish(t.Context(), messages("ok", 2))
	require.ErrorIs(t, errs[1], relay.ErrUnavailable)
	require.ErrorIs(t, p.Ping(t.Context()), relay.ErrUnavailable)
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()), "a second time")
	require.ErrorIs(t, p.Publish(t.Context(), messages("ok", 1))[0], relay.ErrUnavailable)
}

func TestInvalidConfig(t *testing.T) {
	for field, cfg := range map[string]relayredis.Config{
		"relayredis.Config.MaxLen":   {MaxLen: -1},
		"relayredis.Config.MaxBytes": {MaxBytes: -1},
	} {
		_, err := relayredis.New(cfg)
		var wrong *outbox.FieldError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, field, wrong.Field)
	}
}

func TestNothingIsLostWhileTheServerIsKilled(t *testing.T) { relaytest.Prove(t, broker(t)) }

func TestTheRelayCatchesUpAfterAnOutage(t *testing.T) { relaytest.Outage(t, broker(t)) }

// broker is a server that can be killed.
func broker(t *testing.T) relaytest.Broker {
	t.Helper()
	addr, server, client := start(t)
	return relaytest.Broker{
		Addr: addr,
		Connect: func(t testing.TB, addr string) relay.Publisher {
			return publisher(t, addr, func(cfg *relayredis.Config) { cfg.Options.DialTimeout = time.Second })
		},
		Server: server,
		Stored: func(t testing.TB) []relaytest.Stored { return stored(t, client) },
	}
}

// stored reads the stream, some entries at a time.
func stored(t testing.TB, client *redis.Client) (all []relaytest.Stored) {
	t.Helper()
	for start := "-"; ; {
		entries, err := client.XRangeN(t.Context(), relaytest.Topic, start, "+", 1_000).Result()
		require.NoError(t, err)
		for _, e := range entries {
			start = "(" + e.ID
			all = append(all, relaytest.Stored{ID: e.Values[relayredis.FieldMessageID].(string), Body: []byte(e.Values[relayredis.FieldData].(string))})
		}
		if len(entries) == 0 {
			return all
		}
	}
}

// A server that does not know a command quotes what follows it: headers and the payload.
func TestAnUnknownCommandDoesNotShowThePayload(t *testing.T) {
	addr, _, _ := start(t, "--rename-command", "XADD", "")
	errs := publisher(t, addr, nil).Publish(t.Context(), messages("o", 1))
	require.ErrorContains(t, errs[0], "unknown command")
	require.NotContains(t, errs[0].Error(), "SECRET")
}
