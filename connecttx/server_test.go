package connecttx_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/connecttx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

var errTest = errors.New("a failure that the test made")

// text is the message of all requests and responses.
type text = wrapperspb.StringValue

// The procedures of a service, as generated code names them.
const (
	place  = "/shop.v1.Orders/Place"
	simple = "/shop.v1.Orders/PlaceSimple" // of code generated with the option "simple"
	list   = "/shop.v1.Orders/List"        // without side effects
	watch  = "/shop.v1.Orders/Watch"       // a stream
)

// protocols are those that a handler speaks.
var protocols = map[string][]connect.ClientOption{
	"connect":  nil,
	"json":     {connect.WithProtoJSON()},
	"grpc":     {connect.WithGRPC()},
	"grpc-web": {connect.WithGRPCWeb()},
}

// eachProtocol runs a test on each database and over each protocol.
func eachProtocol(t *testing.T, targets []testdb.Target, test func(t *testing.T, db *testdb.DB, protocol ...connect.ClientOption)) {
	t.Helper()
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, targets, func(t *testing.T, db *testdb.DB) { test(t, db, protocol...) })
		})
	}
}

// shop is a database with orders and events behind a real server.
type shop struct {
	t       *testing.T
	db      *sql.DB
	writer  *outbox.Writer
	record  *adaptertest.Record
	adapter *sqltx.Adapter

	handle func(ctx context.Context) error // handles the unary procedures
	stream func(ctx context.Context) error
	header http.Header // of the answers of a handler that has them in its response

	url    string
	client *http.Client
	dialed atomic.Pointer[net.TCPConn]
	ended  chan error // what the interceptor returned
}

func openShop(t *testing.T, db *testdb.DB, configs ...connecttx.Config) *shop {
	t.Helper()
	adaptertest.Exec(t, db.DB, "CREATE TABLE orders (id INT)")
	if db.Kind != testdb.MySQL { // which checks at once
		adaptertest.Exec(t, db.DB, "CREATE TABLE parent (id INT PRIMARY KEY)",
			"CREATE TABLE child (parent INT NOT NULL REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
	}
	writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
	s := &shop{t: t, db: db.DB, writer: writer, record: record, adapter: adaptertest.Adapter(t, db.DB, writer)}
	return s.serve(configs...)
}

// serve starts a server with an interceptor for each config, the outermost first.
func (s *shop) serve(configs ...connecttx.Config) *shop {
	s.t.Helper()
	if len(configs) == 0 {
		configs = []connecttx.Config{{}}
	}
	interceptors := []connect.Interceptor{connect.UnaryInterceptorFunc(s.outside)}
	for _, config := range configs {
		if config.Transactor == nil {
			config.Transactor = s.adapter
		}
		interceptor, err := config.ToInterceptor()
		require.NoError(s.t, err)
		interceptors = append(interceptors, interceptor)
	}
	return s.serveWith(connect.WithRecover(recovering), connect.WithInterceptors(interceptors...))
}

func recovering(context.Context, connect.Spec, http.Header, any) error {
	return connect.NewError(connect.CodeInternal, errors.New("panic"))
}

// serveWith starts a server.
func (s *shop) serveWith(options ...connect.HandlerOption) *shop {
	s.t.Helper()
	return s.serveBehind(func(h http.Handler) http.Handler { return h }, options...)
}

func (s *shop) serveBehind(middleware func(http.Handler) http.Handler, options ...connect.HandlerOption) *shop {
	s.t.Helper()
	s.ended = make(chan error, 100)
	mux := http.NewServeMux()
	mux.Handle(place, connect.NewUnaryHandler(place, s.unary, options...))
	mux.Handle(simple, connect.NewUnaryHandlerSimple(simple, s.unarySimple, options...))
	mux.Handle(list, connect.NewUnaryHandler(list, s.unary, append(options, connect.WithIdempotency(connect.IdempotencyNoSideEffects))...))
	mux.Handle(watch, connect.NewServerStreamHandler(watch, s.watch, options...))
	server := httptest.NewUnstartedServer(middleware(mux))
	server.EnableHTTP2 = true
	server.StartTLS()
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			s.dialed.Store(conn.(*net.TCPConn))
		}
		return conn, err
	}
	s.url, s.client = server.URL, &http.Client{Transport: transport}
	s.t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return s
}

