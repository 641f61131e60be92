package webtest

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// A status of 400 or more, an error and a panic roll back.
func statusDecides(t *testing.T, fw Framework) {
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		adaptertest.Exec(t, db.DB, "CREATE TABLE orders (id INT)")
		writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
		s := &shop{t, db.DB, db.Kind, writer, record, adaptertest.Adapter(t, db.DB, writer)}
		server := serve(t, "HTTP1", fw.New(t, s.app(map[string]Handler{
			"/created": s.placing(forms["created"]),
			"/conflict": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(http.StatusConflict)
				return write(w, "conflict")
			}),
			"/status": s.placing(func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(http.StatusGone); return nil }),
			"/error":  s.placing(func(http.ResponseWriter, *http.Request) error { return errTest }),
			"/panic":  s.placing(func(http.ResponseWriter, *http.Request) error { panic("boom") }),
			"/overflow": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(http.StatusBadRequest)
				return write(w, big)
			}),
		})))
		server.post("/created").is(t, 201, "success")
		s.want(1, "commit")
		server.post("/conflict").is(t, 409, "conflict")
		server.post("/status").is(t, 410, "")
		server.post("/overflow").is(t, 400, strings.TrimSpace(big))
		server.post("/error").is(t, 500, "failed")
		require.Equal(t, 500, server.post("/panic").StatusCode)
		s.want(1, "commit", "rollback", "rollback", "rollback", "rollback", "rollback")
	})
}

// RollbackOn replaces the rule.
func rollbackOn(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	config := s.config()
	config.RollbackOn = func(r *http.Request, status int, _ http.Header) bool {
		return status >= 500 || r.URL.Query().Has("dry")
	}
	server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{
		"/ok":      s.placing(forms["created"]),
		"/nothing": s.placing(forms["nothing"]),
		"/denied": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusUnauthorized)
			return write(w, "denied")
		}),
		"/error": s.placing(func(http.ResponseWriter, *http.Request) error { return errTest }),
	}}))
	server.post("/ok").is(t, 201, "success")
	server.post("/nothing").is(t, 200, "")
	server.post("/denied").is(t, 401, "denied")
	s.want(3, "commit", "commit", "commit")
	server.post("/error").is(t, 500, "failed")
	server.post("/ok?dry=1").is(t, 201, "success")
	s.want(3, "commit", "commit", "commit", "rollback", "rollback")
}

// A success that was written is dropped when the handler then panics.
func failureReplaces(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		s := openShop(t, sqlite())
		routes := map[string]Handler{}
		for _, name := range []string{"created", "set late", "trailer", "redirect"} {
			form := forms[name]
			routes[path(name)] = s.placing(func(w http.ResponseWriter, r *http.Request) error {
				w.Header().Set("Set-Cookie", "success=1")
				panic(errors.Join(form(w, r), errTest))
			})
		}
		server := serve(t, protocol, fw.New(t, s.app(routes)))
		var rollbacks []string
		for route := range routes {
			got := server.post(route)
			require.Equal(t, 500, got.StatusCode)
			require.NotContains(t, got.body, "success")
			for _, header := range []string{"Set-Cookie", "Location", "X-Early", "Trailer"} {
				require.Empty(t, got.Header.Get(header), route)
			}
			rollbacks = append(rollbacks, "rollback")
			s.want(0, rollbacks...)
		}
	})
}
