package nethttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// call runs a method of an RPC in a transaction, which is rolled back when the method returns
// an error, whatever the status of the response. Use it in an interceptor.
func call[Req, Res any](tx outbox.Transactor, method func(context.Context, Req) (Res, error)) func(context.Context, Req) (Res, error) {
	return func(ctx context.Context, req Req) (res Res, err error) {
		err = outbox.InTx(ctx, tx, func(ctx context.Context) error {
			res, err = method(ctx, req)
			return err
		})
		return res, err
	}
}

// gRPC answers an error with status 200 and a trailer.
func TestAFailedCallWithStatus200(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	writer := store.Writer()
	tx := outboxtest.NewTransactor(store.DB())
	place := call(tx, func(ctx context.Context, o order) (string, error) {
		id, err := writer.Write(ctx, orderPlaced.Envelope(o.ID, o))
		if o.Item == "" {
			err = errors.Join(err, errors.New("out of stock"))
		}
		return id, err
	})
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := place(r.Context(), order{ID: r.FormValue("id"), Item: r.FormValue("item")}); err != nil {
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "9")
		}
		w.WriteHeader(http.StatusOK)
	})
	for name, handler := range map[string]http.Handler{"alone": served, "within": httptx.Transaction(tx)(served)} {
		for _, query := range []string{"?id=refused-" + name, "?item=tea&id=" + name} {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/shop.Orders/Place"+query, nil))
			require.Equal(t, http.StatusOK, answer.Code)
		}
	}
	var emitted []string
	for _, env := range store.Emitted() {
		emitted = append(emitted, env.AggregateID)
	}
	require.ElementsMatch(t, []string{"alone", "within"}, emitted)
}
