package fibermw_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/fibermw"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The dashboard works on Fiber, with its live overview.
func TestTheDashboardOnFiber(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, adaptertest.Main()[2])
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ob.Close(context.Background()) }) //nolint:usetesting // t.Context has ended by then.
	page, err := dashboard.New(dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"orders": ob},
		Access:   httptx.Access{Authorize: func(*http.Request) (string, httptx.Role) { return "ada", httptx.Operate }},
	})
	require.NoError(t, err)
	s := openShop(t, newFiber())
	s.Use("/outbox", fibermw.Handler(http.StripPrefix("/outbox", page)))
	s.Use(fibermw.Transaction(s.transactor))
	s.listen()
	t.Cleanup(page.EndStreams) // before the server shuts down

	got := s.do(s.request(http.MethodGet, "/outbox/orders/", ""))
	require.Equal(t, 200, got.StatusCode)
	require.Contains(t, got.body, "<html")
	for range 2 { // the second stream begins after the first client has gone
		response, err := s.client.Do(s.request(http.MethodGet, "/outbox/orders/live", ""))
		require.NoError(t, err)
		require.Equal(t, 200, response.StatusCode)
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") { //nolint:revive // reads up to the first event
		}
		require.Contains(t, lines.Text(), "data: {", "a figure arrives while the stream is open")
		require.NoError(t, response.Body.Close())
	}
}
