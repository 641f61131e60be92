// Package grpc_test has the code of docs/how-to/web/grpc.md.
package grpc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shop"
	"github.com/outboxkit/outbox-go/grpctx"
	"github.com/outboxkit/outbox-go/outbox"
)

type order = shop.Order

var orderPlaced = shop.OrderPlaced

// PlaceRequest and Event stand for messages that protoc generates.
type (
	PlaceRequest struct{ ID, Item string }
	Event        struct{ Order order }
)

// traced is a config for a server without otelgrpc's stats handler.
func traced(a *sqltx.Adapter) grpctx.Config {
	return grpctx.Config{
		Transactor: a,
		Extract: func(ctx context.Context, md grpctx.Carrier) context.Context {
			return otel.GetTextMapPropagator().Extract(ctx, md)
		},
	}
}

func newServer(a *sqltx.Adapter, recovery grpc.UnaryServerInterceptor) *grpc.Server {
	return grpc.NewServer(grpc.ChainUnaryInterceptor(recovery, grpctx.UnaryServerInterceptor(a)))
}

type orders struct{ a *sqltx.Adapter }

// Place is a method of the service. ctx carries the transaction.
func (s *orders) Place(ctx context.Context, req *PlaceRequest) (*order, error) {
	tx, _ := s.a.TxFrom(ctx)
	o := &order{ID: req.ID, Item: req.Item}
	// on PostgreSQL: VALUES ($1, $2)
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", o.ID, o.Item); err != nil {
		return nil, status.Error(codes.AlreadyExists, "the order is there") // rolls back
	}
	if _, err := s.a.Write(ctx, tx, orderPlaced.Envelope(o.ID, *o)); err != nil {
		return nil, err
	}
	return o, nil // sent after the commit
}

// Import is a streaming method: each message has a transaction of its own.
func (s *orders) Import(stream grpc.ClientStreamingServer[PlaceRequest, Event]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		err = outbox.InTx(stream.Context(), s.a, func(ctx context.Context) error {
			_, err := s.Place(ctx, req)
			return err
		})
		if err != nil {
			return err
		}
	}
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	s := shop.Open(t)
	service := &orders{s.Adapter}
	interceptor := grpctx.UnaryServerInterceptor(s.Adapter)
	newServer(s.Adapter, interceptor).Stop()
	_, err := traced(s.Adapter).ToInterceptor()
	require.NoError(t, err)
	for _, want := range []codes.Code{codes.OK, codes.AlreadyExists} {
		_, err := interceptor(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Place"}, func(ctx context.Context, _ any) (any, error) {
			return service.Place(ctx, &PlaceRequest{"o-1", "tea"})
		})
		require.Equal(t, want, status.Code(err))
	}
	require.ErrorIs(t, service.Import(&stream{ctx: t.Context(), left: []*PlaceRequest{{"o-2", "mate"}}}), errEnd)
	s.Has(t, order{ID: "o-1", Item: "tea"}, order{ID: "o-2", Item: "mate"})
}

var errEnd = errors.New("the stream has ended")

// stream is a client's stream.
type stream struct {
	grpc.ClientStreamingServer[PlaceRequest, Event]
	ctx  context.Context
	left []*PlaceRequest
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) Recv() (*PlaceRequest, error) {
	if len(s.left) == 0 {
		return nil, errEnd
	}
	next := s.left[0]
	s.left = s.left[1:]
	return next, nil
}
