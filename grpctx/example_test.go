package grpctx_test

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboxkit/outbox-go/grpctx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// newOutbox returns an outbox over a store in memory, and what stands for an adapter,
// such as that of package sqltx.
func newOutbox() (*outbox.Outbox, *outboxtest.Store, outbox.Transactor) {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	check(err)
	return ob, store, outboxtest.NewTransactor(store.DB())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// The client sees the status after the commit. An error of the handler rolls back.
func ExampleUnaryServerInterceptor() {
	ob, store, adapter := newOutbox()
	interceptor := grpctx.UnaryServerInterceptor(adapter)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(interceptor))
	defer server.Stop()

	place := func(ctx context.Context, _ any) (any, error) { // a method of your service
		id, err := ob.Writer().Write(ctx, outbox.Envelope{EventID: "e-1", EventType: "OrderPlaced", Payload: outbox.JSON("o-1")})
		return id, err
	}
	id, err := interceptor(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Place"}, place)
	fmt.Println(id, err)
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// e-1 <nil>
	// 1 event
}

// Methods that only read get no transaction, and a failure that the service expects
// commits.
func ExampleConfig_ToInterceptor() {
	_, _, adapter := newOutbox()
	interceptor, err := grpctx.Config{
		Transactor:      adapter,
		ReadOnlyMethods: []string{"/shop.Orders/List"},
		RollbackOn: func(_ context.Context, err error) bool {
			return err != nil && status.Code(err) != codes.Unauthenticated
		},
	}.ToInterceptor()
	fmt.Println(interceptor != nil, err)
	// Output:
	// true <nil>
}

// Without otelgrpc's stats handler, the interceptor reads the trace context of a call.
func ExampleCarrier() {
	_, _, adapter := newOutbox()
	_, err := grpctx.Config{
		Transactor: adapter,
		Extract: func(ctx context.Context, md grpctx.Carrier) context.Context {
			return extract(ctx, md) // otel.GetTextMapPropagator().Extract, for example
		},
	}.ToInterceptor()
	fmt.Println(err)
	// Output:
	// <nil>
}

type traceKey struct{}

func extract(ctx context.Context, carrier textMapCarrier) context.Context {
	return context.WithValue(ctx, traceKey{}, carrier.Get("traceparent"))
}

// A client that gets Unknown looks whether the order is there before it tries again.
func ExampleCommitError() {
	var err error = &grpctx.CommitError{Err: outbox.ErrOutcomeUnknown}
	fmt.Println(status.Code(err), errors.Is(err, outbox.ErrOutcomeUnknown))
	// Output:
	// Unknown true
}
