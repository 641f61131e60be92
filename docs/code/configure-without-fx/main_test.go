package main

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func TestTheServiceDeliversAndStops(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	_, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id TEXT, item TEXT)")
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, db.DSN, addr) }()
	request := func(method, path string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	require.Eventually(t, func() bool { return request(http.MethodGet, "/healthz") == http.StatusOK }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, http.StatusCreated, request(http.MethodPost, "/orders/o-1?item=tea"))

	stop()
	require.NoError(t, <-ended)
	var done int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE status = 1").Scan(&done))
	require.Equal(t, 1, done)
}
