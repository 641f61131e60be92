package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/relay"
)

var placed = outbox.NewTopic[int]("Order", "Placed")

// broker is a publisher that keeps what it got.
type broker struct {
	mu    sync.Mutex
	got   []relay.Message
	calls int
	// refuse returns the error for a message.
	refuse func(m relay.Message) error
}

func (b *broker) Publish(_ context.Context, messages []relay.Message) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	errs := make([]error, len(messages))
	for i, m := range messages {
		if b.refuse != nil {
			errs[i] = b.refuse(m)
		}
		if errs[i] == nil {
			b.got = append(b.got, m)
		}
	}
	return errs
}

func (b *broker) Ping(context.Context) error  { return nil }
func (b *broker) Close(context.Context) error { return nil }

// eventOf is the event id at the end of a message's id.
func eventOf(m relay.Message) string { return m.ID[strings.LastIndexByte(m.ID, ':')+1:] }

func (b *broker) ids() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.got {
		ids = append(ids, eventOf(m))
	}
	return ids
}

// world is an outbox in memory with a relay, within synctest.
type world struct {
	t      *testing.T
	store  *outboxtest.Store
	ob     *outbox.Outbox
	broker *broker
	log    strings.Builder
}

func start(t *testing.T, change func(cfg *relay.Config)) *world {
	t.Helper()
	return startWith(t, outbox.DispatchOptions{}, change)
}

func startWith(t *testing.T, dispatch outbox.DispatchOptions, change func(cfg *relay.Config)) *world {
	t.Helper()
	w := &world{t: t, store: outboxtest.NewStore(), broker: &broker{}}
	cfg := relay.Config{
		Publisher: w.broker, Source: "/orders", Routes: []relay.Route{relay.To("orders", placed.Kind())},
		Batch: outbox.BatchOptions{Size: 100, Wait: time.Millisecond}, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	r, err := relay.New(cfg)
	require.NoError(t, err)
	w.ob, err = outbox.New(outbox.Config{
		DB: w.store.DB(), Store: w.store, Mode: outbox.SingleNode{Dispatch: dispatch, Poll: outbox.PollOptions{Interval: time.Second}},
		RetryPolicy: outbox.ExponentialBackoff(time.Second, time.Second), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, w.ob.Register(r.Bindings()...))
	require.NoError(t, w.ob.Start(t.Context()))
	return w
}

// write writes events whose ids are given as key/id.
func (w *world) write(events ...string) {
	var envs []outbox.Envelope
	for i, e := range events {
		key, id, _ := strings.Cut(e, "/")
		env := placed.Envelope(key, i)
		env.EventID = id
		envs = append(envs, env)
	}
	_, err := w.ob.Writer().WriteUnmanaged(w.t.Context(), w.store.DB(), envs)
	require.NoError(w.t, err)
}

// wait lets the time pass that is needed for everything to end, at most d.
func (w *world) wait(d time.Duration) {
	time.Sleep(d) // of synctest's clock
	synctest.Wait()
}

func (w *world) status(id string) outboxtest.Row {
	row, ok := w.store.Row(id)
	require.True(w.t, ok)
	return row
}

func (w *world) close() { require.NoError(w.t, w.ob.Close(w.t.Context())) }

func TestAnEventIsDoneWhenTheBrokerHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		w.write("a/1", "a/2", "b/3", "/4")
		w.wait(2 * time.Second)
		require.ElementsMatch(t, []string{"1", "2", "3", "4"}, w.broker.ids())
		for _, id := range []string{"1", "2", "3", "4"} {
			require.Equal(t, outbox.StatusDone, w.status(id).Status)
		}
		w.close()
	})
}

func TestTheRestOfAKeyWaitsForItsFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		failed := false
		w.broker.refuse = func(m relay.Message) error {
			if eventOf(m) == "1" && !failed {
				failed = true
				return errors.New("boom")
			}
			return nil
		}
		w.write("a/1", "a/2", "a/3", "b/4")
		w.wait(5 * time.Second)
		var ofA []string
		for _, id := range w.broker.ids() {
			if id != "4" {
				ofA = append(ofA, id)
			}
		}
		require.Equal(t, []string{"1", "2", "3"}, ofA)
		require.Equal(t, "4", w.broker.ids()[0], "another key does not wait")
		w.close()
	})
}

func TestAnOutageCostsNoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		away := true
		w.broker.refuse = func(relay.Message) error {
			if away {
				return fmt.Errorf("%w: connection refused", relay.ErrUnavailable)
			}
			return nil
		}
		var events []string
		for i := range 1000 {
			events = append(events, fmt.Sprintf("k%d/%d", i%100, i))
		}
		w.write(events...)
		w.wait(time.Minute)
		require.Less(t, w.broker.calls, 20, "one call in each backoff, and those that ran at once")
		require.Zero(t, w.status("0").Attempts)
		require.Empty(t, w.broker.ids())
		w.broker.mu.Lock()
		away = false
		w.broker.mu.Unlock()
		w.wait(25 * time.Second)
		require.Len(t, w.broker.ids(), len(events))
		require.Equal(t, 1, strings.Count(w.log.String(), "level=WARN"), w.log.String())
		require.Equal(t, 1, strings.Count(w.log.String(), "level=INFO"), w.log.String())
		require.Regexp(t, `error="relay: publishing event \d+ to \\"orders\\": the broker is not available: connection refused"`, w.log.String())
		w.close()
	})
}

// silent is a broker that does not answer.
type silent struct{ *broker }

func (s silent) Publish(ctx context.Context, messages []relay.Message) []error {
	s.broker.Publish(ctx, messages)
	<-ctx.Done()
	return slices.Repeat([]error{ctx.Err()}, len(messages))
}

// The time of a call is that of the relay or that of the listener, whichever is up first.
func TestASilentBrokerCostsNoAttemptsWithAShorterListenerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := silent{&broker{}}
		w := startWith(t, outbox.DispatchOptions{ListenerTimeout: 2 * time.Second}, func(cfg *relay.Config) { cfg.Publisher = b })
		w.write("a/1", "a/2", "b/3")
		w.wait(time.Minute)
		require.Greater(t, b.calls, 3)
		require.Less(t, b.calls, 20)
		for _, id := range []string{"1", "2", "3"} {
			require.Zero(t, w.status(id).Attempts)
			require.Equal(t, outbox.StatusNew, w.status(id).Status)
		}
		require.Equal(t, 1, strings.Count(w.log.String(), "\n"), w.log.String())
		w.close()
	})
}

func TestARefusedMessageIsADeadLetterWithTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		w.broker.refuse = func(relay.Message) error {
			return fmt.Errorf("%w: 1048577 bytes, the limit is 1048576", relay.ErrRefused)
		}
		w.write("a/1")
		w.wait(5 * time.Second)
		row := w.status("1")
		require.Equal(t, outbox.StatusDead, row.Status)
		require.Contains(t, row.LastError, `relay: publishing event 1 to "orders"`)
		require.Contains(t, row.LastError, "the limit is 1048576")
		require.Equal(t, 1, w.broker.calls)
		w.close()
	})
}

func TestPublishKeepsTheOrderOfItsBatch(t *testing.T) {
	b := &broker{}
	r, err := relay.New(relay.Config{Publisher: b, Source: "/orders", Routes: []relay.Route{relay.To("orders", placed.Kind())}})
	require.NoError(t, err)
	var batch []outbox.Envelope
	for i, id := range []string{"3", "1", "2"} { // committed in this order
		env := placed.Envelope("a", i)
		env.EventID, env.OccurredAt = id, time.Unix(int64(id[0]), 0)
		batch = append(batch, env)
	}
	unknown := batch[0]
	unknown.EventType, unknown.EventID = "Unknown", "4"
	results := r.Publish(t.Context(), append(batch, unknown))
	require.Equal(t, []error{nil, nil, nil}, results[:3])
	require.ErrorIs(t, results[3], relay.ErrUnroutable)
	require.ErrorContains(t, results[3], "event 4")
	require.Equal(t, []string{"3", "1", "2"}, b.ids())
}
