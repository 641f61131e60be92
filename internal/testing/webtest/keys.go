package webtest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// keyed is the middleware of the shop's adapter with keys.
func (s *shop) keyed(wait time.Duration, change func(*httptx.Idempotency)) httptx.TransactionConfig {
	s.t.Helper()
	keys, err := idempotency.New(idempotency.Config{DB: s.db, Dialect: idempotency.Dialect(s.kind), Wait: wait})
	require.NoError(s.t, err)
	require.NoError(s.t, keys.CreateSchema(s.t.Context()))
	config := s.config()
	config.Idempotency = &httptx.Idempotency{Keys: keys}
	if change != nil {
		change(config.Idempotency)
	}
	return config
}

// with sends a request with a key and a body.
func (s *server) with(key, path, body string, headers ...string) answer {
	s.t.Helper()
	return s.do(s.request(http.MethodPost, path, strings.NewReader(body), append(headers, httptx.KeyHeader, key)...))
}

// replays checks that an answer is a stored answer, or not.
func (a answer) replays(t testing.TB, want bool) {
	t.Helper()
	require.Equal(t, want, a.Header.Get(httptx.ReplayedHeader) == "true", "%s: %s", httptx.ReplayedHeader, a.Header)
}

// problem is the detail of a problem document.
func (a answer) problem(t testing.TB, status int) string {
	t.Helper()
	require.Equal(t, status, a.StatusCode)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	var problem struct {
		Status int
		Detail string
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &problem))
	require.Equal(t, status, problem.Status)
	return problem.Detail
}

// ordered is a handler that places an order and answers with the request's body.
func (s *shop) ordered(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := s.place(r); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/order")
	w.Header().Set("Location", "/orders/1")
	w.Header().Set("Set-Cookie", "session=secret")
	w.WriteHeader(http.StatusCreated)
	_, err = w.Write(body)
	return err
}

// A request that comes again with its key gets the stored answer.
func keyReplays(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
			s := shopOn(t, db)
			config := s.keyed(0, func(c *httptx.Idempotency) {
				c.Scope = func(r *http.Request) string { return r.Header.Get("Tenant") }
				c.Headers = []string{"Currency"}
			})
			server := serve(t, protocol, fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{
				"/orders": s.ordered, "/nothing": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
					w.Header().Set("Location", "/orders/2")
					return nil
				}),
			}}))
			first := server.with("k", "/orders", "an order")
			first.is(t, 201, "an order")
			first.replays(t, false)
			require.NotEmpty(t, first.Header.Get("Set-Cookie"))
			for _, key := range []string{"k", `"k"`, ` k`} {
				again := server.with(key, "/orders", "an order")
				again.is(t, 201, "an order")
				again.replays(t, true)
				require.Equal(t, "text/order", again.Header.Get("Content-Type"))
				require.Equal(t, "/orders/1", again.Header.Get("Location"))
				require.Empty(t, again.Header.Get("Set-Cookie"))
			}
			s.wantPlaced(1)

			for _, other := range []answer{
				server.with("k", "/orders", "another order"), server.with("k", "/orders?q", "an order"),
				server.do(server.request(http.MethodPut, "/orders", strings.NewReader("an order"), httptx.KeyHeader, "k")),
				server.with("k", "/nothing", "an order"), server.with("k", "/orders", "an order", "Currency", "EUR"),
			} {
				require.Contains(t, other.problem(t, 422), "another request")
			}
			s.wantPlaced(1)
			server.with("k", "/orders", "an order", "Tenant", "another").replays(t, false)
			server.post("/orders").is(t, 201, "")
			server.post("/orders").is(t, 201, "")
			s.wantPlaced(4)

			server.with("nothing", "/nothing", "").is(t, 200, "")
			again := server.with("nothing", "/nothing", "")
			again.is(t, 200, "")
			again.replays(t, true)
			require.Equal(t, "/orders/2", again.Header.Get("Location"))
			s.wantPlaced(5)
		})
	})
}

// Requests without a key, with a key that is not valid, and with a body that is too long.
func keyRefused(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	config := s.keyed(0, func(c *httptx.Idempotency) {
		c.MaxBody = 10
		c.Use = func(r *http.Request) httptx.KeyUse {
			return map[string]httptx.KeyUse{"/required": httptx.KeyRequired, "/ignored": httptx.KeyIgnored}[r.URL.Path]
		}
	})
	server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{
		"/required": s.ordered, "/optional": s.ordered, "/ignored": s.ordered,
	}}))
	require.Contains(t, server.post("/required").problem(t, 400), "is required")
	server.post("/optional").is(t, 201, "")
	for _, key := range []string{"", `"`, `""`, `"a`, `a"b`, `"a"b`, `"\a"`, "ü", strings.Repeat("k", 256)} {
		require.Contains(t, server.with(key, "/required", "").problem(t, 400), "is not valid", key)
		server.with(key, "/ignored", "").is(t, 201, "")
	}
	s.wantPlaced(10)
	server.with(`"\"\\"`, "/required", "0123456789").is(t, 201, "0123456789")
	require.Contains(t, server.with("long", "/required", "0123456789a").problem(t, 413), "10 bytes")
	twice := server.request(http.MethodPost, "/required", nil)
	twice.Header[httptx.KeyHeader] = []string{"a", "b"}
	require.Contains(t, server.do(twice).problem(t, 400), "2 headers")
	s.wantPlaced(11)
}

