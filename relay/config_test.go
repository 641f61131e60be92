package relay_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// strict is a publisher that knows which topics are invalid.
type strict struct{ *broker }

func (strict) CheckTopic(string) error { return errors.New("no spaces") }

func TestAnInvalidConfigIsReportedWhole(t *testing.T) {
	r, err := relay.New(relay.Config{
		Format: "xml", Timeout: -1, MaxBackoff: -2, Batch: outbox.BatchOptions{Size: -3},
		Routes: []relay.Route{relay.To("", placed.Kind()), relay.To("a", placed.Kind()), {Topic: "b"}},
	})
	require.Nil(t, r)
	last := -1
	for _, want := range []string{ // in the order of the fields
		"relay.Config.Publisher is nil",
		"relay.Config.Routes[0].Topic is empty", "relay.Config.Routes[1].Kinds[0] is Order/Placed, which another route has too", "relay.Config.Routes[2].Kinds is empty",
		"relay.Config.Format is \"xml\"", "relay.Config.Batch: outbox: BatchOptions.Size is -3", "relay.Config.Timeout is -1ns", "relay.Config.MaxBackoff is -2ns",
	} {
		require.ErrorContains(t, err, want)
		at := strings.Index(err.Error(), want)
		require.Greater(t, at, last, want)
		last = at
	}
	_, err = relay.New(relay.Config{Publisher: strict{&broker{}}, Source: "/x", Routes: []relay.Route{relay.To("a b", placed.Kind())}})
	require.ErrorContains(t, err, `relay.Config.Routes[0].Topic is "a b": no spaces`)
	_, err = relay.New(relay.Config{Publisher: &broker{}})
	require.ErrorContains(t, err, "relay.Config.Source is empty")
	require.ErrorContains(t, err, "relay.Config.Routes is empty")
}

func TestTheConfigIsCopied(t *testing.T) {
	routes := []relay.Route{relay.To("orders", placed.Kind())}
	b := &broker{}
	r, err := relay.New(relay.Config{Publisher: b, Source: "/orders", Routes: routes})
	require.NoError(t, err)
	routes[0].Kinds[0].EventType = "Changed"
	routes[0].Topic = "changed"
	require.NoError(t, r.Publish(t.Context(), events("a/1"))[0])
	require.Equal(t, "orders", b.got[0].Topic)
	require.EqualValues(t, "Placed", r.Bindings()[0].EventType)
}

// An event without an aggregate type has the type outbox.Global, and so has its route.
func TestARouteWithoutAnAggregateTypePublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(cfg *relay.Config) {
			cfg.Routes = []relay.Route{relay.To("said", outbox.EventKind{EventType: "Said"})}
		})
		_, err := w.ob.Writer().WriteUnmanaged(t.Context(), w.store.DB(), []outbox.Envelope{{EventID: "1", EventType: "Said", Payload: outbox.RawJSON("1")}})
		require.NoError(t, err)
		w.wait(2 * time.Second)
		require.Equal(t, []string{"1"}, w.broker.ids())
		require.Equal(t, outbox.StatusDone, w.status("1").Status)
		w.close()
	})
}

func TestInvalidKindsAreReported(t *testing.T) {
	_, err := relay.New(relay.Config{Publisher: &broker{}, Source: "/x", Routes: []relay.Route{
		relay.To("a", outbox.EventKind{AggregateType: "Order"}),
		relay.To("b", outbox.EventKind{EventType: "Said"}, outbox.EventKind{AggregateType: outbox.Global, EventType: "Said"}),
		relay.To("c", outbox.EventKind{EventType: "Named", Listener: "mail"}),
	}})
	for _, want := range []string{
		"relay.Config.Routes[0].Kinds[0].EventType is empty",
		"relay.Config.Routes[1].Kinds[1] is __GLOBAL__/Said, which another route has too",
		`relay.Config.Routes[2].Kinds[0].Listener is "mail"; leave it empty`,
	} {
		require.ErrorContains(t, err, want)
	}
}
