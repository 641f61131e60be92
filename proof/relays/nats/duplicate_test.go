package relaynats_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	relaynats "github.com/outboxkit/outbox-go/relay/nats"
)

// Relays of one event to two subjects, and services with event ids of their own, share a
// stream, which drops what has an id that it knows.
func TestRelaysThatShareAStreamLoseNothing(t *testing.T) {
	s := start(t, nil)
	st := stream(t, client(t, s.ClientURL()), jetstream.StreamConfig{Subjects: []string{"orders.>"}})
	p := publisher(t, relaynats.Config{URL: s.ClientURL()})
	placed := outbox.EventKind{AggregateType: "Order", EventType: "OrderPlaced"}
	events := []outbox.Envelope{{EventID: "order-1-placed", AggregateType: "Order", EventType: "OrderPlaced", Payload: outbox.RawJSON(`{"n":1}`)}}
	for _, to := range []struct{ source, subject string }{{"/orders", "orders.billing"}, {"/orders", "orders.audit"}, {"/shop", "orders.audit"}} {
		r, err := relay.New(relay.Config{Publisher: p, Source: to.source, Routes: []relay.Route{relay.To(to.subject, placed)}})
		require.NoError(t, err)
		for range 2 { // the second time as after a crash
			require.Equal(t, []error{nil}, r.Publish(t.Context(), events))
		}
	}
	info, err := st.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, info.State.Msgs)
}

func TestAMessageThatTheStreamDropsForAnotherIsAnError(t *testing.T) {
	s := start(t, nil)
	js := client(t, s.ClientURL())
	st := stream(t, js, jetstream.StreamConfig{Subjects: []string{"orders.>"}})
	p := publisher(t, relaynats.Config{URL: s.ClientURL()})
	of := func(subject, body, kind string) relay.Message {
		return relay.Message{
			Topic: subject, ID: "1", Body: []byte(body), Attributes: []relay.Attribute{{Name: "type", Value: kind}},
			Headers: map[string]string{"try": time.Now().String()}, // as of a Route.HeadersOf
		}
	}
	require.Nil(t, p.Publish(t.Context(), []relay.Message{of("orders.a", "1", "placed")}))
	require.Nil(t, p.Publish(t.Context(), []relay.Message{of("orders.a", "1", "placed")}), "the message's own earlier attempt")
	for name, m := range map[string]relay.Message{
		"another body":    of("orders.a", "2", "placed"),
		"another type":    of("orders.a", "1", "paid"),
		"another subject": of("orders.b", "1", "placed"),
	} {
		own := of("orders.a", "own", "placed")
		own.ID = name
		errs := p.Publish(t.Context(), []relay.Message{own, m})
		require.Len(t, errs, 2, name)
		require.NoError(t, errs[0], name)
		require.ErrorContains(t, errs[1], `the stream dropped the message: TEST has another message with the id "1" at sequence 1`, name)
		for _, class := range []error{relay.ErrRefused, relay.ErrUnroutable, relay.ErrUnavailable} {
			require.NotErrorIs(t, errs[1], class, "%s: a failed delivery, which is tried again after the duplicate window", name)
		}
	}

	require.NoError(t, st.DeleteMsg(t.Context(), 1))
	require.Nil(t, p.Publish(t.Context(), []relay.Message{of("orders.a", "1", "placed")}), "consumed from a work queue meanwhile")
}

// A stream or an account that renames subjects stores a message under another one.
func TestASubjectThatIsRenamedIsTheMessagesOwn(t *testing.T) {
	account := server.NewAccount("A")
	s := start(t, func(o *server.Options) {
		o.Accounts = []*server.Account{account, server.NewAccount("SYS")}
		o.SystemAccount = "SYS"
		o.Users = []*server.User{{Username: "a", Password: "a", Account: account}}
	})
	account, err := s.LookupAccount("A")
	require.NoError(t, err)
	require.NoError(t, account.AddMapping("sales.*", "mapped.{{wildcard(1)}}"))
	require.NoError(t, account.EnableJetStream(nil, nil))
	js := client(t, s.ClientURL(), nats.UserInfo("a", "a"))
	stream(t, js, jetstream.StreamConfig{
		Subjects:         []string{"orders.*", "mapped.*"},
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "orders.*", Destination: "stored.{{wildcard(1)}}"},
	})
	p := publisher(t, relaynats.Config{URL: s.ClientURL(), Options: []nats.Option{nats.UserInfo("a", "a")}})
	for _, subject := range []string{"orders.x", "sales.x"} {
		for range 2 {
			require.Nil(t, p.Publish(t.Context(), messages(subject, 1)), subject)
		}
	}
}

// Without the right to read the stream, a message that was dropped is never taken for delivered.
func TestADroppedMessageThatCannotBeComparedIsAnError(t *testing.T) {
	s := start(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "all"},
			{Username: "relay", Password: "relay", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"orders.>"}}}},
		}
	})
	stream(t, client(t, s.ClientURL(), nats.UserInfo("all", "all")), jetstream.StreamConfig{Subjects: []string{"orders.>"}})
	p := publisher(t, relaynats.Config{URL: s.ClientURL(), Options: []nats.Option{nats.UserInfo("relay", "relay")}})
	require.Nil(t, p.Publish(t.Context(), messages("orders.a", 1)))
	errs := p.Publish(t.Context(), messages("orders.a", 1))
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "allow it to publish to $JS.API.STREAM.INFO.TEST")
	require.NotErrorIs(t, errs[0], relay.ErrUnavailable)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Publish(ctx, messages("orders.a", 1))[0], context.Canceled)
}
