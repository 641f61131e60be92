package httptx_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

func TestStandardMux(t *testing.T) {
	t.Parallel()
	webtest.Run(t, webtest.Framework{New: func(t *testing.T, app webtest.App) http.Handler {
		mux := http.NewServeMux()
		for path, handler := range app.Routes {
			mux.Handle(path, answering(handler))
		}
		if app.Outbox != nil {
			mux.Handle("GET /healthz", httptx.Health(httptx.HealthConfig{Outbox: app.Outbox}))
			mux.Handle("/admin/", http.StripPrefix("/admin", httptx.Admin(app.Outbox, app.Access)))
		}
		return recovering(wrap(t, mux, app))
	}})
}

func TestChi(t *testing.T) {
	t.Parallel()
	webtest.Run(t, webtest.Framework{New: func(t *testing.T, app webtest.App) http.Handler {
		r := chi.NewRouter()
		r.Use(recovering)
		for _, config := range app.Transactions {
			r.Use(middlewareOf(t, config))
		}
		for path, handler := range app.Routes {
			r.Handle(path, answering(handler))
		}
		if app.Outbox != nil {
			r.Get("/healthz", httptx.Health(httptx.HealthConfig{Outbox: app.Outbox}).ServeHTTP)
			r.Mount("/admin", http.StripPrefix("/admin", httptx.Admin(app.Outbox, app.Access)))
		}
		return r
	}})
}

// answering answers a handler's error itself, as net/http's handlers do.
func answering(handler webtest.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := handler(w, r); err != nil {
			http.Error(w, webtest.Text(err), http.StatusInternalServerError)
		}
	})
}

func middlewareOf(t *testing.T, config httptx.TransactionConfig) func(http.Handler) http.Handler {
	t.Helper()
	config.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, webtest.Text(err), http.StatusInternalServerError)
	}
	mw, err := config.ToMiddleware()
	require.NoError(t, err)
	return mw
}

// wrap puts the app's transactions around a handler.
func wrap(t *testing.T, handler http.Handler, app webtest.App) http.Handler {
	t.Helper()
	for i := range app.Transactions {
		handler = middlewareOf(t, app.Transactions[len(app.Transactions)-1-i])(handler)
	}
	return handler
}

// recovering answers a panic with 500.
func recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
