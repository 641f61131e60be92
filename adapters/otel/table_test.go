package outboxotel_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/adapters/otel/internal/oteltest"
	"github.com/outboxkit/outbox-go/outbox"
)

// source is a table whose answers the test decides.
type source struct {
	read  func(ctx context.Context) (outbox.Stats, error)
	reads atomic.Int32
}

func (s *source) Stats(ctx context.Context) (outbox.Stats, error) {
	s.reads.Add(1)
	return s.read(ctx)
}

func always(stats outbox.Stats) *source {
	return &source{read: func(context.Context) (outbox.Stats, error) { return stats, nil }}
}

func watch(t testing.TB, s *source, opts ...outboxotel.MetricsOption) (*meters, *outboxotel.Metrics) {
	t.Helper()
	p := newMeters(t)
	m := newMetrics(t, p, opts...)
	require.NoError(t, m.WatchTable(s))
	return p, m
}

// tableUnits are all figures of the table with their units.
var tableUnits = map[string]string{
	"outbox.events.pending": "{event}", "outbox.events.due": "{event}", "outbox.events.due.paused": "{event}", "outbox.events.delayed": "{event}", "outbox.events.dead": "{event}",
	"outbox.oldest.due.age": "s", "outbox.last.poll.timestamp": "s", "outbox.poll.interval": "s", "outbox.kinds.paused": "{kind}",
	"outbox.oldest.pause.age": "s", "outbox.replay.progress.age": "s", "outbox.keys.paused": "{key}",
	"outbox.table.up": "", "outbox.table.read.timestamp": "s", "outbox.table.read.errors": "{error}",
}

func TestFiguresOfTheTableHaveTheirNamesUnitsAndValues(t *testing.T) {
	t.Parallel()
	polled := time.Date(2026, 5, 4, 3, 2, 1, 500e6, time.UTC)
	p, m := watch(t, always(outbox.Stats{
		Pending: 7, Due: 4, DuePaused: 1, Delayed: 3, Dead: 2, OldestDueAge: 90500 * time.Millisecond, ReplayProgressAge: 700 * time.Second,
		HotDepth: 11, ColdDepth: 12, LastPoll: polled, PollInterval: 5 * time.Second, Paused: []outbox.Pause{{Since: time.Now()}, {Since: time.Now()}, {AggregateID: "7"}},
	}), outboxotel.WithPrefix("orders.outbox"), outboxotel.WithAttributes(attribute.String("zone", "a")))
	m.QueueDepths(0, 0)
	p.read(t)
	figures := p.read(t)
	require.Len(t, figures, len(tableUnits)+2+len(counters)+1, "and the age of the pause of a kind")
	for name, unit := range tableUnits {
		points := figures[strings.Replace(name, "outbox", "orders.outbox", 1)]
		require.Len(t, points, 1, name)
		require.Equal(t, unit, points[0].unit, name)
		require.Equal(t, "zone=a", points[0].labels, name)
	}
	for name, want := range map[string]float64{
		"events.pending": 7, "events.due": 4, "events.due.paused": 1, "events.delayed": 3, "events.dead": 2, "oldest.due.age": 90.5,
		"last.poll.timestamp": float64(polled.UnixMilli()) / 1000, "poll.interval": 5, "kinds.paused": 2, "keys.paused": 1, "replay.progress.age": 700, "table.up": 1, "table.read.errors": 0,
		"queue.hot.depth": 11, "queue.cold.depth": 12,
	} {
		require.InDelta(t, want, p.one(t, "orders.outbox."+name), 0, name)
	}
	require.InDelta(t, float64(time.Now().Unix()), p.one(t, "orders.outbox.table.read.timestamp"), 60)
}

