package httptx_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// response is an exchange of a framework whose handlers return an error.
type response struct {
	httptx.Exchange
	handler func(w http.ResponseWriter, r *http.Request) error
}

func (x *response) Handle() error { return x.handler(x.ResponseWriter(), x.Request()) }

func (x *response) Answer(error) {
	if x.Status() == 0 {
		http.Error(x.ResponseWriter(), "failed", http.StatusInternalServerError)
	}
}

func (x *response) RollsBack(status int) bool { return status >= 400 }

func (x *response) Logger() *slog.Logger { return slog.Default() }

// A middleware for a framework whose handlers return an error.
func ExampleExchanger() {
	exchanger, err := httptx.NewExchanger(httptx.TransactionConfig{Transactor: outboxtest.NewTransactor(outboxtest.NewStore().DB())})
	check(err)
	serve := func(w http.ResponseWriter, r *http.Request, handler func(w http.ResponseWriter, r *http.Request) error) error {
		r, wants := exchanger.Wants(r)
		if !wants {
			return handler(w, r)
		}
		x := &response{handler: handler}
		return exchanger.Serve(&x.Exchange, w, r, x)
	}

	recorder := httptest.NewRecorder()
	err = serve(recorder, httptest.NewRequest("POST", "/orders", nil), func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusCreated)
		return nil
	})
	fmt.Println(recorder.Code, err)
	// Output:
	// 201 <nil>
}
