package webtest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/txretry"
)

// contended is a shop whose transactions can be refused.
type contended struct {
	*shop
	target *testdb.DB
	config httptx.TransactionConfig
}

func openContended(t testing.TB, db *testdb.DB, retries int) *contended {
	t.Helper()
	s := shopOn(t, db)
	target, opts := adaptertest.Conflicting(t, db)
	if target != db {
		s.db = target.DB
		s.writer, s.record = adaptertest.WriterWithoutTable(t, target.DB, string(target.Kind))
		s.adapter = adaptertest.Adapter(t, target.DB, s.writer)
	}
	c := &contended{s, target, s.config()}
	c.config.TxOptions, c.config.Retries = opts, retries
	return c
}

// conflict makes the database refuse the request's transaction.
func (c *contended) conflict(r *http.Request) error {
	tx, _ := c.adapter.TxFrom(r.Context())
	return adaptertest.Conflict(c.t, c.target, func(query string) error {
		_, err := tx.ExecContext(r.Context(), query)
		return err
	})
}

// app has the shop's middleware around these routes.
func (c *contended) app(routes map[string]Handler) App {
	return App{Transactions: []httptx.TransactionConfig{c.config}, Routes: routes}
}

// A request whose transaction the database refused runs again, as if for the first time.
func retries(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
			s := openContended(t, db, 1)
			s.config.RollbackOn = func(_ *http.Request, status int, _ http.Header) bool { return status >= 500 }
			var attempts, committed, rolledBack atomic.Int32
			order := func(refused func(w http.ResponseWriter, err error) error) Handler {
				return func(w http.ResponseWriter, r *http.Request) error {
					attempts.Add(1)
					if err := httptx.OnCommit(r.Context(), func(context.Context) { committed.Add(1) }); err != nil {
						return err
					}
					tx, _ := s.adapter.TxFrom(r.Context())
					if err := s.adapter.AfterRollback(r.Context(), tx, func(context.Context, error) { rolledBack.Add(1) }); err != nil {
						return err
					}
					// Half of the body in the first attempt, all in the second.
					body, err := io.ReadAll(io.LimitReader(r.Body, 5*int64(txretry.Attempt(r.Context()))))
					if err != nil {
						return err
					}
					if r.Header.Get("Once") != "" {
						panic("the handler has changed the header of the next attempt")
					}
					if txretry.Attempt(r.Context()) == 1 {
						r.Header.Set("Once", "1")
						w.Header().Set("Attempt", "1")
						return refused(w, s.conflict(r))
					}
					w.Header().Add("Attempts", "2")
					w.WriteHeader(http.StatusCreated)
					if err := s.place(r); err != nil {
						return err
					}
					return write(w, string(body))
				}
			}
			server := serve(t, protocol, fw.New(t, s.app(map[string]Handler{
				"/returned": order(func(_ http.ResponseWriter, err error) error { return err }),
				"/answered": order(func(w http.ResponseWriter, err error) error {
					w.WriteHeader(http.StatusServiceUnavailable)
					return write(w, err.Error())
				}),
			})))
			for i, path := range []string{"/returned", "/answered"} {
				answer := server.do(server.request(http.MethodPost, path, strings.NewReader("0123456789"), "Content-Type", "text/plain"))
				answer.is(t, 201, "0123456789")
				require.Empty(t, answer.Header.Get("Attempt"))
				require.Equal(t, []string{"2"}, answer.Header["Attempts"])
				n := int32(i + 1)
				require.Equal(t, []int32{2 * n, n, n}, []int32{attempts.Load(), committed.Load(), rolledBack.Load()})
				s.wantPlaced(i + 1)
			}
		})
	})
}

// The ends of the attempts: their number, Stop, a body that is not kept, a response that has left.
func retriesEnd(t *testing.T, fw Framework) {
	s := openContended(t, testdb.Open(t, sqlite()), 2)
	s.config.MaxBuffer = 10
	var attempts atomic.Int32
	conflicting := func(before Handler) Handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			attempts.Add(1)
			err := before(w, r)
			if err == nil {
				err = s.conflict(r)
			}
			return err
		}
	}
	read := func(_ http.ResponseWriter, r *http.Request) error {
		_, err := io.ReadAll(r.Body)
		return err
	}
	server := serve(t, "HTTP1", fw.New(t, s.app(map[string]Handler{
		"/refused": conflicting(func(http.ResponseWriter, *http.Request) error { return nil }),
		"/read":    conflicting(read),
		"/stopped": conflicting(func(_ http.ResponseWriter, r *http.Request) error {
			txretry.Stop(r.Context())
			return nil
		}),
		"/swallowed": func(w http.ResponseWriter, r *http.Request) error {
			attempts.Add(1)
			if s.conflict(r) == nil {
				return errTest
			}
			return write(w, "it was no matter")
		},
		"/other": func(http.ResponseWriter, *http.Request) error {
			attempts.Add(1)
			return errTest
		},
		"/flushed": func(w http.ResponseWriter, r *http.Request) error {
			attempts.Add(1)
			if err := write(w, "streamed"); err != nil {
				return err
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
			return s.conflict(r) // in no transaction
		},
		"/panic": conflicting(func(_ http.ResponseWriter, r *http.Request) error { panic(s.conflict(r)) }),
	})))
	for path, want := range map[string]struct {
		body     string
		status   int
		answer   string
		attempts int32
	}{
		"/refused":   {"", 500, "failed", 3},
		"/read":      {"0123456789", 500, "failed", 3},
		"/read?long": {"0123456789x", 500, "failed", 1},
		"/stopped":   {"", 500, "failed", 1},
		"/swallowed": {"", 200, "it was no matter", 1},
		"/other":     {"", 500, "failed", 1},
	} {
		attempts.Store(0)
		answer := server.do(server.request(http.MethodPost, path, strings.NewReader(want.body)))
		answer.is(t, want.status, want.answer)
		require.Equal(t, want.attempts, attempts.Load(), path)
	}
	for _, path := range []string{"/flushed", "/panic"} {
		attempts.Store(0)
		server.post(path)
		require.Equal(t, int32(1), attempts.Load(), path)
	}
	s.wantPlaced(0)
}