func (s *shop) unary(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
	res := connect.NewResponse(wrapperspb.String("placed " + req.Msg.GetValue()))
	for name, values := range s.header {
		res.Header()[name], res.Trailer()["Trailer-"+name] = values, values
	}
	return res, s.handle(ctx)
}

func (s *shop) unarySimple(ctx context.Context, req *text) (*text, error) {
	info, _ := connect.CallInfoForHandlerContext(ctx)
	for name, values := range s.header {
		info.ResponseHeader()[name], info.ResponseTrailer()["Trailer-"+name] = values, values
	}
	return wrapperspb.String("placed " + req.GetValue()), s.handle(ctx)
}

func (s *shop) watch(ctx context.Context, _ *connect.Request[text], _ *connect.ServerStream[text]) error {
	return s.stream(ctx)
}

// outside is the outermost interceptor: it adds headers, and reports the end of a call.
func (s *shop) outside(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, err error) {
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
			info.ResponseHeader().Set("Request-Id", "1")
		}
		panicked := true
		defer func() {
			if panicked {
				err = errors.New("panic")
			}
			s.ended <- err
		}()
		res, err = next(ctx, req)
		panicked = false
		if e := (*connect.Error)(nil); errors.As(err, &e) {
			e.Meta().Set("Outside", "1")
		}
		return res, err
	}
}

// kill cuts the client's connection as the end of its process would.
func (s *shop) kill() {
	conn := s.dialed.Load()
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// call calls a unary procedure, with the handler.
func (s *shop) call(procedure string, handler func(ctx context.Context) error, options ...connect.ClientOption) (*connect.Response[text], error) {
	s.t.Helper()
	return s.callIn(s.t.Context(), procedure, handler, options...)
}

func (s *shop) callIn(ctx context.Context, procedure string, handler func(ctx context.Context) error, options ...connect.ClientOption) (*connect.Response[text], error) {
	s.t.Helper()
	s.handle = handler
	client := connect.NewClient[text, text](s.client, s.url+procedure, options...)
	return client.CallUnary(ctx, connect.NewRequest(wrapperspb.String("tea")))
}

// fails calls Place and returns the client's error.
func (s *shop) fails(handler func(ctx context.Context) error, options ...connect.ClientOption) *connect.Error {
	s.t.Helper()
	_, err := s.call(place, handler, options...)
	var failure *connect.Error
	require.ErrorAs(s.t, err, &failure)
	return failure
}

// wait returns what the interceptor returned.
func (s *shop) wait() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(30 * time.Second):
		s.t.Fatal("the call has not ended")
		return nil
	}
}

// place writes an order and an event in the call's transaction.
func (s *shop) place(ctx context.Context) error {
	if err := s.insert(ctx); err != nil {
		return err
	}
	_, err := s.writer.Write(ctx, adaptertest.Event())
	return err
}

// insert writes an order in the call's transaction.
func (s *shop) insert(ctx context.Context) error {
	tx, ok := s.adapter.TxFrom(ctx)
	if !ok {
		return outbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (1)")
	return err
}

// doom makes the call's transaction one that cannot commit.
func (s *shop) doom(ctx context.Context) error {
	tx, _ := s.adapter.TxFrom(ctx)
	_, err := tx.ExecContext(ctx, "INSERT INTO child (parent) VALUES (1)")
	return err
}

// want checks the orders, each with its event, and the writer's outcomes.
func (s *shop) want(placed int, outcomes ...string) {
	s.t.Helper()
	orders, events := s.count()
	require.Equal(s.t, []int{placed, placed}, []int{orders, events}, "orders and events")
	require.ElementsMatch(s.t, outcomes, s.record.Outcomes())
}

func (s *shop) count() (orders, events int) {
	s.t.Helper()
	row := s.db.QueryRowContext(s.t.Context(), "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM written)")
	require.NoError(s.t, row.Scan(&orders, &events))
	return orders, events
}

func sqlite() testdb.Target { return adaptertest.Main()[2] }

// committing are databases where a COMMIT can fail.
func committing() []testdb.Target { return []testdb.Target{adaptertest.Main()[0], sqlite()} }
