// Package nethttp_test has the code of docs/how-to/web/net-http.md.
package nethttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shop"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

type order = shop.Order

var orderPlaced = shop.OrderPlaced

func newServer(ob *outbox.Outbox, a *sqltx.Adapter) http.Handler {
	orders := http.NewServeMux()
	orders.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		o := order{ID: r.PathValue("id"), Item: "tea"}
		if err := place(r.Context(), a, o); err != nil {
			slog.ErrorContext(r.Context(), "placing an order", "error", err)
			http.Error(w, "not placed", http.StatusInternalServerError) // rolls back
			return
		}
		w.WriteHeader(http.StatusCreated) // sent after the commit
		_ = json.NewEncoder(w).Encode(o)
	})

	mux := http.NewServeMux()
	mux.Handle("/", httptx.Transaction(a)(orders))
	mux.Handle("GET /healthz", httptx.Health(httptx.HealthConfig{Outbox: ob}))
	mux.Handle("/admin/outbox/", http.StripPrefix("/admin/outbox", httptx.Admin(ob, httptx.Access{Authorize: roleOf})))
	return mux
}

// place stores an order and its event in the transaction of the request.
func place(ctx context.Context, a *sqltx.Adapter, o order) error {
	tx, _ := a.TxFrom(ctx)
	// on PostgreSQL: VALUES ($1, $2)
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", o.ID, o.Item); err != nil {
		return err
	}
	_, err := a.Write(ctx, tx, orderPlaced.Envelope(o.ID, o))
	return err
}

// roleOf lets one user operate the outbox, and all others see nothing. That is enough for
// scripts. A browser asks for a password only after a 401: see dashboard.md.
func roleOf(r *http.Request) (user string, role httptx.Role) {
	user, password, _ := r.BasicAuth()
	if user == "ada" && password == "secret" { // ask your own user store
		return user, httptx.Operate
	}
	return "", 0
}

// answer answers a request whose transaction did not begin or did not commit.
func answer(w http.ResponseWriter, r *http.Request, err error) {
	slog.ErrorContext(r.Context(), "the transaction of a request failed", "error", err)
	if errors.Is(err, outbox.ErrOutcomeUnknown) {
		http.Error(w, "look whether the order is there before you try again", http.StatusInternalServerError)
		return
	}
	http.Error(w, "not placed, try again", http.StatusServiceUnavailable)
}

func newRouter(a *sqltx.Adapter, orders http.HandlerFunc) (http.Handler, error) {
	transaction, err := httptx.TransactionConfig{
		Transactor:   a,
		ReadBody:     64 << 10, // before the transaction begins
		ErrorHandler: answer,
	}.ToMiddleware()
	if err != nil {
		return nil, err
	}
	r := chi.NewRouter()
	r.With(transaction).Post("/orders/{id}", orders)
	return r, nil
}

func TestNetHTTP(t *testing.T) {
	t.Parallel()
	s := shop.Open(t)
	status := func(h http.Handler, method, path, user string) int {
		answer := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		request.SetBasicAuth(user, "secret")
		h.ServeHTTP(answer, request)
		return answer.Code
	}
	h := newServer(s.Outbox, s.Adapter)
	require.Equal(t, http.StatusCreated, status(h, "POST", "/orders/o-1", ""))
	require.Equal(t, http.StatusInternalServerError, status(h, "POST", "/orders/o-1", ""))
	require.Equal(t, http.StatusServiceUnavailable, status(h, "GET", "/healthz", ""), "before Start")
	require.Equal(t, http.StatusNoContent, status(h, "POST", "/admin/outbox/wake", "ada"))
	require.Equal(t, http.StatusForbidden, status(h, "POST", "/admin/outbox/wake", "eve"))

	r, err := newRouter(s.Adapter, func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, place(r.Context(), s.Adapter, order{ID: r.PathValue("id"), Item: "tea"}))
		w.WriteHeader(http.StatusCreated)
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status(r, "POST", "/orders/o-2", ""))
	s.Has(t, order{ID: "o-1", Item: "tea"}, order{ID: "o-2", Item: "tea"})

	closed := shop.Open(t)
	r, err = newRouter(closed.Adapter, func(http.ResponseWriter, *http.Request) { t.Error("a request without a transaction") })
	require.NoError(t, err)
	require.NoError(t, closed.DB.Close())
	require.Equal(t, http.StatusServiceUnavailable, status(r, "POST", "/orders/o-3", ""))
}