// A conflict that shows at COMMIT, after a handler that succeeded, and one that a request with a key has.
func retriesAtCommit(t *testing.T, fw Framework) {
	testdb.Each(t, adaptertest.Main()[:2], func(t *testing.T, db *testdb.DB) {
		s := openContended(t, db, 1)
		s.config.Idempotency = s.keyed(0, nil).Idempotency
		var attempts atomic.Int32
		server := serve(t, "HTTP1", fw.New(t, s.app(map[string]Handler{
			"/swallowed": func(w http.ResponseWriter, r *http.Request) error {
				attempts.Add(1)
				if txretry.Attempt(r.Context()) == 1 {
					_ = s.conflict(r)
					return write(w, "none")
				}
				return s.ordered(w, r)
			},
		})))
		server.do(server.request(http.MethodPost, "/swallowed", strings.NewReader("an order"))).is(t, 201, "an order")
		require.Equal(t, int32(2), attempts.Load())
		for _, replayed := range []bool{false, true} {
			answer := server.with("k", "/swallowed", "an order")
			answer.is(t, 201, "an order")
			answer.replays(t, replayed)
		}
		require.Equal(t, int32(4), attempts.Load())
		s.wantPlaced(2)
	})
}

// Of two middlewares, the outer one runs everything again, unless the inner one has committed.
func retriesNested(t *testing.T, fw Framework) {
	outer, inner := openContended(t, testdb.Open(t, sqlite()), 1), openContended(t, testdb.Open(t, sqlite()), 5)
	app := outer.app(nil)
	app.Transactions = append(app.Transactions, inner.config)
	var attempts atomic.Int32
	app.Routes = map[string]Handler{
		"/inner": func(w http.ResponseWriter, r *http.Request) error {
			attempts.Add(1)
			if txretry.Attempt(r.Context()) == 1 {
				return inner.conflict(r)
			}
			if err := outer.place(r); err != nil {
				return err
			}
			return inner.ordered(w, r)
		},
		"/outer": func(w http.ResponseWriter, r *http.Request) error {
			attempts.Add(1)
			_ = outer.conflict(r)
			if err := httptx.Rollback(r.Context()); err != nil {
				return err
			}
			return write(w, "rolled back")
		},
	}
	server := serve(t, "HTTP1", fw.New(t, app))
	server.do(server.request(http.MethodPost, "/inner", strings.NewReader("an order"))).is(t, 201, "an order")
	require.Equal(t, int32(2), attempts.Load())
	outer.wantPlaced(1)
	inner.wantPlaced(1)

	attempts.Store(0)
	server.post("/outer").is(t, 200, "rolled back")
	require.Equal(t, int32(2), attempts.Load(), "nothing was committed")
}

// A commit of the inner middleware is not repeated.
func retriesInnerCommit(t *testing.T, fw Framework) {
	outer, inner := openContended(t, testdb.Open(t, sqlite()), 3), openContended(t, testdb.Open(t, sqlite()), 3)
	var attempts atomic.Int32
	app := outer.app(map[string]Handler{"/": func(w http.ResponseWriter, r *http.Request) error {
		attempts.Add(1)
		if err := outer.conflict(r); err == nil {
			return errTest
		}
		return inner.ordered(w, r)
	}})
	app.Transactions[0].RollbackOn = func(*http.Request, int, http.Header) bool { return true }
	app.Transactions = append(app.Transactions, inner.config)
	server := serve(t, "HTTP1", fw.New(t, app))
	server.do(server.request(http.MethodPost, "/", strings.NewReader("an order"))).is(t, 201, "an order")
	require.Equal(t, int32(1), attempts.Load())
	inner.wantPlaced(1)
	outer.wantPlaced(0)
}

// Requests that contend for a row all succeed.
func retriesContention(t *testing.T, fw Framework) {
	const clients, times = 4, 3
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		s := openContended(t, db, 1000)
		server := serve(t, "HTTP2", fw.New(t, s.app(map[string]Handler{"/": func(w http.ResponseWriter, r *http.Request) error {
			tx, _ := s.adapter.TxFrom(r.Context())
			var n int
			query := "SELECT n FROM contended WHERE id = 1"
			if db.Kind == testdb.MySQL { // else it has no conflict: the row is locked from the start
				query += " LOCK IN SHARE MODE"
			}
			if err := tx.QueryRowContext(r.Context(), query).Scan(&n); err != nil {
				return err
			}
			if _, err := tx.ExecContext(r.Context(), "UPDATE contended SET n = n + 1 WHERE id = 1"); err != nil {
				return err
			}
			return s.ordered(w, r)
		}})))
		ended := make(chan answer, clients*times)
		for range clients {
			go func() {
				for range times {
					ended <- server.post("/")
				}
			}()
		}
		for range clients * times {
			(<-ended).is(t, 201, "")
		}
		s.wantPlaced(clients * times)
		var n int
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT n FROM contended").Scan(&n))
		require.Equal(t, clients*times, n)
	})
}
