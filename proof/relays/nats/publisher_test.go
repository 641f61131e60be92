package relaynats_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	relaynats "github.com/outboxkit/outbox-go/relay/nats"
)

func TestAMessageHasTheEvent(t *testing.T) {
	s := start(t, nil)
	js := client(t, s.ClientURL())
	st := stream(t, js, jetstream.StreamConfig{Subjects: []string{"orders.>"}})
	p := publisher(t, relaynats.Config{URL: s.ClientURL()})
	m := relay.Message{
		Topic: "orders.placed", Key: "o1", ID: "e1", ContentType: "application/json", Body: []byte(`{"n":1}`),
		Attributes: []relay.Attribute{{Name: "id", Value: "e1"}, {Name: "datacontenttype", Value: "application/json"}, {Name: "subject", Value: "Zoë \"1\"\r\n"}},
		Headers:    map[string]string{"traceparent": "00-1-2-01", "Nats-Msg-Id": "another"},
	}
	require.Nil(t, p.Publish(t.Context(), []relay.Message{m}))
	require.Nil(t, p.Publish(t.Context(), []relay.Message{m}), "the stream drops it")
	got, err := st.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "orders.placed", got.Subject)
	require.JSONEq(t, `{"n":1}`, string(got.Data))
	require.Equal(t, nats.Header{
		"ce-id": {"e1"}, "ce-datacontenttype": {"application/json"}, "ce-subject": {"Zo%C3%AB%20%221%22%0D%0A"},
		"traceparent": {"00-1-2-01"}, "Nats-Msg-Id": {"e1"},
	}, got.Header)
	info, err := st.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, info.State.Msgs)

	m.ID, m.Attributes, m.ContentType = "e2", nil, "application/cloudevents+json"
	require.Nil(t, p.Publish(t.Context(), []relay.Message{m}))
	got, err = st.GetMsg(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, "application/cloudevents+json", got.Header.Get("content-type"))
}

// A mistake in an address has to be found by the log.
func TestTheReasonWhyNoServerAnswersIsKept(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	heard := make(chan error, 1)
	p, err := relaynats.New(relaynats.Config{URL: "nats://orders:secret@" + address, Options: []nats.Option{
		nats.ReconnectWait(time.Millisecond),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			select {
			case heard <- err:
			default:
			}
		}),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	require.Error(t, <-heard, "the user's own handler gets it too")
	relaytest.Eventually(t, "the reason is there", func() bool {
		err := p.Ping(t.Context())
		require.ErrorIs(t, err, relay.ErrUnavailable)
		require.NotContains(t, err.Error(), "secret")
		return strings.Contains(err.Error(), address+": connect: connection refused")
	})
}

// Each failure is that of its message; the others are acknowledged.
func TestAMessageThatTheServerDoesNotTake(t *testing.T) {
	s := start(t, func(o *server.Options) {
		o.MaxPayload = 10_000
		o.Users = []*server.User{
			{Username: "admin", Password: "a"},
			{Username: "relay", Password: "r", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"secret"}}}},
		}
	})
	js := client(t, s.ClientURL(), nats.UserInfo("admin", "a"))
	stream(t, js, jetstream.StreamConfig{Subjects: []string{"ok", "secret"}, MaxMsgSize: 5_000})
	heard := make(chan error, 10)
	p := publisher(t, relaynats.Config{URL: s.ClientURL(), Options: []nats.Option{
		nats.UserInfo("relay", "r"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { heard <- err }),
	}})
	for _, tc := range []struct {
		name   string
		change func(m *relay.Message)
		is     error // nil: a failed delivery of no class
		text   string
	}{
		{"above the server's limit", func(m *relay.Message) { m.Body = []byte(strings.Repeat("x", 10_000)) }, relay.ErrRefused, "a body of 10000 bytes and its headers; the server's limit is 10000"},
		{"above the stream's limit", func(m *relay.Message) { m.Body = []byte(strings.Repeat("x", 6_000)) }, relay.ErrRefused, "message size exceeds maximum allowed"},
		{"no stream", func(m *relay.Message) { m.Topic = "nowhere" }, relay.ErrUnroutable, "no stream has the subject"},
		{"not allowed", func(m *relay.Message) { m.Topic = "secret" }, nil, `Permissions Violation for Publish to "secret"`},
		{"a wildcard", func(m *relay.Message) { m.Topic = "ok.*" }, relay.ErrRefused, "no wildcard"},
		{"a header", func(m *relay.Message) { m.Headers = map[string]string{"a:b": "1"} }, relay.ErrRefused, "a:b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list := messages("ok", 3)
			tc.change(&list[1])
			errs := p.Publish(t.Context(), list)
			require.Len(t, errs, 3)
			require.NoError(t, errs[0])
			require.NoError(t, errs[2])
			require.ErrorContains(t, errs[1], tc.text)
			require.NotContains(t, errs[1].Error(), "xxx", "no payload")
			for _, class := range []error{relay.ErrRefused, relay.ErrUnroutable, relay.ErrUnavailable} {
				require.Equal(t, errors.Is(tc.is, class), errors.Is(errs[1], class), "%v", errs[1])
			}
		})
	}
	require.ErrorIs(t, <-heard, nats.ErrPermissionViolation, "the user's own handler gets it too")
}

