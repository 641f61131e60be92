package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/tenants"
)

var quiet = slog.New(slog.DiscardHandler)

// house has a store in memory for each tenant.
type house struct {
	mu     sync.Mutex
	stores map[string]*outboxtest.Store
	open   map[string]int // how often each is open
	opened map[string]int // how often it was opened
	fails  map[string]error
	atOnce atomic.Int32
	most   atomic.Int32
	got    []string
}

func newHouse() *house {
	return &house{stores: map[string]*outboxtest.Store{}, open: map[string]int{}, opened: map[string]int{}, fails: map[string]error{}}
}

func (h *house) store(name string) *outboxtest.Store {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stores[name] == nil {
		h.stores[name] = outboxtest.NewStore()
	}
	return h.stores[name]
}

func (h *house) enter(_ context.Context, name string) (opened tenants.Tenant[string], err error) {
	h.most.Store(max(h.most.Load(), h.atOnce.Add(1)))
	time.Sleep(10 * time.Millisecond) // in a bubble of synctest
	h.atOnce.Add(-1)
	store := h.store(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opened[name]++
	if err := h.fails[name]; err != nil {
		return opened, err
	}
	h.open[name]++
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: quiet, Mode: outbox.MultiNode{}})
	if err != nil {
		return opened, err
	}
	err = ob.Register(outbox.On("", "Placed", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, name+"/"+env.EventID)
		return nil
	})))
	return tenants.Tenant[string]{Outbox: ob, Value: "the adapter of " + name, Close: func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.open[name]--
		return nil
	}}, err
}

func (h *house) fail(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails[name] = err
}

func (h *house) count(of map[string]int, name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return of[name]
}

func (h *house) manager(t *testing.T, change func(*tenants.Config[string])) *tenants.Manager[string] {
	t.Helper()
	cfg := tenants.Config[string]{Open: h.enter, Logger: quiet}
	if change != nil {
		change(&cfg)
	}
	m, err := tenants.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close(context.WithoutCancel(t.Context()))) })
	return m
}

func names(m *tenants.Manager[string]) []string { return slices.Sorted(maps.Keys(m.Outboxes())) }

func TestTenantsComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse()
		m := h.manager(t, nil)
		require.Empty(t, names(m))
		require.NoError(t, m.Set(t.Context(), "acme", "globex"))
		var value string
		require.NoError(t, m.Use(t.Context(), "acme", func(v string) error { value = v; return nil }), "Use waits until the tenant is open")
		require.Equal(t, "the adapter of acme", value)
		synctest.Wait()
		require.Equal(t, []string{"acme", "globex"}, names(m))

		deliver(t, h, m, "acme", "1")
		require.NoError(t, m.Set(t.Context(), "globex", "initech"))
		require.Zero(t, h.count(h.open, "acme"), "Set waits until the tenant is closed")
		require.Equal(t, 1, h.count(h.open, "globex"))
		require.Equal(t, 1, h.count(h.opened, "globex"), "a tenant that stays is left alone")
		require.ErrorIs(t, m.Use(t.Context(), "acme", never), tenants.ErrUnknown)

		require.NoError(t, m.Set(t.Context(), "acme"))
		deliver(t, h, m, "acme", "2")
		require.Equal(t, []string{"acme"}, names(m))
		require.NoError(t, m.Close(t.Context()))
		require.NoError(t, m.Close(t.Context()), "a second Close is harmless")
		for name := range h.stores {
			require.Zero(t, h.count(h.open, name), name)
		}
		require.ErrorIs(t, m.Set(t.Context(), "acme"), outbox.ErrClosed)
		require.ErrorIs(t, m.Use(t.Context(), "acme", never), outbox.ErrClosed)
		require.Equal(t, []string{"acme/1", "acme/2"}, h.got)
	})
}

func never(string) error { panic("called") }

// deliver writes an event for a tenant and waits until it is delivered.
func deliver(t *testing.T, h *house, m *tenants.Manager[string], name, id string) {
	t.Helper()
	store := h.store(name)
	require.NoError(t, m.Use(t.Context(), name, func(string) error {
		now := time.Now().UTC()
		return store.Insert(t.Context(), store.DB(), []outbox.Envelope{{EventID: id, EventType: "Placed", AggregateType: outbox.Global, Payload: outbox.RawJSON("{}"), OccurredAt: now, AvailableAt: now}}, "", now)
	}))
	for range 100 {
		h.mu.Lock()
		got := slices.Contains(h.got, name+"/"+id)
		h.mu.Unlock()
		if got {
			return
		}
		time.Sleep(time.Second)
	}
	require.Fail(t, "the event was not delivered")
}

// A database that is away concerns its own tenant, which is opened when the database is back.
func TestATenantThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse()
		m := h.manager(t, nil)
		refused := errors.New("connection refused")
		h.fail("acme", refused)
		require.NoError(t, m.Set(t.Context(), "acme", "globex"))
		err := m.Use(t.Context(), "acme", never)
		require.ErrorIs(t, err, refused)
		require.ErrorContains(t, err, "acme")
		require.NoError(t, m.Use(t.Context(), "globex", func(string) error { return nil }))
		require.Equal(t, []string{"globex"}, names(m))
		require.ErrorIs(t, m.Failing()["acme"], refused)
		require.Len(t, m.Failing(), 1)

		time.Sleep(time.Hour)
		tries := h.count(h.opened, "acme")
		require.InDelta(t, 65, tries, 3, "after 1, 2, 4, … 60 s")
		require.Error(t, m.Use(t.Context(), "acme", never), "Use does not wait for the next attempt")
		h.fail("acme", nil)
		time.Sleep(time.Minute + time.Second)
		require.NoError(t, m.Use(t.Context(), "acme", func(string) error { return nil }))
		require.Empty(t, m.Failing())

		h.fail("initech", refused)
		require.NoError(t, m.Set(t.Context(), "initech"))
		time.Sleep(time.Second)
		require.NoError(t, m.Set(t.Context()), "a tenant that waits for its next attempt leaves at once")
	})
}

