package webtest

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// The code of a request decides how its transaction ends, whatever the status of the response is.
func requestDecides(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	answer := func(status int, text string) Handler {
		return func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(status)
			return write(w, text)
		}
	}
	deciding := func(h Handler, decisions ...func(r *http.Request) error) Handler {
		return s.placing(func(w http.ResponseWriter, r *http.Request) error {
			for _, decide := range decisions {
				if err := decide(r); err != nil {
					return err
				}
			}
			return h(w, r)
		})
	}
	rollback := func(r *http.Request) error { return httptx.Rollback(r.Context()) }
	commit := func(r *http.Request) error { return httptx.Commit(r.Context()) }
	server := serve(t, "HTTP1", fw.New(t, s.app(map[string]Handler{
		"/errors":   deciding(answer(200, "errors"), rollback),
		"/conflict": deciding(answer(409, "conflict"), commit),
		"/returned": deciding(func(http.ResponseWriter, *http.Request) error { return errTest }, commit),
		"/last":     deciding(answer(200, "last"), commit, rollback),
		"/first":    deciding(answer(200, "first"), rollback, commit),
		"/panic":    deciding(func(http.ResponseWriter, *http.Request) error { panic("boom") }, commit),
		"/late": s.placing(func(w http.ResponseWriter, r *http.Request) error {
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
			for _, err := range []error{httptx.Rollback(r.Context()), httptx.Commit(r.Context())} {
				if err := write(w, fmt.Sprint(errors.Is(err, outbox.ErrNoTransaction), " ")); err != nil {
					return err
				}
			}
			return nil
		}),
	})))
	server.post("/errors").is(t, 200, "errors")
	s.want(0, "rollback")
	server.post("/conflict").is(t, 409, "conflict")
	s.want(1, "rollback", "commit")
	server.post("/returned").is(t, 500, "failed")
	s.want(2, "rollback", "commit", "commit")
	server.post("/last").is(t, 200, "last")
	server.post("/first").is(t, 200, "first")
	require.Equal(t, 500, server.post("/panic").StatusCode)
	server.wait()
	s.want(3, "rollback", "commit", "commit", "rollback", "commit", "rollback")
	if !fw.Buffered {
		server.post("/late").is(t, 200, "true true")
	}
	for _, err := range []error{httptx.Rollback(t.Context()), httptx.Commit(t.Context())} {
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
	}
}

// A grpc-status other than 0 rolls back, in the headers or in the trailers.
func grpcStatus(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	with := func(name, code string) Handler {
		return s.placing(func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/grpc")
			w.WriteHeader(http.StatusOK)
			w.Header().Set(name, code)
			return nil
		})
	}
	server := serve(t, "HTTP2", fw.New(t, s.app(map[string]Handler{
		"/ok":     with(http.TrailerPrefix+"Grpc-Status", "0"),
		"/failed": with(http.TrailerPrefix+"Grpc-Status", "13"),
		"/header": with("Grpc-Status", "5"),
	})))
	server.post("/ok").is(t, 200, "")
	s.want(1, "commit")
	got := server.post("/failed")
	got.is(t, 200, "")
	require.Equal(t, "13", got.Trailer.Get("Grpc-Status"))
	server.post("/header").is(t, 200, "")
	s.want(1, "commit", "rollback", "rollback")
}