func TestTheShareInLimitsOfAllProcessesHasItsKind(t *testing.T) {
	t.Parallel()
	p, _ := watch(t, always(outbox.Stats{Shares: []outbox.OwnShare{
		{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Placed"}, Parts: 3, Of: 8},
	}}), outboxotel.WithAttributes(attribute.String("zone", "a")))
	points := p.read(t)["outbox.fleetwide.share"]
	require.Len(t, points, 1)
	require.Empty(t, points[0].unit)
	require.InDelta(t, 0.375, points[0].value, 0)
	require.Equal(t, "outbox.aggregate.type=Order,outbox.event.type=Placed,zone=a", points[0].labels)
}

func TestAKindThatIsLateHasItsKindAndItsAge(t *testing.T) {
	t.Parallel()
	p, _ := watch(t, always(outbox.Stats{Late: []outbox.LateKind{
		{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Placed"}, MaxDueAge: 5 * time.Second, Events: 3, OldestDueAge: 6500 * time.Millisecond},
	}}), outboxotel.WithAttributes(attribute.String("zone", "a")))
	points := p.read(t)["outbox.kind.late.age"]
	require.Len(t, points, 1)
	require.Equal(t, "s", points[0].unit)
	require.InDelta(t, 6.5, points[0].value, 0)
	require.Equal(t, "outbox.aggregate.type=Order,outbox.event.type=Placed,zone=a", points[0].labels)
}

func TestAKindThatIsPausedHasItsKindAndItsAge(t *testing.T) {
	t.Parallel()
	p, _ := watch(t, always(outbox.Stats{Paused: []outbox.Pause{
		{Kind: outbox.EventKind{AggregateType: "Order", EventType: "Placed"}, Since: time.Now().Add(-2 * time.Hour)},
	}}), outboxotel.WithAttributes(attribute.String("zone", "a")))
	points := p.read(t)["outbox.kind.pause.age"]
	require.Len(t, points, 1)
	require.Equal(t, "s", points[0].unit)
	require.InDelta(t, 7200, points[0].value, 60)
	require.Equal(t, "outbox.aggregate.type=Order,outbox.event.type=Placed,zone=a", points[0].labels)
}

func TestFiguresOfATableInADatabase(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	m := newMetrics(t, p)
	db := openDB(t).DB
	a := run(t, db, outbox.Config{Metrics: m, Mode: outbox.WriterOnly{}})
	late, delayed := event(), event()
	late.OccurredAt = time.Now().Add(-time.Hour)
	delayed.DeliverAfter = time.Hour
	ids := a.write(t.Context(), t, late, event(), delayed, event())
	_, err := db.ExecContext(t.Context(), `UPDATE outbox_event SET status = ? WHERE event_id = ?`, outbox.StatusDead, ids[3])
	require.NoError(t, err)
	require.NoError(t, m.WatchTable(a))
	for name, want := range map[string]float64{
		"events.pending": 3, "events.due": 2, "events.delayed": 1, "events.dead": 1, "table.up": 1, "table.read.errors": 0,
	} {
		require.InDelta(t, want, p.one(t, "outbox."+name), 0, name)
	}
	require.InDelta(t, 3600, p.one(t, "outbox.oldest.due.age"), 60)
	require.NotContains(t, p.read(t), "outbox.poll.interval", "the mode has no poller")

	require.NoError(t, a.Close(context.Background()))
	for name := range tableUnits {
		require.NotContains(t, p.read(t), name, "closing the outbox closes its metrics")
	}
}

func TestADatabaseThatIsClosedIsATableThatIsNotUp(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	db := openDB(t).DB
	m := newMetrics(t, p, outboxotel.WithPrefix("closed.db"))
	o, err := outbox.New(configure(db, outbox.Config{Metrics: m}))
	require.NoError(t, err)
	require.NoError(t, m.WatchTable(o))
	require.NoError(t, db.Close())
	const text = "reading the table of closed.db: outbox: reading what is paused"
	before := reported(text)
	require.ElementsMatch(t, []string{"closed.db.table.up", "closed.db.table.read.errors"}, slices.Collect(maps.Keys(p.table(t))))
	require.Zero(t, p.one(t, "closed.db.table.up"))
	require.InDelta(t, 1, p.one(t, "closed.db.table.read.errors"), 0)
	require.Equal(t, before+1, reported(text))
}

func TestWatchTableRefusesAnOutboxThatDoesNotCountWithTheseMetrics(t *testing.T) {
	t.Parallel()
	db := openDB(t).DB
	p := newMeters(t)
	m := newMetrics(t, p)
	made := func(metrics outbox.Metrics) *outbox.Outbox {
		o, err := outbox.New(configure(db, outbox.Config{Metrics: metrics}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, o.Close(context.Background())) })
		return o
	}
	var field *outbox.FieldError
	require.ErrorAs(t, m.WatchTable(made(nil)), &field)
	require.ErrorContains(t, field, "set its Config.Metrics")
	require.ErrorAs(t, m.WatchTable(made(newMetrics(t, p, outboxotel.WithPrefix("other")))), &field)
	require.ErrorContains(t, field, "watch it with those of its Config.Metrics")
	require.NoError(t, m.WatchTable(made(struct{ outbox.Metrics }{m})), "a type of the user's that passes on to these")
}

func TestWatchTableRefusesInvalidCalls(t *testing.T) {
	t.Parallel()
	s := always(outbox.Stats{Pending: 5})
	p := newMeters(t)
	m := newMetrics(t, p)
	var none *outbox.Outbox
	var field *outbox.FieldError
	require.ErrorAs(t, m.WatchTable(nil), &field)
	require.ErrorAs(t, m.WatchTable(none), &field)
	require.NoError(t, m.WatchTable(s))
	other := always(outbox.Stats{Pending: 6})
	require.ErrorIs(t, m.WatchTable(other), outboxotel.ErrRegistered)
	require.InDelta(t, 5, p.one(t, "outbox.events.pending"), 0, "the first goes on")
	require.Zero(t, other.reads.Load())
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.WatchTable(s), outbox.ErrClosed)
}

func TestNothingReadsTheTableWithoutAProvider(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]metric.MeterProvider{"none": nil, "no-op": noop.NewMeterProvider(), "no reader": sdkmetric.NewMeterProvider()} {
		s := always(outbox.Stats{})
		m, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(p))
		require.NoError(t, err, name)
		require.NoError(t, m.WatchTable(s), name)
		callAll(m)
		require.NoError(t, m.Close(), name)
		require.Zero(t, s.reads.Load(), name)
	}
}

func TestClosingLeavesNoCallbackOfTheTable(t *testing.T) {
	t.Parallel()
	p := &oteltest.Callbacks{MeterProvider: newMeters(t)}
	m, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(p))
	require.NoError(t, err)
	require.NoError(t, m.WatchTable(always(outbox.Stats{})))
	require.Equal(t, 2, p.Count(), "the gauges' too: the poller must not wait for a collection that waits for the table")
	require.NoError(t, m.Close())
	require.Zero(t, p.Count())
}
