package relay_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

func TestFormats(t *testing.T) {
	for _, format := range []relay.Format{relay.Binary, relay.Structured, relay.Plain} {
		t.Run(string(format), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, func(cfg *relay.Config) { cfg.Format = format })
				env := placed.Envelope("o1", 7)
				env.EventID, env.OccurredAt = "1", time.Date(1999, 12, 31, 23, 59, 58, 0, time.UTC)
				env.Headers = map[string]string{"traceparent": "00-1-2-01"}
				_, err := w.ob.Writer().WriteUnmanaged(t.Context(), w.store.DB(), []outbox.Envelope{env})
				require.NoError(t, err)
				w.wait(2 * time.Second)
				require.Len(t, w.broker.got, 1)
				m := w.broker.got[0]
				require.Equal(t, "00-1-2-01", m.Headers["traceparent"])
				require.Equal(t, []string{"orders", "o1", "orders:/orders:1"}, []string{m.Topic, m.Key, m.ID})
				switch format {
				case relay.Binary:
					require.Equal(t, "7", string(m.Body))
					require.Equal(t, "application/json", m.ContentType)
					require.Equal(t, []relay.Attribute{
						{"specversion", "1.0"},
						{"id", "1"},
						{"source", "/orders"},
						{"type", "Placed"},
						{"time", "1999-12-31T23:59:58Z"},
						{"datacontenttype", "application/json"},
						{"aggregatetype", "Order"},
						{"subject", "o1"},
						{"partitionkey", "o1"},
					}, m.Attributes)
				case relay.Structured:
					require.Equal(t, "application/cloudevents+json", m.ContentType)
					require.JSONEq(t, `{"specversion":"1.0","id":"1","source":"/orders","type":"Placed","time":"1999-12-31T23:59:58Z",
						"datacontenttype":"application/json","aggregatetype":"Order","subject":"o1","partitionkey":"o1","data":7}`, string(m.Body))
					require.Empty(t, m.Attributes)
				case relay.Plain:
					require.Equal(t, "7", string(m.Body))
					require.Empty(t, m.Attributes)
				}
				w.close()
			})
		})
	}
}

func TestBytesArePublishedAsTheyAre(t *testing.T) {
	data := []byte{0, 0xff, '"', '\n'}
	for _, format := range []relay.Format{relay.Binary, relay.Structured, relay.Plain} {
		b := &broker{}
		r, err := relay.New(relay.Config{
			Publisher: b, Source: "/orders", Format: format,
			Routes: []relay.Route{{Topic: "orders", Kinds: []outbox.EventKind{placed.Kind()}}},
		})
		require.NoError(t, err)
		batch := events("a/1")
		batch[0].Payload = outbox.Bytes("application/protobuf", data).WithVersion(3)
		require.NoError(t, r.Publish(t.Context(), batch)[0])
		m := b.got[0]
		if format == relay.Structured {
			require.Equal(t, "application/cloudevents+json", m.ContentType)
			var event map[string]any
			require.NoError(t, json.Unmarshal(m.Body, &event))
			require.Equal(t, []any{"AP8iCg==", nil, "application/protobuf"}, []any{event["data_base64"], event["data"], event["datacontenttype"]})
			require.Equal(t, "3", event["dataversion"])
			continue
		}
		require.Equal(t, data, m.Body)
		require.Equal(t, "application/protobuf", m.ContentType)
		if format == relay.Binary {
			require.Contains(t, m.Attributes, relay.Attribute{Name: "datacontenttype", Value: "application/protobuf"})
			require.Contains(t, m.Attributes, relay.Attribute{Name: "dataversion", Value: "3"})
		}
	}
}

func TestHeadersOfGivesTheHeaders(t *testing.T) {
	b := &broker{}
	r := newRelay(t, b, relay.Route{Topic: "orders", HeadersOf: func(env outbox.Envelope) map[string]string {
		headers := map[string]string{"tenant": env.TenantID}
		maps.Copy(headers, env.Headers)
		delete(headers, "secret")
		return headers
	}})
	batch := events("a/1")
	batch[0].TenantID, batch[0].Headers = "acme", map[string]string{"traceparent": "00-1", "secret": "x"}
	require.NoError(t, r.Publish(t.Context(), batch)[0])
	require.Equal(t, map[string]string{"traceparent": "00-1", "tenant": "acme"}, b.got[0].Headers)
	require.Equal(t, map[string]string{"traceparent": "00-1", "secret": "x"}, batch[0].Headers)
}

// A stream or an inbox compares the ids of messages of several topics and services.
func TestAMessageIDHasTheTopicAndTheSource(t *testing.T) {
	ids := map[string]bool{}
	for _, topic := range []string{"orders", "audit", strings.Repeat("t", 255)} {
		for _, source := range []string{"/orders", "/shop"} {
			b := &broker{}
			r, err := relay.New(relay.Config{Publisher: b, Source: source, Routes: []relay.Route{relay.To(topic, placed.Kind())}})
			require.NoError(t, err)
			for range 2 { // a second attempt has the same id
				require.NoError(t, r.Publish(t.Context(), events("a/1"))[0])
				ids[b.got[0].ID] = true
				require.LessOrEqual(t, len(b.got[0].ID), inbox.MaxMessageIDLength)
			}
			require.Equal(t, b.got[0].ID, b.got[1].ID)
		}
	}
	require.Len(t, ids, 6)
}

// A function of a route that panics fails its event, and not the batch.
func TestARouteThatPanicsFailsOnlyItsEvent(t *testing.T) {
	panics := func(env outbox.Envelope) string {
		if env.EventID == "1" {
			panic("boom")
		}
		return "orders"
	}
	for name, route := range map[string]relay.Route{
		"TopicOf": {TopicOf: func(env outbox.Envelope) (string, error) { return panics(env), nil }},
		"KeyOf":   {Topic: "orders", KeyOf: func(env outbox.Envelope) string { return panics(env) + env.AggregateID }},
		"HeadersOf": {Topic: "orders", HeadersOf: func(env outbox.Envelope) map[string]string {
			return map[string]string{"x": panics(env)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &broker{}
			results := newRelay(t, b, route).Publish(t.Context(), events("a/1", "b/2", "c/3"))
			var panicked *outbox.PanicError
			require.ErrorAs(t, results[0], &panicked)
			require.NotEmpty(t, panicked.Stack)
			require.Equal(t, []string{"2", "3"}, b.ids())
		})
	}
}