// A request that comes to nothing stores nothing, unless its failure is to be stored.
func keyRollback(t *testing.T, fw Framework) {
	testdb.Each(t, committing(), func(t *testing.T, db *testdb.DB) {
		s := shopOn(t, db)
		config := s.keyed(0, func(c *httptx.Idempotency) {
			c.StoreFailure = func(_ *http.Request, status int) bool { return status == 402 }
		})
		var calls atomic.Int32
		failing := func(h Handler) Handler {
			return s.placing(func(w http.ResponseWriter, r *http.Request) error {
				if calls.Add(1) == 1 {
					return h(w, r)
				}
				w.WriteHeader(http.StatusCreated)
				return write(w, "success")
			})
		}
		status := func(status int) Handler {
			return func(w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(status)
				return write(w, "failed")
			}
		}
		server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{
			"/error":   failing(func(http.ResponseWriter, *http.Request) error { return errTest }),
			"/panic":   failing(func(http.ResponseWriter, *http.Request) error { panic("boom") }),
			"/status":  failing(status(409)),
			"/refused": failing(status(402)),
			"/doomed": failing(func(w http.ResponseWriter, r *http.Request) error {
				w.WriteHeader(http.StatusCreated)
				return s.doom(r)
			}),
		}}))
		placed := 0
		for _, path := range []string{"/error", "/panic", "/status", "/doomed"} {
			calls.Store(0)
			require.GreaterOrEqual(t, server.with(path, path, "").StatusCode, 400)
			s.wantPlaced(placed)
			again := server.with(path, path, "")
			again.is(t, 201, "success")
			again.replays(t, false)
			placed++
			server.with(path, path, "").replays(t, true)
			s.wantPlaced(placed)
		}
		calls.Store(0)
		for i := range 3 {
			refused := server.with("refused", "/refused", "")
			refused.is(t, 402, "failed")
			refused.replays(t, i > 0)
		}
		require.EqualValues(t, 1, calls.Load())
		s.wantPlaced(placed)
	})
}

// The body of a response that left before it was complete is not stored.
func keyStream(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	streams := map[string]Handler{
		"/flush": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			if err := write(w, "part"); err != nil {
				return err
			}
			return http.NewResponseController(w).Flush()
		}),
		"/overflow": s.placing(func(w http.ResponseWriter, _ *http.Request) error { return write(w, big) }),
	}
	if fw.Buffered {
		delete(streams, "/flush")
	}
	for _, withoutBody := range []bool{false, true} {
		config := s.keyed(0, func(c *httptx.Idempotency) { c.WithoutBody = withoutBody })
		server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: streams}))
		for path := range streams {
			key := path + strconv.FormatBool(withoutBody)
			first := server.with(key, path, "")
			require.Less(t, first.StatusCode, 300)
			require.NotEmpty(t, first.body)
			again := server.with(key, path, "")
			if !withoutBody {
				require.Contains(t, again.problem(t, 409), "not stored")
				continue
			}
			again.is(t, first.StatusCode, "")
			again.replays(t, true)
			require.Equal(t, first.Header.Get("Location"), again.Header.Get("Location"))
		}
	}
	s.wantPlaced(2 * len(streams))
}

// A request that comes while the first is running waits, for a bounded time. On SQLite a second process
// waits for the lock of the whole database.
func keyRunning(t *testing.T, fw Framework) {
	testdb.Each(t, adaptertest.Main()[:2], func(t *testing.T, db *testdb.DB) {
		s := shopOn(t, db)
		began, goOn := make(chan struct{}), make(chan struct{})
		first := s.keyed(time.Minute, nil)
		slow := func(w http.ResponseWriter, r *http.Request) error {
			close(began)
			<-goOn
			return s.ordered(w, r)
		}
		server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{first}, Routes: map[string]Handler{"/": slow}}))
		impatient := serve(t, "HTTP1", fw.New(t, App{
			Transactions: []httptx.TransactionConfig{s.keyed(100*time.Millisecond, nil)}, Routes: map[string]Handler{"/": slow},
		}))
		patient := serve(t, "HTTP1", fw.New(t, App{
			Transactions: []httptx.TransactionConfig{s.keyed(time.Minute, nil)}, Routes: map[string]Handler{"/": slow},
		}))
		var wg sync.WaitGroup
		wg.Go(func() { server.with("k", "/", "an order").is(t, 201, "an order") })
		<-began
		again := impatient.with("k", "/", "an order") // of another process
		require.Contains(t, again.problem(t, 409), "still running")
		require.Equal(t, "1", again.Header.Get("Retry-After"))
		wg.Go(func() {
			waited := patient.with("k", "/", "an order") // in another process
			waited.is(t, 201, "an order")
			waited.replays(t, true)
		})
		close(goOn)
		wg.Wait()
		s.wantPlaced(1)
	})
}

