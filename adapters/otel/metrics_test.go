package outboxotel_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

var kind = outbox.EventKind{AggregateType: order, EventType: placed}

func newMetrics(t testing.TB, p *meters, opts ...outboxotel.MetricsOption) *outboxotel.Metrics {
	t.Helper()
	m, err := outboxotel.NewMetrics(append(opts, outboxotel.WithMeterProvider(p))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// callAll calls every method once.
func callAll(m outbox.Metrics) {
	m.HotEnqueued(kind)
	m.HotDropped(kind)
	m.HotSkippedDelayed(kind)
	m.ColdEnqueued(kind)
	m.Delivered(kind, 1500*time.Millisecond)
	m.Failed(kind)
	m.Died(kind)
	m.Expired(kind)
	m.Deferred(kind)
	m.LeaseLost(3)
	m.ListenerRan(kind, 250*time.Millisecond)
	m.QueueDepths(4, 5)
	m.OldestLag(750 * time.Millisecond)
	m.BatchRead(7)
}

func TestEveryMetricHasItsNameUnitAndValue(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	callAll(newMetrics(t, p))
	require.Equal(t, map[string][]figure{
		"outbox.enqueue.hot":                 {{"{event}", 1, ""}},
		"outbox.enqueue.hot.dropped":         {{"{event}", 1, ""}},
		"outbox.enqueue.hot.skipped.delayed": {{"{event}", 1, ""}},
		"outbox.enqueue.cold":                {{"{event}", 1, ""}},
		"outbox.dispatch.success":            {{"{event}", 1, ""}},
		"outbox.dispatch.failure":            {{"{event}", 1, ""}},
		"outbox.dispatch.dead":               {{"{event}", 1, ""}},
		"outbox.dispatch.deferred":           {{"{event}", 1, ""}},
		"outbox.dispatch.expired":            {{"{event}", 1, ""}},
		"outbox.lease.lost":                  {{"{event}", 3, ""}},
		"outbox.queue.hot.depth":             {{"{event}", 4, ""}},
		"outbox.queue.cold.depth":            {{"{event}", 5, ""}},
		"outbox.lag.oldest":                  {{"s", 0.75, ""}},
		"outbox.dispatch.latency":            {{"s", 1.5, ""}},
		"outbox.listener.duration":           {{"s", 0.25, ""}},
		"outbox.batch.size":                  {{"{event}", 7, ""}},
	}, p.read(t))
}

func TestPrefixAndAttributesDistinguishOutboxes(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	orders := newMetrics(t, p, outboxotel.WithPrefix("orders.outbox"))
	stock := newMetrics(t, p, outboxotel.WithAttributes(attribute.String("outbox.name", "stock")))
	billing := newMetrics(t, p, outboxotel.WithAttributes(attribute.String("outbox.name", "billing")))
	orders.QueueDepths(1, 0)
	stock.QueueDepths(2, 0)
	billing.QueueDepths(3, 0)

	figures := p.read(t)
	require.Equal(t, []figure{{"{event}", 1, ""}}, figures["orders.outbox.queue.hot.depth"])
	require.ElementsMatch(t, []figure{{"{event}", 2, "outbox.name=stock"}, {"{event}", 3, "outbox.name=billing"}},
		figures["outbox.queue.hot.depth"])
}

func TestEventKindsAreTwoAttributes(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	callAll(newMetrics(t, p, outboxotel.WithEventKinds(10), outboxotel.WithAttributes(attribute.String("zone", "a"))))
	const common, both = "zone=a", "outbox.aggregate.type=order,outbox.event.type=order.placed,zone=a"
	ofAll := []string{"outbox.lease.lost", "outbox.queue.hot.depth", "outbox.queue.cold.depth", "outbox.lag.oldest", "outbox.batch.size"}
	for name, points := range p.read(t) {
		require.Len(t, points, 1)
		if slices.Contains(ofAll, name) {
			require.Equal(t, common, points[0].labels, name)
		} else {
			require.Equal(t, both, points[0].labels, name)
		}
	}
}

func TestAListenerIsAnAttribute(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	m := newMetrics(t, p, outboxotel.WithEventKinds(10))
	mail := kind
	mail.Listener = "mail"
	m.Died(kind)
	m.Died(mail)
	const both = "outbox.aggregate.type=order,outbox.event.type=order.placed"
	require.ElementsMatch(t, []figure{{"{event}", 1, both}, {"{event}", 1, "outbox.aggregate.type=order,outbox.event.type=order.placed,outbox.listener=mail"}},
		p.read(t)["outbox.dispatch.dead"])
}

func TestKindsBeyondTheBoundAreCountedTogether(t *testing.T) {
	t.Parallel()
	const limit, made, writers, rounds = 5, 50, 8, 20
	for range rounds { // for rare interleavings
		p := newMeters(t)
		m := newMetrics(t, p, outboxotel.WithEventKinds(limit))
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				<-begin
				for i := range made { // each begins with another kind, so that they reach the limit together
					m.Died(outbox.EventKind{AggregateType: order, EventType: outbox.EventType(fmt.Sprint("made.", (i+w)%made))})
				}
			})
		}
		close(begin)
		wg.Wait()

		points := p.read(t)["outbox.dispatch.dead"]
		require.Len(t, points, limit+1)
		total := 0.0
		for _, f := range points {
			total += f.value
			if f.labels == "outbox.aggregate.type=_OTHER,outbox.event.type=_OTHER" {
				require.EqualValues(t, (made-limit)*writers, f.value)
			} else {
				require.EqualValues(t, writers, f.value, f.labels)
			}
		}
		require.EqualValues(t, made*writers, total)
	}
}

func TestRowsThatCannotBeDecodedAreOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	a := run(t, openDB(t).DB, outbox.Config{Metrics: newMetrics(t, p, outboxotel.WithEventKinds(1))}, on(succeed))
	a.write(t.Context(), t, event()) // takes the only place
	eventually(t, func() bool { return p.one(t, "outbox.dispatch.success") == 1 }, "the delivery")
	delayed := event()
	delayed.DeliverAfter = time.Millisecond
	delayed.Headers = map[string]string{"a": "b"}
	err := a.adapter.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		id, err := a.adapter.Write(ctx, tx, delayed)
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE outbox_event SET headers = '{"a":1}' WHERE event_id = ?`, id)
		}
		return err
	})
	require.NoError(t, err)
	eventually(t, func() bool {
		return slices.Contains(p.read(t)["outbox.dispatch.dead"], figure{"{event}", 1, "outbox.aggregate.type=unknown,outbox.event.type=unknown"})
	}, "the death")
}

var counters = []string{
	"outbox.enqueue.hot", "outbox.enqueue.hot.dropped", "outbox.enqueue.hot.skipped.delayed", "outbox.enqueue.cold",
	"outbox.dispatch.success", "outbox.dispatch.failure", "outbox.dispatch.dead", "outbox.dispatch.expired", "outbox.dispatch.deferred", "outbox.lease.lost",
}

func TestOnlyCountersAreReportedBeforeTheirFirstValue(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	m := newMetrics(t, p)
	require.Empty(t, p.read(t))
	m.QueueDepths(0, 0) // the engine has started
	figures := p.read(t)
	require.ElementsMatch(t, append([]string{"outbox.queue.hot.depth", "outbox.queue.cold.depth"}, counters...), slices.Collect(maps.Keys(figures)))
	for name, points := range figures {
		require.Equal(t, []figure{{"{event}", 0, ""}}, points, name)
	}
	m.OldestLag(0)
	require.Contains(t, p.read(t), "outbox.lag.oldest")
}

// The first death of a kind is an increase from zero, which alerts can see.
func TestTheCountersOfAKindBeginTogether(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	m := newMetrics(t, p, outboxotel.WithEventKinds(10))
	m.QueueDepths(0, 0)
	require.Contains(t, p.read(t), "outbox.lease.lost")
	require.NotContains(t, p.read(t), "outbox.dispatch.dead", "no kind is known yet")
	m.HotEnqueued(kind)
	figures := p.read(t)
	const labels = "outbox.aggregate.type=order,outbox.event.type=order.placed"
	require.Equal(t, []figure{{"{event}", 1, labels}}, figures["outbox.enqueue.hot"])
	for _, name := range counters[1:8] {
		require.Equal(t, []figure{{"{event}", 0, labels}}, figures[name], name)
	}
}

func TestCloseWithdrawsTheGaugesAndLeavesTheCounters(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	m := newMetrics(t, p)
	callAll(m)
	require.Contains(t, p.read(t), "outbox.queue.hot.depth")
	require.NoError(t, m.Close())
	require.NoError(t, m.Close(), "closing again is harmless")
	figures := p.read(t)
	require.NotContains(t, figures, "outbox.queue.hot.depth")
	require.NotContains(t, figures, "outbox.lag.oldest")
	require.Contains(t, figures, "outbox.dispatch.success")
}

func TestAClockAheadMakesNoNegativeLatency(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	newMetrics(t, p).Delivered(kind, -time.Second)
	require.Zero(t, p.one(t, "outbox.dispatch.latency"))
	require.EqualValues(t, 1, p.one(t, "outbox.dispatch.success"))
}

func TestNewMetricsRefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	for name, opt := range map[string]outboxotel.MetricsOption{
		"no kinds":          outboxotel.WithEventKinds(0),
		"a negative limit":  outboxotel.WithEventKinds(-1),
		"an invalid prefix": outboxotel.WithPrefix("2 outboxes"),
	} {
		m, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(p), opt)
		require.Error(t, err, name)
		require.Nil(t, m, name)
	}
	var field *outbox.FieldError
	_, err := outboxotel.NewMetrics(outboxotel.WithEventKinds(0))
	require.ErrorAs(t, err, &field)
	require.Contains(t, err.Error(), "WithEventKinds")
	_, err = outboxotel.NewMetrics(outboxotel.WithMeterProvider(p), outboxotel.WithPrefix("2 outboxes"))
	require.ErrorContains(t, err, "2 outboxes.enqueue.hot")
}

func TestMetricsOfAnOutboxAtWork(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	m := newMetrics(t, p)
	a := run(t, openDB(t).DB, outbox.Config{Metrics: m}, on(func(_ context.Context, env outbox.Envelope) error {
		switch env.AggregateID {
		case "fails once":
			if env.Attempts == 0 {
				return errors.New("no")
			}
		case "dies":
			return outbox.Dead(errors.New("never"))
		}
		return nil
	}))
	for _, id := range []string{"succeeds", "fails once", "dies"} {
		env := event()
		env.AggregateID = id
		a.write(t.Context(), t, env)
	}
	delayed := event()
	delayed.DeliverAfter = 20 * time.Millisecond
	a.write(t.Context(), t, delayed)

	eventually(t, func() bool {
		return p.one(t, "outbox.dispatch.success") == 3 && p.one(t, "outbox.dispatch.dead") == 1 &&
			p.one(t, "outbox.enqueue.cold") == 2 // the retry and the delayed one
	}, "the outcomes")
	figures := p.read(t)
	require.EqualValues(t, 1, figures["outbox.dispatch.failure"][0].value)
	require.EqualValues(t, 3, figures["outbox.enqueue.hot"][0].value)
	require.EqualValues(t, 1, figures["outbox.enqueue.hot.skipped.delayed"][0].value)
	require.Positive(t, figures["outbox.listener.duration"][0].value)
	require.Contains(t, figures, "outbox.queue.hot.depth")
	require.Contains(t, figures, "outbox.lag.oldest")
	require.Contains(t, figures, "outbox.batch.size")

	require.NoError(t, a.Close(context.Background()))
	require.NotContains(t, p.read(t), "outbox.queue.hot.depth", "closing the outbox closes its metrics")
}

func TestMetricsWithoutAnSDKDoNothing(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]outboxotel.MetricsOption{nil, {nil}, {outboxotel.WithMeterProvider(noop.NewMeterProvider()), outboxotel.WithEventKinds(3)}} {
		m, err := outboxotel.NewMetrics(opts...)
		require.NoError(t, err)
		callAll(m)
		require.NoError(t, m.Close())
	}
}