func TestAStreamThatIsFullIsAnOutage(t *testing.T) {
	s := start(t, nil)
	js := client(t, s.ClientURL())
	stream(t, js, jetstream.StreamConfig{Subjects: []string{"ok"}, MaxMsgs: 2, Discard: jetstream.DiscardNew})
	p := publisher(t, relaynats.Config{URL: s.ClientURL()})
	errs := p.Publish(t.Context(), messages("ok", 3))
	require.ErrorIs(t, errs[2], relay.ErrUnavailable)
	require.ErrorContains(t, errs[2], "maximum messages exceeded")
}

// The events wait until somebody makes room.
func TestAnAccountWithoutStorageIsAnOutage(t *testing.T) {
	s := start(t, nil)
	require.NoError(t, s.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{
		"": {MaxMemory: -1, MaxStore: 1_000, MaxStreams: -1, MaxConsumers: -1},
	}))
	js := client(t, s.ClientURL())
	st := stream(t, js, jetstream.StreamConfig{Subjects: []string{"ok"}})
	p := publisher(t, relaynats.Config{URL: s.ClientURL()})
	errs := p.Publish(t.Context(), messages("ok", 50))
	require.Len(t, errs, 50)
	require.ErrorIs(t, errs[49], relay.ErrUnavailable)
	require.ErrorContains(t, errs[49], "resource limits exceeded for account")
	require.NoError(t, st.Purge(t.Context()))
	require.Nil(t, p.Publish(t.Context(), messages("ok", 50)[49:]))
}

// A header of an event may come from a request. As an instruction to the server it would
// delete the stream's messages, or fail the event.
func TestHeadersOfEventsAreNoInstructions(t *testing.T) {
	s := start(t, nil)
	js := client(t, s.ClientURL())
	st := stream(t, js, jetstream.StreamConfig{Subjects: []string{"ok"}, AllowRollup: true, AllowMsgTTL: true})
	p := publisher(t, relaynats.Config{URL: s.ClientURL()})
	list := messages("ok", 4)
	list[1].Headers = map[string]string{"Nats-Expected-Last-Sequence": "77", "Nats-Expected-Stream": "OTHER", "Nats-Msg-Id": "ok-1"}
	list[2].Headers = map[string]string{"Nats-Rollup": "all", "nats-rollup": "all"}
	list[3].Headers = map[string]string{"Nats-TTL": "1h", "Native": "1", "nat": "2"}
	require.Nil(t, p.Publish(t.Context(), list))
	info, err := st.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, info.State.Msgs)
	for i, want := range []nats.Header{{}, {}, {}, {"Nats-TTL": {"1h"}, "Native": {"1"}, "nat": {"2"}}} {
		want["Nats-Msg-Id"], want["content-type"] = []string{list[i].ID}, []string{"application/json"}
		m, err := st.GetMsg(t.Context(), uint64(i+1))
		require.NoError(t, err)
		require.Equal(t, want, m.Header)
	}
}

// A window smaller than a batch slows the batch down.
func TestTheWindowIsTheClientsOption(t *testing.T) {
	s := start(t, nil)
	js := client(t, s.ClientURL())
	stream(t, js, jetstream.StreamConfig{Subjects: []string{"ok"}})
	p := publisher(t, relaynats.Config{URL: s.ClientURL(), JetStream: []jetstream.JetStreamOpt{jetstream.WithPublishAsyncMaxPending(2)}})
	require.Nil(t, p.Publish(t.Context(), messages("ok", 100)))
}

