package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret signs in tests.
const secret = webhook.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

var orderPlaced = outbox.NewTopic[map[string]string]("Order", "OrderPlaced")

// endpoints are endpoints that a test changes.
type endpoints struct {
	mu       sync.Mutex
	of       map[string]webhook.Endpoint
	disabled map[string]string // the reasons
	err      error
}

func (e *endpoints) For(ctx context.Context, env outbox.Envelope) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return nil, e.err
	}
	return webhook.Static(e.of).For(ctx, env)
}

func (e *endpoints) Get(ctx context.Context, id string) (webhook.Endpoint, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return webhook.Static(e.of).Get(ctx, id)
}

func (e *endpoints) Disable(_ context.Context, id, reason string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	if e.disabled == nil {
		e.disabled = map[string]string{}
	}
	e.disabled[id] = reason
	to := e.of[id]
	to.Disabled = true
	e.of[id] = to
	return nil
}

func (e *endpoints) change(id string, to func(*webhook.Endpoint)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.of[id]
	to(&of)
	e.of[id] = of
}

// request is a request that a receiver got.
type request struct {
	at     string // the path
	header http.Header
	body   string
}

// receiver is a server that keeps the requests with a good signature.
type receiver struct {
	*httptest.Server
	got chan request
}

// receive starts a receiver. answer may be nil: then each request is accepted.
func receive(t testing.TB, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{got: make(chan request, 10_000)}
	verifier, err := standard.NewWebhook(string(secret))
	require.NoError(t, err)
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err == nil {
			err = verifier.Verify(body, q.Header)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		if r.got != nil {
			r.got <- request{q.URL.Path, q.Header, string(body)}
		}
		if answer != nil {
			answer(w, q)
		}
	}))
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(r.Close)
	return r
}

// at is an endpoint at a path of the receiver.
func (r *receiver) at(path string) webhook.Endpoint {
	return webhook.Endpoint{URL: r.URL + path, Secrets: []webhook.Secret{secret}}
}

// next waits for a request.
func (r *receiver) next(t testing.TB) request {
	t.Helper()
	select {
	case got := <-r.got:
		return got
	case <-time.After(time.Minute):
		require.FailNow(t, "no request came in a minute")
		return request{}
	}
}

// trust makes a test's hooks reach a receiver.
func (r *receiver) trust(cfg *webhook.Config) {
	pool := x509.NewCertPool()
	pool.AddCert(r.Certificate())
	cfg.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.TLS = &tls.Config{RootCAs: pool} //nolint:gosec // New sets MinVersion
}

// service has an outbox with hooks.
type service struct {
	t       testing.TB
	db      *testdb.DB
	adapter *sqltx.Adapter
	outbox  *outbox.Outbox
	hooks   *webhook.Hooks
	log     *relaytest.Log
	writes  atomic.Int32 // calls of writeAll
	// mayLose allows Close to end before all outcomes are stored, whose events are delivered again.
	mayLose bool
}

var stores = map[testdb.Kind]func() *sqlstore.Store{
	testdb.Postgres: func() *sqlstore.Store { return sqlstore.Postgres(sqlstore.WithKeyIndex()) },
	testdb.MySQL:    func() *sqlstore.Store { return sqlstore.MySQL(sqlstore.WithKeyIndex()) },
	testdb.SQLite:   func() *sqlstore.Store { return sqlstore.SQLite(sqlstore.WithKeyIndex()) },
}

// serve makes a service on a database. change may be nil.
func serve(t testing.TB, db *testdb.DB, of webhook.Endpoints, change func(cfg *webhook.Config, mode *outbox.Mode)) *service {
	t.Helper()
	s := &service{t: t, db: db, log: &relaytest.Log{}}
	store := stores[db.Kind]()
	require.NoError(t, store.CreateSchema(t.Context(), db))
	log := slog.New(slog.NewTextHandler(s.log, nil))
	cfg := webhook.Config{Endpoints: of, Logger: log}
	var mode outbox.Mode = outbox.MultiNode{Poll: outbox.PollOptions{Interval: 100 * time.Millisecond}}
	if change != nil {
		change(&cfg, &mode)
	}
	var err error
	s.outbox, err = outbox.New(outbox.Config{DB: db, Store: store, Mode: mode, Logger: log})
	require.NoError(t, err)
	s.adapter, err = sqltx.New(db.DB, s.outbox.Writer())
	require.NoError(t, err)
	cfg.Write = s.writeAll
	s.hooks, err = webhook.New(cfg)
	require.NoError(t, err)
	require.NoError(t, s.outbox.Register(s.hooks.Bindings(orderPlaced.Kind())...))
	t.Cleanup(s.close)
	return s
}

func (s *service) start() *service {
	s.t.Helper()
	require.NoError(s.t, s.outbox.Start(s.t.Context()))
	return s
}

func (s *service) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), time.Minute)
	defer cancel()
	err := s.outbox.Close(ctx)
	s.hooks.Close()
	if s.mayLose && err != nil {
		s.t.Log(err)
		return
	}
	require.NoError(s.t, err)
}

// write writes events, each with an id of its order, and returns the ids.
func (s *service) write(orders ...string) (ids []string) {
	s.t.Helper()
	var envs []outbox.Envelope
	for _, order := range orders {
		envs = append(envs, orderPlaced.Envelope(order, map[string]string{"order": order}))
	}
	for i := range envs {
		envs[i].EventID = "e" + orders[i]
		ids = append(ids, envs[i].EventID)
	}
	require.NoError(s.t, s.writeAll(s.t.Context(), envs))
	return ids
}

// writeAll is as in a program.
func (s *service) writeAll(ctx context.Context, envs []outbox.Envelope) error {
	s.writes.Add(1)
	return s.adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.adapter.WriteAll(ctx, tx, envs)
		return err
	})
}

// listener is the listener of the events, or of the deliveries.
func (s *service) listener(deliveries bool) outbox.Listener {
	bindings := s.hooks.Bindings(orderPlaced.Kind())
	if deliveries {
		return bindings[1].Listener
	}
	return bindings[0].Listener
}

// deliver delivers a body to an endpoint, without the outbox.
func (s *service) deliver(endpoint string) error {
	return s.listener(true).OnEvent(s.t.Context(), outbox.Envelope{
		EventID: "d1", EventType: webhook.Kind.EventType, AggregateType: webhook.Kind.AggregateType, AggregateID: endpoint,
		Headers: map[string]string{"webhook-id": "e1"}, Payload: outbox.RawJSON(`{"a":1}`),
	})
}

// count counts rows.
func (s *service) count(where string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE "+where).Scan(&n))
	return n
}

// until waits until a number of rows have a state.
func (s *service) until(n int, where string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.count(where) == n }, time.Minute, 5*time.Millisecond, "%d rows with %s; %s", n, where, s.log)
}

func sqlite(t testing.TB) *testdb.DB {
	t.Helper()
	for _, target := range testdb.Main() {
		if target.Kind == testdb.SQLite {
			return testdb.Open(t, target).Via(t, sqltx.Open)
		}
	}
	require.FailNow(t, "no SQLite")
	return nil
}