// A tenant that panics, returns no outbox or whose table is missing does not end the process, and leaves nothing open.
func TestWhatOpenMayDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Int32
		closes := func() error { left.Add(-1); return errors.New("and closing fails") }
		store := outboxtest.NewStore()
		m, err := tenants.New(tenants.Config[int]{Logger: quiet, Open: func(ctx context.Context, name string) (opened tenants.Tenant[int], err error) {
			switch name {
			case "panics":
				panic("no such tenant")
			case "hangs":
				<-ctx.Done()
				return opened, ctx.Err()
			case "none":
				left.Add(1)
				return tenants.Tenant[int]{Close: closes}, nil
			default:
				left.Add(1)
				ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: broken{store}, Logger: quiet})
				return tenants.Tenant[int]{Outbox: ob, Close: closes}, err
			}
		}})
		require.NoError(t, err)
		require.NoError(t, m.Set(t.Context(), "panics", "hangs", "none", "broken"))
		time.Sleep(time.Minute)
		failing := m.Failing()
		require.ErrorContains(t, failing["panics"], "no such tenant")
		require.ErrorIs(t, failing["hangs"], context.DeadlineExceeded)
		require.ErrorContains(t, failing["none"], "tenants.Tenant.Outbox is nil")
		require.ErrorContains(t, failing["none"], "and closing fails")
		require.ErrorContains(t, failing["broken"], "the table is missing")
		require.NoError(t, m.Close(t.Context()))
		require.Zero(t, left.Load())
	})
}

// broken is a store whose table is missing.
type broken struct{ *outboxtest.Store }

func (broken) Check(context.Context, outbox.DB, bool) error {
	return errors.New("the table is missing")
}

// A tenant that is removed closes after those that use it.
func TestATenantIsNotClosedWhileItIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse()
		m := h.manager(t, nil)
		require.NoError(t, m.Set(t.Context(), "acme"))
		begun, end := make(chan struct{}), make(chan struct{})
		used := make(chan error)
		go func() {
			used <- m.Use(t.Context(), "acme", func(string) error { close(begun); <-end; return errors.New("its own error") })
		}()
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := m.Set(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 tenants are still closing")
		require.Equal(t, 1, h.count(h.open, "acme"))

		// The same tenant comes again: it is opened when the first has closed.
		require.NoError(t, m.Set(t.Context(), "acme"))
		time.Sleep(time.Minute)
		require.Equal(t, 1, h.count(h.opened, "acme"))
		close(end)
		require.EqualError(t, <-used, "its own error")
		require.NoError(t, m.Use(t.Context(), "acme", func(string) error { return nil }))
		require.Equal(t, 2, h.count(h.opened, "acme"))
		require.Equal(t, 1, h.count(h.open, "acme"))
	})
}

func TestAUseThatWaitsEndsWithItsContextAndWithItsTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := tenants.New(tenants.Config[string]{Logger: quiet, OpenTimeout: 24 * time.Hour, Open: func(ctx context.Context, _ string) (opened tenants.Tenant[string], err error) {
			<-ctx.Done()
			return opened, ctx.Err()
		}})
		require.NoError(t, err)
		require.NoError(t, m.Set(t.Context(), "acme"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, m.Use(ctx, "acme", never), context.DeadlineExceeded)
		used := make(chan error)
		go func() { used <- m.Use(t.Context(), "acme", never) }()
		synctest.Wait()
		require.NoError(t, m.Close(t.Context()))
		require.ErrorIs(t, <-used, tenants.ErrUnknown)
	})
}

func TestFewTenantsAreOpenedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse()
		m := h.manager(t, func(c *tenants.Config[string]) { c.Opening = 3 })
		var all []string
		for i := range 40 {
			all = append(all, fmt.Sprint("t", i))
		}
		require.NoError(t, m.Set(t.Context(), all...))
		for _, name := range all {
			require.NoError(t, m.Use(t.Context(), name, func(string) error { return nil }))
		}
		require.Len(t, m.Outboxes(), 40)
		require.EqualValues(t, 3, h.most.Load())
	})
}

func TestSetChangesNothingIfItFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse()
		m := h.manager(t, func(c *tenants.Config[string]) { c.Max = 3 })
		require.NoError(t, m.Set(t.Context(), "a", "b"))
		var field *outbox.FieldError
		for _, bad := range []string{"", "a/b", "-a", strings.Repeat("a", 65), "ä", "../a"} {
			require.ErrorAs(t, m.Set(t.Context(), "c", bad), &field, bad)
		}
		require.ErrorContains(t, m.Set(t.Context(), "a", "b", "c", "d"), "got 4 tenants, and 0 more are closing; Config.Max is 3")
		require.ErrorContains(t, m.Set(t.Context(), "c", "d"), "got 2 tenants, and 2 more are closing; Config.Max is 3")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a", "b"}, names(m))
		require.NoError(t, m.Set(t.Context(), "a", "b", "b", "c"))
	})
}

func TestAnInvalidConfigIsReportedWhole(t *testing.T) {
	t.Parallel()
	_, err := tenants.New(tenants.Config[int]{Opening: -1, Max: -1, OpenTimeout: -1, MaxBackoff: time.Millisecond})
	for _, field := range []string{"Open", "Opening", "Max", "OpenTimeout", "MaxBackoff"} {
		require.ErrorContains(t, err, "tenants.Config."+field+" ")
	}
}
