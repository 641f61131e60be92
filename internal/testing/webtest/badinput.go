package webtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

// bare is a writer that can neither flush nor hijack nor has deadlines.
type bare struct{ http.ResponseWriter }

// A connection that cannot flush or be hijacked is no reason to commit.
func bareWriter(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	cannot := func(what string, do func(c *http.ResponseController) error) Handler {
		return s.placing(func(w http.ResponseWriter, _ *http.Request) (err error) {
			before := len(s.record.Outcomes())
			defer func() {
				if r := recover(); r != nil { // as echo's Flush does
					err = fmt.Errorf("%s panics: %v", what, r)
				}
				if len(s.record.Outcomes()) > before {
					t.Errorf("%s has ended the transaction", what)
				}
			}()
			if err := do(http.NewResponseController(w)); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: %v", what, err)
			}
			return nil
		})
	}
	app := fw.New(t, s.app(map[string]Handler{
		"/flush": cannot("flushing", func(c *http.ResponseController) error { return c.Flush() }),
		"/hijack": cannot("hijacking", func(c *http.ResponseController) error {
			_, _, err := c.Hijack()
			return err
		}),
	}))
	server := serve(t, "HTTP1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { app.ServeHTTP(bare{w}, r) }))
	require.Contains(t, []int{200, 500}, server.post("/flush").StatusCode)
	server.post("/hijack").is(t, 200, "")
	require.Len(t, s.record.Outcomes(), 2)
}

// A later write by a goroutine of the handler is refused, and does not reach the client.
func lateWrite(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		s := openShop(t, sqlite())
		var kept http.ResponseWriter
		var transaction context.Context
		keeping := func(h Handler) Handler {
			return s.placing(func(w http.ResponseWriter, r *http.Request) error {
				kept, transaction = below(w), r.Context() //nolint:fatcontext // the subject of the test.
				return h(w, r)
			})
		}
		app := fw.New(t, s.app(map[string]Handler{
			"/good":   keeping(forms["created"]),
			"/stream": keeping(forms["flush"]),
			"/error":  keeping(func(http.ResponseWriter, *http.Request) error { return errTest }),
			"/panic":  keeping(func(http.ResponseWriter, *http.Request) error { panic("boom") }),
		}))
		checked := 0
		server := serve(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			app.ServeHTTP(w, r)
			_, err := kept.Write([]byte("late"))
			kept.WriteHeader(http.StatusTeapot)
			flushed := http.NewResponseController(kept).Flush()
			_, late := s.writer.Write(transaction, adaptertest.Event())
			if err != nil && flushed != nil && errors.Is(late, outbox.ErrNoTransaction) && transaction.Err() != nil {
				checked++
			}
		}))
		for path, want := range map[string]string{"/good": "success", "/stream": "successsuccess", "/error": "failed"} {
			require.Equal(t, want, server.post(path).body)
		}
		require.Equal(t, 500, server.post("/panic").StatusCode)
		for range 4 {
			server.wait()
		}
		require.Equal(t, 4, checked, "what was written late is refused")
		s.wantPlaced(2)
	})
}

// broken cannot begin a transaction.
type broken struct{}

func (broken) Begin(context.Context, *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	return nil, nil, errTest
}

func cannotBegin(t *testing.T, fw Framework) {
	server := serve(t, "HTTP1", fw.New(t, App{
		Transactions: []httptx.TransactionConfig{{Transactor: broken{}}},
		Routes:       map[string]Handler{"/": func(http.ResponseWriter, *http.Request) error { panic("it must not run") }},
	}))
	server.post("/").is(t, 500, "failed")
}

// A writer of another pool finds no transaction of its pool.
func foreignTransaction(t *testing.T, fw Framework) {
	s, other := openShop(t, sqlite()), openShop(t, sqlite())
	errs := make(chan error, 1)
	server := serve(t, "HTTP1", fw.New(t, s.app(map[string]Handler{"/": s.placing(func(_ http.ResponseWriter, r *http.Request) error {
		err := other.write(r)
		errs <- err
		return err
	})})))
	server.post("/").is(t, 500, "failed")
	require.ErrorIs(t, <-errs, outbox.ErrForeignTransaction)
	s.want(0, "rollback")
	other.want(0)
}

// The middleware does not know whether a transaction that the handler ended has committed, and the
// answer does not say that the transaction has not.
func endedByHandler(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	ending := func(end func(tx *sql.Tx) error) Handler {
		return s.placing(func(w http.ResponseWriter, r *http.Request) error {
			tx, _ := s.adapter.TxFrom(r.Context())
			return errors.Join(end(tx), forms["created"](w, r))
		})
	}
	server := serve(t, "HTTP1", fw.New(t, s.app(map[string]Handler{
		"/commit": ending((*sql.Tx).Commit), "/rollback": ending((*sql.Tx).Rollback),
	})))
	server.post("/commit").is(t, 500, "unknown")
	s.want(1, "commit")
	server.post("/rollback").is(t, 500, "unknown")
	s.want(1, "commit", "rollback")
}
