package webtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

// GET, HEAD and OPTIONS have no transaction by default, and the writer says so. The
// Skipper skips more.
func methodsAndSkipper(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	config := httptx.TransactionConfig{Transactor: s.adapter, Skipper: func(r *http.Request) bool { return r.URL.Path == "/skipped" }}
	errs := make(chan error, 1)
	without := func(w http.ResponseWriter, r *http.Request) error {
		errs <- errors.Join(s.write(r), httptx.OnCommit(r.Context(), func(context.Context) {}))
		return outbox.InTx(r.Context(), s.adapter, func(ctx context.Context) error {
			w.WriteHeader(http.StatusNoContent)
			return s.place(r.WithContext(ctx))
		})
	}
	server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{
		"/": without, "/skipped": without,
	}}))
	for i, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
		require.Equal(t, 204, server.send(method, "/").StatusCode)
		err := <-errs
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorContains(t, err, method+", which is one of TransactionConfig.ReadOnlyMethods")
		require.ErrorContains(t, err, "mount the Transaction middleware")
		s.wantPlaced(i + 1)
	}
	require.Equal(t, 204, server.post("/skipped").StatusCode)
	err := <-errs
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.NotContains(t, err.Error(), "ReadOnlyMethods;")
	s.wantPlaced(4)
}

func mountedTwice(t *testing.T, fw Framework) {
	s, log := openShop(t, sqlite()), &journal{}
	config := s.config()
	config.Transactor = &watched{s.adapter, log.add}
	server := serve(t, "HTTP1", fw.New(t, App{
		Transactions: []httptx.TransactionConfig{config, config},
		Routes:       map[string]Handler{"/": s.placing(forms["created"])},
	}))
	server.post("/").is(t, 201, "success")
	require.Equal(t, []string{"begin", "commit", "committed"}, log.take())
	s.want(1, "commit")
}

// Two middlewares of the same pool, each with a separate adapter: the inner transaction is a
// savepoint, and the outer transaction decides.
func twoAdapters(t *testing.T, fw Framework) {
	s, log := openShop(t, sqlite()), &journal{}
	inner := s.config()
	inner.Transactor = adaptertest.Adapter(t, s.db, s.writer)
	registering := func(h Handler) Handler {
		return s.placing(func(w http.ResponseWriter, r *http.Request) error {
			err := httptx.OnCommit(r.Context(), func(context.Context) { log.add(fmt.Sprint("on commit ", s.record.Outcomes())) })
			return errors.Join(err, h(w, r))
		})
	}
	server := serve(t, "HTTP1", fw.New(t, App{
		Transactions: []httptx.TransactionConfig{s.config(), inner},
		Routes: map[string]Handler{
			"/good":  registering(forms["created"]),
			"/flush": registering(forms["flush"]),
			"/error": registering(func(http.ResponseWriter, *http.Request) error { return errTest }),
			"/doomed": registering(func(w http.ResponseWriter, r *http.Request) error {
				return errors.Join(s.doom(r), forms["created"](w, r))
			}),
		},
	}))
	server.post("/good").is(t, 201, "success")
	s.want(1, "commit")
	require.Equal(t, []string{"on commit [commit]"}, log.take())
	server.post("/error").is(t, 500, "failed")
	server.post("/doomed").is(t, 500, "not committed")
	s.want(1, "commit", "rollback", "rollback")
	require.Empty(t, log.take(), "nothing has committed")
	if fw.Buffered {
		return
	}
	server.post("/flush").is(t, 200, "successsuccess")
	require.Equal(t, []string{"on commit [commit rollback rollback commit]"}, log.take())
}

