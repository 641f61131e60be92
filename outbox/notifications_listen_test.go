package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A notification may have been missed while the connection was lost.
func TestEventsOfTheTimeWithoutAConnectionAreDeliveredAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b, book, ids := outboxtest.NewStore(), newBus(), &logbook{}, make(chan string, 10)
		start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Poll: hourly}, Notifier: b, Logger: slog.New(book)}, heard(ids))
		writer := start(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}, Notifier: b}, nil)
		time.Sleep(time.Second)
		b.set(func(b *bus) { b.err = errors.New("server away") })
		b.disconnect()
		synctest.Wait()
		b.set(func(b *bus) { b.deaf = true })
		writer.write(said("missed"))
		time.Sleep(10 * time.Second)
		require.Empty(t, ids)
		b.set(func(b *bus) { b.err, b.deaf = nil, false })
		select {
		case id := <-ids:
			require.Equal(t, "missed", id)
		case <-time.After(6 * time.Second):
			t.Fatal("the event waited for the interval")
		}
		require.Len(t, book.about("listening for notifications failed"), 1)
		require.Len(t, book.about("listening for notifications again"), 1)
	})
}

// cutAtOnce is a notifier whose connections are lost as soon as they listen.
type cutAtOnce struct {
	*bus
	listens atomic.Int32
}

func (c *cutAtOnce) Listen(_ context.Context, _ outbox.DB, _ string, wake func()) error {
	c.listens.Add(1)
	wake()
	return errors.New("the connection is lost")
}

func TestAConnectionThatIsLostAtOnceIsNotOpenedAgainAllTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cutAtOnce{bus: newBus()}
		start(t, outbox.Config{Mode: outbox.MultiNode{Poll: hourly}, Notifier: c}, handled)
		time.Sleep(time.Minute)
		require.LessOrEqual(t, c.listens.Load(), int32(20), "every 5 s in the end")
		require.LessOrEqual(t, len(c.take()), 20, "each wakes all other processes")
	})
}

func TestNotificationsThatDoNotArriveAreReportedOnce(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"deaf": true, "hearing": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, book := newBus(), &logbook{}
				b.deaf = deaf
				e := start(t, outbox.Config{Notifier: b, Logger: slog.New(book)}, heard(nil))
				for range 5 {
					time.Sleep(time.Minute)
					b.disconnect()
				}
				require.NoError(t, e.Close(t.Context()))
				want := 0
				if deaf {
					want = 1
				}
				require.Len(t, book.about("notifications do not arrive"), want)
			})
		})
	}
}

// elsewhere is a notifier for another kind of database.
type elsewhere struct{ *bus }

func (elsewhere) Dialect() string { return "oracle" }

// typed is a store with a dialect.
type typed struct{ outbox.Store }

func (typed) Dialect() string { return "sqlite" }

func TestAWrongNotifierIsAnError(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: store.DB(), Store: typed{store}, Notifier: elsewhere{newBus()}})
	require.ErrorContains(t, err, "Config.Notifier is a outbox_test.elsewhere, which is for oracle; the store is for sqlite")
	_, err = outbox.New(outbox.Config{DB: store.DB(), Store: store, Notifier: (*bus)(nil)})
	require.ErrorContains(t, err, "Config.Notifier is a nil *outbox_test.bus; leave it out for the default")
}

// reads counts the batches that a poller read.
type reads struct {
	outbox.NopMetrics
	n atomic.Int64
}

func (r *reads) BatchRead(int) { r.n.Add(1) }

func TestManyNotificationsAreFewReadings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, metrics := newBus(), &reads{}
		e := start(t, outbox.Config{Mode: outbox.MultiNode{Poll: hourly}, Notifier: b, Metrics: metrics}, heard(nil))
		time.Sleep(time.Second)
		before := metrics.n.Load()
		for range 1000 { // of several processes
			require.NoError(t, b.Notify(t.Context(), nil, ""))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		require.InDelta(t, 51, metrics.n.Load()-before, 1, "one in 20 ms, the last of them after the last notification")
		require.NoError(t, e.Close(t.Context()))
	})
}
