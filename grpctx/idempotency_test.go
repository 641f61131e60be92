package grpctx_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboxkit/outbox-go/grpctx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// keyed starts a server of a shop with keys.
func keyed(t *testing.T, db *testdb.DB, change func(*grpctx.Config)) *shop {
	t.Helper()
	adaptertest.Exec(t, db.DB, "CREATE TABLE orders (id INT)")
	writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
	s := &shop{t: t, db: db.DB, writer: writer, record: record, adapter: adaptertest.Adapter(t, db.DB, writer)}
	keys := keysOf(t, db, time.Minute)
	require.NoError(t, keys.CreateSchema(t.Context()))
	config := grpctx.Config{Idempotency: &grpctx.Idempotency{Keys: keys}}
	if change != nil {
		change(&config)
	}
	return s.serve(config)
}

func keysOf(t *testing.T, db *testdb.DB, wait time.Duration) *idempotency.Keys {
	t.Helper()
	keys, err := idempotency.New(idempotency.Config{DB: db.DB, Dialect: idempotency.Dialect(db.Kind), Wait: wait})
	require.NoError(t, err)
	return keys
}

// placeBy calls the method with a key, and reports whether the answer was stored before.
func (s *shop) placeBy(key, name string) (response *healthpb.HealthCheckResponse, replayed bool, err error) {
	s.t.Helper()
	var header metadata.MD
	ctx := metadata.AppendToOutgoingContext(s.t.Context(), grpctx.KeyMetadata, key, "user", "ann")
	response, err = healthpb.NewHealthClient(s.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: name}, grpc.Header(&header))
	return response, len(header.Get(grpctx.ReplayedMetadata)) > 0, err
}

func (s *shop) placed() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), "SELECT COUNT(*) FROM orders").Scan(&n))
	return n
}

func (s *shop) insert(ctx context.Context) error {
	tx, ok := s.adapter.TxFrom(ctx)
	if !ok {
		return outbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (1)")
	return err
}

func TestACallIsDoneOnceByItsKey(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		s := keyed(t, db, func(c *grpctx.Config) {
			c.Idempotency.Required = func(_ context.Context, method string) bool { return strings.HasSuffix(method, "/Check") }
			c.RollbackOn = func(_ context.Context, err error) bool { return err != nil && status.Code(err) != codes.NotFound }
		})
		s.unary = s.insert
		first, replayed, err := s.placeBy("k", "tea")
		require.NoError(t, err)
		require.False(t, replayed)
		again, replayed, err := s.placeBy("k", "tea")
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, first.GetStatus(), again.GetStatus())
		require.Equal(t, 1, s.placed())

		_, _, err = s.placeBy("k", "coffee")
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, "another call")
		for _, key := range []string{"", strings.Repeat("k", 256)} {
			_, _, err = s.placeBy(key, "tea")
			require.Equal(t, codes.InvalidArgument, status.Code(err))
		}
		err = s.call(s.insert)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, "is required")

		var calls atomic.Int32
		s.unary = func(ctx context.Context) error {
			if err := s.insert(ctx); err != nil || calls.Add(1) > 1 {
				return err
			}
			return errTest
		}
		_, _, err = s.placeBy("fails", "tea")
		require.Error(t, err)
		require.Equal(t, 1, s.placed(), "rolled back, and nothing is stored")
		_, replayed, err = s.placeBy("fails", "tea")
		require.NoError(t, err)
		require.False(t, replayed)
		require.Equal(t, 2, s.placed())

		calls.Store(0)
		s.unary = func(context.Context) error {
			calls.Add(1)
			return status.Error(codes.NotFound, "no such item")
		}
		for range 2 {
			_, _, err = s.placeBy("failure that commits", "tea")
			require.Equal(t, codes.NotFound, status.Code(err))
			require.Equal(t, "no such item", status.Convert(err).Message())
		}
		require.EqualValues(t, 1, calls.Load())
	})
}

// On SQLite a second process waits for the lock of the whole database.
func TestACallThatRunsIsNotDoneTwiceAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main()[:2], func(t *testing.T, db *testdb.DB) {
		s := keyed(t, db, func(c *grpctx.Config) {
			c.Idempotency.Scope = func(ctx context.Context) string { return metadata.ValueFromIncomingContext(ctx, "user")[0] }
		})
		began, goOn := make(chan struct{}), make(chan struct{})
		s.unary = func(ctx context.Context) error {
			close(began)
			<-goOn
			return s.insert(ctx)
		}
		ended := make(chan error)
		go func() {
			_, _, err := s.placeBy("k", "tea")
			ended <- err
		}()
		<-began
		impatient := &shop{t: t, db: s.db, adapter: s.adapter}
		impatient.serve(grpctx.Config{Idempotency: &grpctx.Idempotency{
			Keys: keysOf(t, db, 100*time.Millisecond), Scope: func(context.Context) string { return "ann" },
		}})
		_, _, err := impatient.placeBy("k", "tea")
		require.Equal(t, codes.Aborted, status.Code(err))
		close(goOn)
		require.NoError(t, <-ended)
		_, replayed, err := s.placeBy("k", "tea")
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, 1, s.placed())
	})
}

func TestCallsWithKeysNeedProtocolBuffers(t *testing.T) {
	t.Parallel()
	_, err := grpctx.Config{Idempotency: &grpctx.Idempotency{}}.ToInterceptor()
	require.ErrorContains(t, err, "Config.Idempotency.Keys")
	db := testdb.Open(t, adaptertest.Main()[2])
	s := keyed(t, db, nil)
	keys, err := idempotency.New(idempotency.Config{DB: db.DB, Dialect: idempotency.SQLite})
	require.NoError(t, err)
	interceptor, err := grpctx.Config{Transactor: s.adapter, Idempotency: &grpctx.Idempotency{Keys: keys}}.ToInterceptor()
	require.NoError(t, err)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(grpctx.KeyMetadata, "k"))
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Place"}
	handler := func(ctx context.Context, _ any) (any, error) { return 1, s.insert(ctx) }
	_, err = interceptor(ctx, "tea", info, handler)
	require.ErrorContains(t, err, "the request is a string")
	_, err = interceptor(ctx, &healthpb.HealthCheckRequest{}, info, handler)
	require.ErrorContains(t, err, "the response is a int")
	require.Zero(t, s.placed())
}
