// Package webtest holds the tests that the middleware of every web framework
// passes, with a real server and a real client, over HTTP/1.1 and HTTP/2.
package webtest

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// Handler is a handler of any framework. The framework handles the error.
type Handler func(w http.ResponseWriter, r *http.Request) error

// App lists the parts of a framework's application. The outermost part is the framework's own
// middleware for panics.
type App struct {
	// Transactions are the middlewares, the outermost first. Only the fields that every framework
	// has are set, and of net/http's own fields Skipper and RollbackOn, which the framework
	// translates.
	Transactions []httptx.TransactionConfig
	// Routes are the handlers, by their path, for every method.
	Routes map[string]Handler
	// Outbox, if any, is administered under /admin and checked under /healthz,
	// behind the transactions.
	Outbox *outbox.Outbox
	// Access is for the administration.
	Access httptx.Access
}

// Framework makes applications, whose error handler answers 500 with [Text].
type Framework struct {
	New func(t *testing.T, app App) http.Handler
	// NoInformational says that the framework cannot send informational
	// responses.
	NoInformational bool
	// Buffered says that the framework has the whole request before it calls the handler, sends the
	// response after the handler has returned, and does not learn that the client has gone, as with
	// fasthttp. The framework's own tests have streams and connections. The handlers do not run again.
	Buffered bool
}

// Text is the answer of an application's error handler.
func Text(err error) string {
	var commit *httptx.CommitError
	switch {
	case errors.As(err, &commit) && errors.Is(err, outbox.ErrOutcomeUnknown):
		return "unknown"
	case errors.As(err, &commit):
		return "not committed"
	default:
		return "failed"
	}
}

var errTest = errors.New("a failure that the test made")

// shop is a database with orders and events.
type shop struct {
	t       testing.TB
	db      *sql.DB
	kind    testdb.Kind
	writer  *outbox.Writer
	record  *adaptertest.Record
	adapter *sqltx.Adapter
}

var schema = []string{"CREATE TABLE orders (id INT)", "CREATE TABLE parent (id INT PRIMARY KEY)"}

// deferred has the constraint that makes a COMMIT fail. MySQL has no such constraints.
var deferred = []string{
	"CREATE TABLE child (parent INT NOT NULL REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
}

// sqlite is the database of the tests that need no particular database.
func sqlite() testdb.Target { return adaptertest.Main()[2] }

// committing are the databases whose COMMIT can fail on a constraint.
func committing() []testdb.Target { return []testdb.Target{adaptertest.Main()[0], sqlite()} }

func openShop(t testing.TB, target testdb.Target) *shop {
	t.Helper()
	return shopOn(t, testdb.Open(t, target))
}

func shopOn(t testing.TB, db *testdb.DB) *shop {
	t.Helper()
	if adaptertest.Exec(t, db.DB, schema...); db.Kind != testdb.MySQL {
		adaptertest.Exec(t, db.DB, deferred...)
	}
	writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
	return &shop{t, db.DB, db.Kind, writer, record, adaptertest.Adapter(t, db.DB, writer)}
}

// place writes an order and an event in the request's transaction.
func (s *shop) place(r *http.Request) error {
	tx, ok := s.adapter.TxFrom(r.Context())
	if !ok {
		return outbox.ErrNoTransaction
	}
	if _, err := tx.ExecContext(r.Context(), "INSERT INTO orders (id) VALUES (1)"); err != nil {
		return err
	}
	return s.write(r)
}

func (s *shop) write(r *http.Request) error {
	_, err := s.writer.Write(r.Context(), adaptertest.Event())
	return err
}

// doom makes the request's transaction unable to commit.
func (s *shop) doom(r *http.Request) error {
	tx, _ := s.adapter.TxFrom(r.Context())
	_, err := tx.ExecContext(r.Context(), "INSERT INTO child (parent) VALUES (1)")
	return err
}

// placing is a handler that places an order first.
func (s *shop) placing(h Handler) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.place(r); err != nil {
			return err
		}
		return h(w, r)
	}
}

// counts returns the number of orders and of events.
func (s *shop) counts() (orders, events int) {
	s.t.Helper()
	row := s.db.QueryRowContext(context.Background(), "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM written)")
	require.NoError(s.t, row.Scan(&orders, &events))
	return orders, events
}

// wantPlaced checks the number of orders, each with its event.
func (s *shop) wantPlaced(n int) {
	s.t.Helper()
	orders, events := s.counts()
	require.Equal(s.t, []int{n, n}, []int{orders, events}, "orders and events")
}

// want checks the orders, and the outcomes that the writer's hooks received.
func (s *shop) want(placed int, outcomes ...string) {
	s.t.Helper()
	s.wantPlaced(placed)
	require.ElementsMatch(s.t, outcomes, s.record.Outcomes())
}

// config is the middleware of the shop's adapter.
func (s *shop) config() httptx.TransactionConfig {
	return httptx.TransactionConfig{Transactor: s.adapter, ReadOnlyMethods: []string{}}
}

// app has the shop's middleware around these routes.
func (s *shop) app(routes map[string]Handler) App {
	return App{Transactions: []httptx.TransactionConfig{s.config()}, Routes: routes}
}

// watched is a transactor that reports the steps of its transactions.
type watched struct {
	outbox.Transactor
	report func(event string)
}

type watchedTx struct {
	outbox.Transaction
	report func(event string)
}

func (w watched) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	w.report("begin")
	ctx, tx, err := w.Transactor.Begin(ctx, opts)
	return ctx, watchedTx{tx, w.report}, err
}

func (w watchedTx) Commit() error {
	w.report("commit")
	err := w.Transaction.Commit()
	w.report("committed")
	return err
}

// journal is a list of events.
type journal struct {
	mu     sync.Mutex
	events []string
}

func (j *journal) add(event string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, event)
}

// take returns the events since the last call.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	events := j.events
	j.events = nil
	return events
}

// path makes a path of a test's name.
func path(name string) string { return "/" + strings.ReplaceAll(name, " ", "-") }