// The answer of the database to COMMIT is lost: the client gets its answer all the same.
func keyLostAnswer(t *testing.T, fw Framework) {
	for _, target := range adaptertest.Servers() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Open(t, target)
			s := shopOn(t, db)
			cutting, cuts := db.CutCommits(t)
			cut := &shop{t, cutting.DB, s.kind, nil, s.record, nil}
			cut.writer, _ = adaptertest.WriterWithoutTable(t, cutting.DB, string(s.kind))
			cut.adapter = adaptertest.Adapter(t, cutting.DB, cut.writer)
			_ = s.keyed(0, nil) // creates the table
			keys, err := idempotency.New(idempotency.Config{DB: cutting.DB, Dialect: idempotency.Dialect(s.kind), Wait: 20 * time.Second})
			require.NoError(t, err)
			config := cut.config()
			config.Idempotency = &httptx.Idempotency{Keys: keys}
			var committed atomic.Int32
			server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{
				"/": func(w http.ResponseWriter, r *http.Request) error {
					return errors.Join(httptx.OnCommit(r.Context(), func(context.Context) { committed.Add(1) }), cut.ordered(w, r))
				},
			}}))
			for i := range 3 {
				for j := range 2 {
					got := server.with(fmt.Sprint(i), "/", "an order")
					got.is(t, 201, "an order")
					got.replays(t, j > 0)
				}
			}
			require.NotZero(t, cuts.Load())
			require.EqualValues(t, 3, committed.Load())
			s.wantPlaced(3)
		})
	}
}

// A client that is killed at any moment sends its request again until it gets an answer: one order.
func keyKilledClient(t *testing.T, fw Framework) {
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		s := shopOn(t, db)
		for i, moment := range moments {
			key := strconv.Itoa(i)
			var server *server
			var once sync.Once
			at := func(name string) {
				if name == moment.name {
					once.Do(server.kill)
				}
			}
			config := s.keyed(20*time.Second, nil)
			config.Transactor = watched{s.adapter, at}
			server = serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{
				"/": func(w http.ResponseWriter, r *http.Request) error {
					at("before the order")
					if err := s.ordered(w, r); err != nil {
						return err
					}
					at("after the answer")
					return nil
				},
			}}))
			for status := 0; status != 201; {
				request := server.request(http.MethodPost, "/", bytes.NewReader([]byte("an order")), httptx.KeyHeader, key)
				request.GetBody = nil // the client of net/http would send the request again itself
				response, err := server.client.Do(request)
				if err != nil {
					require.NoError(t, t.Context().Err())
					continue
				}
				body, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if status = response.StatusCode; status < 500 {
					require.Equal(t, "an order", string(body))
					require.Equal(t, 201, status)
				}
			}
			s.wantPlaced(i + 1)
		}
	})
}

// A pool that is not the transactor's, and a handler that ends the transaction itself.
func keyMistakes(t *testing.T, fw Framework) {
	s, other := openShop(t, sqlite()), openShop(t, sqlite())
	config := s.keyed(0, nil)
	config.Idempotency.Keys = other.keyed(0, nil).Idempotency.Keys
	server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{"/": s.ordered}}))
	server.with("k", "/", "").is(t, 500, "failed")
	s.wantPlaced(0)
	ending := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{s.keyed(0, nil)}, Routes: map[string]Handler{
		"/": func(w http.ResponseWriter, r *http.Request) error {
			if err := s.ordered(w, r); err != nil {
				return err
			}
			tx, _ := s.adapter.TxFrom(r.Context())
			return tx.Commit()
		},
	}}))
	ending.with("k", "/", "").is(t, 500, "unknown")
	require.Contains(t, ending.with("k", "/", "").problem(t, 409), "not stored")
	s.wantPlaced(1)
	_, err := httptx.NewExchanger(httptx.TransactionConfig{Transactor: s.adapter, Idempotency: &httptx.Idempotency{MaxBody: -1}})
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.ErrorContains(t, err, "Idempotency.Keys")
	require.ErrorContains(t, err, "Idempotency.MaxBody is -1")
}

