package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// figures are metrics that keep what they get. One call at a time.
type figures struct {
	relay.NopMetrics
	begun     map[string]int
	published []relay.Published
	outages   []bool
	closed    bool
}

func (f *figures) Publishing(topic string, messages int) { f.begun[topic] += messages }
func (f *figures) Published(p relay.Published)           { f.published = append(f.published, p) }
func (f *figures) Outage(away bool)                      { f.outages = append(f.outages, away) }

func (f *figures) Close() error {
	f.closed = true
	return nil
}

func TestMetricsOfEachTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &figures{begun: map[string]int{}}
		b := &broker{refuse: func(m relay.Message) error {
			time.Sleep(time.Second)
			return map[string]error{
				"2": fmt.Errorf("%w: too large", relay.ErrRefused), "3": relay.ErrUnroutable, "4": errors.New("boom"),
				"6": fmt.Errorf("%w: full", relay.ErrUnavailable), "7": context.DeadlineExceeded,
			}[eventOf(m)]
		}}
		r, err := relay.New(relay.Config{
			Publisher: b, Source: "/orders", Metrics: f, Logger: slog.New(slog.DiscardHandler),
			Routes: []relay.Route{{Kinds: []outbox.EventKind{placed.Kind()}, TopicOf: func(env outbox.Envelope) (string, error) {
				return map[bool]string{true: "x", false: "y"}[env.EventID < "5"], nil
			}}},
		})
		require.NoError(t, err)
		r.Publish(t.Context(), events("a/1", "b/2", "c/3", "d/4", "e/5", "f/6", "g/7"))
		require.Equal(t, map[string]int{"x": 4, "y": 3}, f.begun)
		require.Equal(t, []relay.Published{
			{Topic: "x", Acknowledged: 1, Refused: 1, Unroutable: 1, Failed: 1, Duration: 7 * time.Second},
			{Topic: "y", Acknowledged: 1, Unavailable: 2, Duration: 7 * time.Second},
		}, f.published)
		require.Equal(t, 4, f.published[0].Messages())
		require.Equal(t, []bool{true}, f.outages)
		time.Sleep(2 * time.Second)
		r.Publish(t.Context(), events("a/1"))
		require.Equal(t, []bool{true}, f.outages, "another topic's answer")
		r.Publish(t.Context(), events("a/8"))
		require.Equal(t, []bool{true, false}, f.outages)
		require.NoError(t, r.Close(t.Context()))
		require.True(t, f.closed)
	})
}

// broken are metrics that panic.
type broken struct{ relay.NopMetrics }

func (broken) Published(relay.Published) { panic("broken") }

func TestMetricsThatPanicFailNoEvent(t *testing.T) {
	var log strings.Builder
	b := &broker{}
	r, err := relay.New(relay.Config{
		Publisher: b, Source: "/orders", Routes: []relay.Route{relay.To("orders", placed.Kind())}, Metrics: broken{},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	require.NoError(t, r.Publish(t.Context(), events("a/1"))[0])
	require.Contains(t, log.String(), `msg="relay: the metrics panicked" error=broken`)
}

// A publisher that panics fails its messages, and none of them stays in flight.
func TestAPublisherThatPanicsFailsItsMessages(t *testing.T) {
	f := &figures{begun: map[string]int{}}
	b := &broker{refuse: func(relay.Message) error { panic("boom") }}
	r, err := relay.New(relay.Config{Publisher: b, Source: "/orders", Metrics: f, Routes: []relay.Route{relay.To("orders", placed.Kind())}})
	require.NoError(t, err)
	results := r.Publish(t.Context(), events("a/1", "b/2"))
	var panicked *outbox.PanicError
	for i, result := range results {
		require.ErrorAs(t, result, &panicked, i)
		require.ErrorContains(t, result, fmt.Sprintf("relay: publishing event %d to \"orders\": panic: boom", i+1))
	}
	require.Len(t, f.published, 1)
	require.Equal(t, f.begun["orders"], f.published[0].Messages())
	require.Equal(t, 2, f.published[0].Failed)
}
