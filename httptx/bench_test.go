package httptx_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

func BenchmarkRequest(b *testing.B) {
	webtest.Benchmark(b, func(shop webtest.BenchShop) http.Handler {
		mux := http.NewServeMux()
		created := func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(webtest.Order)
		}
		mux.HandleFunc("/hand", func(w http.ResponseWriter, r *http.Request) {
			if shop.ByHand(r.Context()) == nil {
				created(w)
			}
		})
		mux.Handle("/middleware", httptx.Transaction(shop.Adapter)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if shop.InTx(r.Context()) == nil {
				created(w)
			}
		})))
		return mux
	})
}