// A request is known, and answered again, whatever middlewares outside do.
func keyEdges(t *testing.T, fw Framework) {
	s := openShop(t, sqlite())
	config := s.keyed(0, func(c *httptx.Idempotency) {
		c.MaxBody = math.MaxInt64
		c.Headers = []string{"host", "A", "B"}
		c.WithoutBody = true
		c.ErrorHandler = func(http.ResponseWriter, *http.Request, *httptx.KeyError) {}
	})
	routes := map[string]Handler{
		"/orders": s.ordered,
		"/form": s.placing(func(w http.ResponseWriter, r *http.Request) error {
			w.WriteHeader(http.StatusCreated)
			return write(w, r.PostFormValue("item"))
		}),
		"/stream": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Length", "4")
			w.WriteHeader(http.StatusCreated)
			if err := write(w, "part"); err != nil {
				return err
			}
			return http.NewResponseController(w).Flush()
		}),
	}
	app := fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: routes})
	stripped := http.StripPrefix("/ann", app)
	server := serve(t, "HTTP1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "outside")
		w.Header().Set("Content-Language", "outside")
		if r.URL.Query().Has("lost") {
			w.Header().Del("Vary")
		}
		if r.URL.Path == "/form" {
			_ = r.ParseForm() // a middleware that looks for a token
		}
		if strings.HasPrefix(r.URL.Path, "/ann/") {
			stripped.ServeHTTP(w, r)
			return
		}
		app.ServeHTTP(w, r)
	}))
	server.with("k", "/orders", "an order").is(t, 201, "an order")
	again := server.with("k", "/orders", "an order")
	again.is(t, 201, "an order")
	again.replays(t, true)
	require.Equal(t, []string{"outside"}, again.Header.Values("Vary"))
	server.with("k", "/orders", "another order").is(t, 422, "")
	server.with("k", "/ann/orders", "an order").is(t, 422, "")
	server.with("a", "/orders", "", "A", "").is(t, 201, "")
	server.with("a", "/orders", "", "B", "").is(t, 422, "")
	server.with("a", "/orders", "").is(t, 422, "")
	host := server.request(http.MethodPost, "/orders", strings.NewReader("an order"), httptx.KeyHeader, "k")
	host.Host = "another.test"
	server.do(host).is(t, 422, "")
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	server.with("form", "/form", "item=tea", form...).is(t, 201, "tea")
	server.with("form", "/form", "item=coffee", form...).is(t, 422, "")
	require.Equal(t, 201, server.with("stream", "/stream", "").StatusCode)
	again = server.with("stream", "/stream", "")
	again.is(t, 201, "")
	again.replays(t, true)
	s.wantPlaced(4)

	keys := s.keyed(0, nil)
	inner := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{s.config(), keys}, Routes: routes}))
	inner.with("inner", "/orders", "").is(t, 500, "failed")
	s.wantPlaced(4)
	outer := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{keys, s.config(), keys}, Routes: routes}))
	outer.with("outer", "/orders", "").is(t, 201, "")
	outer.with("outer", "/orders", "").replays(t, true)
	for range 2 {
		missing := outer.with("missing", "/nowhere", "")
		require.GreaterOrEqual(t, missing.StatusCode, 400)
		missing.replays(t, false)
	}
}

// overtaken is a transactor that calls a function after each rollback.
type overtaken struct {
	outbox.Transactor
	rolledBack func()
}

type overtakenTx struct {
	outbox.Transaction
	rolledBack func()
}

func (o overtaken) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	ctx, tx, err := o.Transactor.Begin(ctx, opts)
	return ctx, overtakenTx{tx, o.rolledBack}, err
}

func (o overtakenTx) Rollback() error {
	defer o.rolledBack()
	return o.Transaction.Rollback()
}

// While a failure is stored, another process does the request: both clients get its answer.
func keyOvertaken(t *testing.T, fw Framework) {
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		s := shopOn(t, db)
		other := serve(t, "HTTP1", fw.New(t, App{
			Transactions: []httptx.TransactionConfig{s.keyed(0, nil)}, Routes: map[string]Handler{"/": s.ordered},
		}))
		config := s.keyed(0, func(c *httptx.Idempotency) { c.StoreFailure = func(*http.Request, int) bool { return true } })
		config.Transactor = overtaken{s.adapter, sync.OnceFunc(func() { other.with("k", "/", "an order").is(t, 201, "an order") })}
		server := serve(t, "HTTP1", fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: map[string]Handler{
			"/": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Set-Cookie", "a=b")
				w.WriteHeader(http.StatusPaymentRequired)
				return write(w, "no money")
			}),
		}}))
		got := server.with("k", "/", "an order")
		got.is(t, 201, "an order")
		got.replays(t, true)
		require.Equal(t, "/orders/1", got.Header.Get("Location"))
		require.Empty(t, got.Header.Get("Set-Cookie"))
		s.wantPlaced(1)
	})
}