// A subscriber without a stream takes messages and acknowledges none: the window stays full.
func TestAFullWindowEndsWithTheContext(t *testing.T) {
	s := start(t, nil)
	conn, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	sub, err := conn.SubscribeSync("ok")
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	p := publisher(t, relaynats.Config{URL: s.ClientURL(), JetStream: []jetstream.JetStreamOpt{jetstream.WithPublishAsyncMaxPending(2)}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = sub.NextMsg(time.Minute) // the call has begun
		cancel()
	}()
	began := time.Now()
	for _, err := range p.Publish(ctx, messages("ok", 5)) {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Less(t, time.Since(began), 10*time.Second, "it does not wait for acknowledgements")
}

func TestAServerThatIsAway(t *testing.T) {
	addr := relaytest.FreeAddr(t)
	p, err := relaynats.New(relaynats.Config{URL: addr, Options: []nats.Option{nats.ReconnectWait(10 * time.Millisecond)}})
	require.NoError(t, err, "a service starts without its broker")
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	errs := p.Publish(t.Context(), messages("ok", 2))
	require.Len(t, errs, 2)
	require.ErrorIs(t, errs[1], relay.ErrUnavailable)
	require.ErrorIs(t, p.Ping(t.Context()), relay.ErrUnavailable)

	opts := options(addr, t.TempDir())
	s := start(t, func(o *server.Options) { o.Port = opts.Port })
	stream(t, client(t, s.ClientURL()), jetstream.StreamConfig{Subjects: []string{"ok"}})
	relaytest.Eventually(t, "the publisher is connected", func() bool { return p.Ping(t.Context()) == nil })
	require.Nil(t, p.Publish(t.Context(), messages("ok", 2)))

	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()), "a second time")
	require.ErrorIs(t, p.Publish(t.Context(), messages("ok", 1))[0], relay.ErrUnavailable)
}

// Credentials that the server refuses are an outage with the server's reason, which ends
// when the server accepts them.
func TestCredentialsThatTheServerRefuses(t *testing.T) {
	addr := relaytest.FreeAddr(t)
	port := options(addr, "").Port
	password := "old"
	run := func() *server.Server {
		return start(t, func(o *server.Options) { o.Port, o.Username, o.Password = port, "relay", password })
	}
	s := run()
	p, err := relaynats.New(relaynats.Config{URL: addr, Options: []nats.Option{nats.UserInfo("relay", "secret-2"), nats.ReconnectWait(10 * time.Millisecond)}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	relaytest.Eventually(t, "the reason", func() bool {
		return strings.Contains(p.Publish(t.Context(), messages("ok", 1))[0].Error(), "Authorization Violation")
	})
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) { // several attempts
		errs := p.Publish(t.Context(), messages("ok", 1))
		require.ErrorIs(t, errs[0], relay.ErrUnavailable)
		require.NotContains(t, errs[0].Error(), "secret-2")
	}
	s.Shutdown()
	s.WaitForShutdown()
	password = "secret-2"
	s = run()
	stream(t, client(t, s.ClientURL(), nats.UserInfo("relay", "secret-2")), jetstream.StreamConfig{Subjects: []string{"ok"}})
	relaytest.Eventually(t, "the publisher is connected", func() bool { return p.Ping(t.Context()) == nil })
	require.Nil(t, p.Publish(t.Context(), messages("ok", 1)))
}

func TestInvalidConfig(t *testing.T) {
	_, err := relaynats.New(relaynats.Config{URL: "nats://relay:secret-3@ho st:1"})
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "relaynats.Config.URL", field.Field)
	require.NotContains(t, err.Error(), "secret-3")
	for _, port := range []string{"99999", "65536"} {
		_, err = relaynats.New(relaynats.Config{URL: "nats://127.0.0.1:4222,nats://relay:secret-3@127.0.0.1:" + port})
		require.ErrorAs(t, err, &field)
		require.NotContains(t, err.Error(), "secret-3")
	}
	_, err = relaynats.New(relaynats.Config{Options: []nats.Option{nats.RootCAs("missing.pem")}})
	require.ErrorContains(t, err, "missing.pem")
	_, err = relaynats.New(relaynats.Config{JetStream: []jetstream.JetStreamOpt{jetstream.WithPublishAsyncMaxPending(0)}})
	require.ErrorContains(t, err, "max ack pending")

	p, err := relaynats.New(relaynats.Config{URL: relaytest.FreeAddr(t)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	_, err = relay.New(relay.Config{Publisher: p, Source: "/x", Routes: []relay.Route{relay.To("orders..placed", outbox.EventKind{EventType: "A"})}})
	require.ErrorContains(t, err, `relay.Config.Routes[0].Topic is "orders..placed": a subject has no empty part`)
}
