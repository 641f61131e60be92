package dashboard_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// running are outboxes that come and go.
type running struct {
	mu   sync.Mutex
	list map[string]*outbox.Outbox
}

func (r *running) now() map[string]*outbox.Outbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.list)
}

// add adds an outbox with so many due events.
func (r *running) add(t *testing.T, name string, events int) *outbox.Outbox {
	t.Helper()
	store := outboxtest.NewStore()
	for i := range events {
		now := time.Now().UTC()
		require.NoError(t, store.Insert(t.Context(), store.DB(), []outbox.Envelope{{EventID: fmt.Sprint("e", i), EventType: "T", AggregateType: outbox.Global, Payload: outbox.RawJSON("1"), OccurredAt: now, AvailableAt: now}}, "", now))
	}
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ob.Close(t.Context()) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list[name] = ob
	return ob
}

func (r *running) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.list, name)
}

func TestOutboxesThatComeAndGoHavePages(t *testing.T) {
	t.Parallel()
	r := &running{list: map[string]*outbox.Outbox{}}
	s := newSite(t, dashtest.Shop(time.Now()), func(c *dashboard.Config) { c.Running = r.now })
	require.Contains(t, s.get("/shop/"), `<dd data-text="due">1</dd>`)
	require.Equal(t, http.StatusNotFound, s.send(http.MethodGet, "/acme/", nil).StatusCode)

	first := r.add(t, "acme", 3)
	page := s.get("/acme/")
	require.Contains(t, page, `<dd data-text="due">3</dd>`)
	require.Contains(t, page, `<a href="../acme/" aria-current="true">acme</a><a href="../shop/">shop</a>`)
	require.NoError(t, first.Close(t.Context()))
	r.add(t, "acme", 5)
	require.Contains(t, s.get("/acme/"), `<dd data-text="due">5</dd>`, "the tenant was opened again")
	r.remove("acme")
	require.Equal(t, http.StatusNotFound, s.send(http.MethodGet, "/acme/", nil).StatusCode)
	require.NotContains(t, s.get("/shop/"), "acme")

	r.add(t, "shop", 9)
	require.NotContains(t, s.get("/shop/"), `<dd data-text="due">9</dd>`, "an outbox of Outboxes stays")
	r.add(t, "no name", 1)
	require.NotContains(t, s.get("/shop/"), "no name")
	require.Equal(t, http.StatusNotFound, s.send(http.MethodGet, "/no%20name/", nil).StatusCode)
}

func TestManyOutboxesAreFoundByName(t *testing.T) {
	t.Parallel()
	r := &running{list: map[string]*outbox.Outbox{}}
	s := newSite(t, nil, func(c *dashboard.Config) { c.Outboxes, c.Running = nil, r.now })
	require.Equal(t, http.StatusServiceUnavailable, s.send(http.MethodGet, "/", nil).StatusCode, "no outbox runs")
	to := func(path string) string { return s.send(http.MethodGet, path, nil).Header.Get("Location") }
	r.add(t, "tenant-000", 0)
	require.Equal(t, "tenant-000/", to("/"))
	for i := 1; i < 300; i++ {
		r.add(t, fmt.Sprintf("tenant-%03d", i), 0)
	}
	root := s.get("/")
	require.Contains(t, root, "300 of 300 outboxes that run in this process. The first 200:")
	require.Equal(t, 200, strings.Count(root, "<li>"))
	require.Contains(t, s.get("/?outbox=tenant-29"), "10 of 300 outboxes that run in this process have a name that begins with <code>tenant-29</code>.")
	require.Contains(t, s.get("/?outbox=%3Cb%3E"), "<code>&lt;b&gt;</code>")
	require.Equal(t, "tenant-299/", to("/?outbox=tenant-299"))
	page := s.get("/tenant-299/events")
	require.Contains(t, page, `<form action="../" class="jump"`)
	require.NotContains(t, page, "tenant-298")
	require.Equal(t, http.StatusBadRequest, s.send(http.MethodGet, "/?outbox="+strings.Repeat("x", 65), nil).StatusCode)
}
