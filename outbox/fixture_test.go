package outbox_test

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

var quiet = slog.New(slog.DiscardHandler)

// engine is an outbox on a store in memory. It stops with the test.
type engine struct {
	*outbox.Outbox
	store *outboxtest.Store
	t     *testing.T
}

// patience bounds the waits of tests that would otherwise never end when something fails.
const patience = time.Minute

// closeAfter closes an outbox when the test ends. A listener that would go on only in the rest of a
// test that failed does not keep the test from ending.
func closeAfter(t *testing.T, ob interface{ Close(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = ob.Close(ctx)
	})
}

// receive waits for a value, or for the channel's close. For tests that measure real time: where time
// is simulated, a wait for ever is found.
func receive[T any](t *testing.T, from <-chan T) (x T) {
	t.Helper()
	select {
	case x = <-from:
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
	}
	return x
}

// write writes events in a transaction of their own and commits it.
func (e *engine) write(envs ...outbox.Envelope) []string {
	e.t.Helper()
	scope := outboxtest.NewScope(e.store.DB())
	ids, err := e.Writer().WriteScope(e.t.Context(), scope, envs)
	require.NoError(e.t, err)
	require.NoError(e.t, scope.Commit())
	return ids
}

// await waits until the event has the status, and returns its row.
func (e *engine) await(id string, status outbox.Status) outboxtest.Row {
	e.t.Helper()
	var row outboxtest.Row
	require.Eventually(e.t, func() bool {
		row, _ = e.store.Row(id)
		return row.Status == status
	}, 20*time.Second, time.Millisecond, "event %s never became %s", id, status)
	return row
}

// start builds and starts an engine whose listener of "Said" is fn.
func start(t *testing.T, cfg outbox.Config, fn func(ctx context.Context, env outbox.Envelope) error) *engine {
	t.Helper()
	e := build(t, cfg, fn)
	require.NoError(t, e.Start(t.Context()))
	return e
}

func build(t *testing.T, cfg outbox.Config, fn func(ctx context.Context, env outbox.Envelope) error) *engine {
	t.Helper()
	store, ok := cfg.Store.(*outboxtest.Store)
	if cfg.Store == nil {
		store = outboxtest.NewStore()
		cfg.Store = store
	} else if !ok {
		store = cfg.Store.(interface{ memory() *outboxtest.Store }).memory()
	}
	if cfg.DB == nil {
		cfg.DB = store.DB()
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	ob, err := outbox.New(cfg)
	require.NoError(t, err)
	if fn != nil {
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(fn))))
	}
	closeAfter(t, ob)
	return &engine{Outbox: ob, store: store, t: t}
}

func said(id string) outbox.Envelope {
	return outbox.Envelope{EventID: id, EventType: "Said", Payload: outbox.JSON(id)}
}

// calls counts deliveries by event.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[id]++
	return c.n[id]
}

func (c *calls) of(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[id]
}

func (c *calls) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

func (c *calls) total() (events, deliveries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.n {
		events, deliveries = events+1, deliveries+n
	}
	return events, deliveries
}