// Two databases: the inner transaction commits first, and a failure of the outer transaction is the
// answer. OnCommit waits for both.
func twoPools(t *testing.T, fw Framework) {
	s, other, log := openShop(t, sqlite()), openShop(t, sqlite()), &journal{}
	both := func(h Handler) Handler {
		return s.placing(other.placing(func(w http.ResponseWriter, r *http.Request) error {
			err := httptx.OnCommit(r.Context(), func(context.Context) {
				log.add(fmt.Sprint(s.record.Outcomes(), other.record.Outcomes()))
			})
			return errors.Join(err, h(w, r))
		}))
	}
	server := serve(t, "HTTP1", fw.New(t, App{
		Transactions: []httptx.TransactionConfig{s.config(), other.config()},
		Routes: map[string]Handler{
			"/good":  both(forms["created"]),
			"/error": both(func(http.ResponseWriter, *http.Request) error { return errTest }),
			"/doomed": both(func(w http.ResponseWriter, r *http.Request) error {
				return errors.Join(s.doom(r), forms["created"](w, r))
			}),
		},
	}))
	server.post("/good").is(t, 201, "success")
	s.want(1, "commit")
	other.want(1, "commit")
	require.Equal(t, []string{"[commit] [commit]"}, log.take())
	server.post("/error").is(t, 500, "failed")
	s.want(1, "commit", "rollback")
	other.want(1, "commit", "rollback")
	server.post("/doomed").is(t, 500, "not committed")
	s.want(1, "commit", "rollback", "rollback")
	other.want(2, "commit", "rollback", "commit")
	require.Empty(t, log.take())
}

// OnCommit's functions run in order after the commit, before the response is sent,
// each shielded from the panic of another, and never without a commit.
func onCommit(t *testing.T, fw Framework) {
	s, log := openShop(t, sqlite()), &journal{}
	var kept context.Context
	registering := func(h Handler) Handler {
		return s.placing(func(w http.ResponseWriter, r *http.Request) error {
			for _, name := range []string{"first", "panicking", "last"} {
				err := httptx.OnCommit(r.Context(), func(ctx context.Context) {
					kept = ctx //nolint:fatcontext // the subject of the test.
					log.add(fmt.Sprint(name, " ", adaptertest.Written(t, s.db), " ", s.write(r.WithContext(ctx)) != nil))
					if name == "panicking" {
						panic("boom")
					}
				})
				if err != nil {
					return err
				}
			}
			var field *outbox.FieldError
			if err := httptx.OnCommit(r.Context(), nil); !errors.As(err, &field) {
				return fmt.Errorf("nil is accepted: %w", err)
			}
			return h(w, r)
		})
	}
	server := serve(t, "HTTP1", spied(log.add, fw.New(t, s.app(map[string]Handler{
		"/good":   registering(forms["no content"]),
		"/error":  registering(func(http.ResponseWriter, *http.Request) error { return errTest }),
		"/panic":  registering(func(http.ResponseWriter, *http.Request) error { panic("boom") }),
		"/doomed": registering(func(w http.ResponseWriter, r *http.Request) error { return errors.Join(s.doom(r), write(w, "success")) }),
	}))))
	for _, fate := range []string{"/error", "/panic", "/doomed"} {
		require.Equal(t, 500, server.post(fate).StatusCode)
		server.wait()
		for _, event := range log.take() {
			require.Contains(t, []string{"sent", "returned"}, event)
		}
	}
	server.post("/good").is(t, 204, "")
	server.wait()
	// The row is there, and the context carries no transaction.
	require.Equal(t, []string{"first 1 true", "panicking 1 true", "last 1 true", "sent", "returned"}, log.take())
	require.NoError(t, kept.Err(), "it may outlive the request")
}

func savepoint(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	server := serve(t, "HTTP1", fw.New(t, s.app(map[string]Handler{"/": s.placing(func(w http.ResponseWriter, r *http.Request) error {
		err := outbox.InTx(r.Context(), s.adapter, func(ctx context.Context) error {
			return errors.Join(s.place(r.WithContext(ctx)), errTest)
		})
		if !errors.Is(err, errTest) {
			return fmt.Errorf("the savepoint: %w", err)
		}
		return write(w, "success")
	})})))
	server.post("/").is(t, 200, "success")
	s.want(1, "rollback", "commit")
}
