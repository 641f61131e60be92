package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// An order that is answered with 201 is in the table and its mail is sent; one
// that is refused leaves neither.
func TestOrdersAndTheirMails(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	mails := make(chan Order, 10)
	s, err := newService(t.Context(), db.DSN, func(_ context.Context, _ string, order Order) error {
		mails <- order
		return nil
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, "127.0.0.1:0") }()

	post := func(body string) *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(answer, request)
		return answer
	}
	answer := post(`{"item":"tea"}`)
	require.Equal(t, http.StatusCreated, answer.Code, answer.Body)
	require.Equal(t, http.StatusBadRequest, post(`{}`).Code)
	select {
	case order := <-mails:
		require.Equal(t, "tea", order.Item)
		require.Contains(t, answer.Body.String(), order.ID)
	case <-time.After(20 * time.Second):
		t.Fatal("no mail was sent")
	}
	var rows int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&rows))
	require.Equal(t, 1, rows)
	stop()
	require.NoError(t, <-ended)
	require.Empty(t, mails)
}

func TestATakenPortIsReported(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	s, err := newService(t.Context(), testdb.Open(t, testdb.Main()[0]).DSN, nil)
	require.NoError(t, err)
	require.ErrorContains(t, s.run(t.Context(), taken.Addr().String()), "address already in use")
}

func TestAMissingDatabaseIsReported(t *testing.T) {
	t.Parallel()
	_, err := newService(t.Context(), "postgres://127.0.0.1:1/none?sslmode=disable", nil)
	require.ErrorContains(t, err, "127.0.0.1:1")
}
