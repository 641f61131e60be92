// Package servicetest runs the programs of docs/shapes in tests.
package servicetest

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// Open opens a new database with the tables.
func Open(t *testing.T) *testdb.DB {
	t.Helper()
	db := testdb.Open(t, testdb.Via(sqltx.Open, testdb.Main()[:1])[0])
	require.NoError(t, service.CreateTables(t.Context(), db.DB))
	return db
}

// Start runs a program until the test ends.
func Start(t *testing.T, run func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

// Serve is [Start] for a program that answers requests. It returns the address.
func Serve(t *testing.T, run func(ctx context.Context, l net.Listener) error) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	Start(t, func(ctx context.Context) error { return run(ctx, l) })
	return "http://" + l.Addr().String()
}

// Post places an order and returns the status of the answer.
func Post(t *testing.T, address string, header ...string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/orders/o-1/tea", nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

// Delivered waits until the table has n rows that are done.
func Delivered(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	Counts(t, db, "outbox_event WHERE status = 1", n)
}

// Counts waits until a query counts n rows.
func Counts(t *testing.T, db *sql.DB, from string, n int) {
	t.Helper()
	got := -1
	require.Eventually(t, func() bool {
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+from).Scan(&got)
		return err == nil && got == n
	}, time.Minute, 20*time.Millisecond, "%s", fmt.Sprint(from))
}
