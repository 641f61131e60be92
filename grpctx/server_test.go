package grpctx_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/grpctx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

var errTest = errors.New("a failure that the test made")

// service is gRPC's health service, whose unary method the test handles.
type service struct {
	healthpb.UnimplementedHealthServer
	unary  func(ctx context.Context) error
	stream func(ctx context.Context) error
}

func (s *service) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, s.unary(ctx)
}

func (s *service) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	return s.stream(stream.Context())
}

// shop is a database with orders and events behind a real server.
type shop struct {
	service
	t       *testing.T
	db      *sql.DB
	writer  *outbox.Writer
	record  *adaptertest.Record
	adapter *sqltx.Adapter
	conn    *grpc.ClientConn
	dialed  atomic.Pointer[net.TCPConn]
	ended   chan error // what the interceptor returned
}

func openShop(t *testing.T, db *testdb.DB, configs ...grpctx.Config) *shop {
	t.Helper()
	adaptertest.Exec(t, db.DB, "CREATE TABLE orders (id INT)", "CREATE TABLE parent (id INT PRIMARY KEY)",
		"CREATE TABLE child (parent INT NOT NULL REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
	writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
	s := &shop{t: t, db: db.DB, writer: writer, record: record, adapter: adaptertest.Adapter(t, db.DB, writer)}
	return s.serve(configs...)
}

// serve starts a server with an interceptor for each config, the outermost first.
func (s *shop) serve(configs ...grpctx.Config) *shop {
	s.t.Helper()
	s.ended = make(chan error, 100)
	interceptors := []grpc.UnaryServerInterceptor{s.recovering}
	if len(configs) == 0 {
		configs = []grpctx.Config{{}}
	}
	for _, config := range configs {
		if config.Transactor == nil {
			config.Transactor = s.adapter
		}
		interceptor, err := config.ToInterceptor()
		require.NoError(s.t, err)
		interceptors = append(interceptors, interceptor)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(interceptors...))
	healthpb.RegisterHealthServer(server, &s.service)
	listener, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err == nil {
				s.dialed.Store(conn.(*net.TCPConn))
			}
			return conn, err
		}))
	require.NoError(s.t, err)
	s.conn = conn
	s.t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	return s
}

// recovering is outermost: it answers a panic, and reports the end of a call.
func (s *shop) recovering(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = status.Error(codes.Internal, "panic")
		}
		s.ended <- err
	}()
	return handler(ctx, request)
}

// kill cuts the client's connection as the end of its process would.
func (s *shop) kill() {
	conn := s.dialed.Load()
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// call calls the unary method, with the handler, and returns the client's error.
func (s *shop) call(handler func(ctx context.Context) error, opts ...grpc.CallOption) error {
	s.t.Helper()
	return s.callIn(s.t.Context(), handler, opts...)
}

func (s *shop) callIn(ctx context.Context, handler func(ctx context.Context) error, opts ...grpc.CallOption) error {
	s.t.Helper()
	s.unary = handler
	_, err := healthpb.NewHealthClient(s.conn).Check(ctx, &healthpb.HealthCheckRequest{}, opts...)
	return err
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
	tx, ok := s.adapter.TxFrom(ctx)
	if !ok {
		return outbox.ErrNoTransaction
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (1)"); err != nil {
		return err
	}
	_, err := s.writer.Write(ctx, adaptertest.Event())
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
	var orders, events int
	row := s.db.QueryRowContext(s.t.Context(), "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM written)")
	require.NoError(s.t, row.Scan(&orders, &events))
	require.Equal(s.t, []int{placed, placed}, []int{orders, events}, "orders and events")
	require.ElementsMatch(s.t, outcomes, s.record.Outcomes())
}

func sqlite() testdb.Target { return adaptertest.Main()[2] }

func committing() []testdb.Target { return []testdb.Target{adaptertest.Main()[0], sqlite()} }

// headers are what a handler sets beside its response.
func headers(ctx context.Context) error {
	return errors.Join(
		grpc.SetHeader(ctx, metadata.Pairs("order", "1")),
		grpc.SendHeader(ctx, metadata.Pairs("sent", "1")),
		grpc.SetTrailer(ctx, metadata.Pairs("count", "1")),
	)
}
