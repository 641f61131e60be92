package connecttx_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboxkit/outbox-go/connecttx"
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

// The client sees the answer after the commit. An error of the handler rolls back.
func ExampleNewInterceptor() {
	ob, store, adapter := newOutbox()
	place := func(ctx context.Context, req *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		id, err := ob.Writer().Write(ctx, outbox.Envelope{EventID: "e-1", EventType: "OrderPlaced", Payload: outbox.JSON(req.Msg.GetValue())})
		return connect.NewResponse(wrapperspb.String(id)), err
	}
	const procedure = "/shop.v1.Orders/Place" // with generated code: mux.Handle(shopv1connect.NewOrdersHandler(…))
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, place, connect.WithInterceptors(connecttx.NewInterceptor(adapter))))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+procedure)
	res, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("o-1")))
	check(err)
	fmt.Println(res.Msg.GetValue())
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// e-1
	// 1 event
}

// Methods that only read get no transaction, and a failure that the service expects
// commits.
func ExampleConfig_ToInterceptor() {
	_, _, adapter := newOutbox()
	interceptor, err := connecttx.Config{
		Transactor:      adapter,
		ReadOnlyMethods: []string{"/shop.v1.Orders/List"},
		RollbackOn: func(_ context.Context, err error) bool {
			return err != nil && connect.CodeOf(err) != connect.CodeUnauthenticated
		},
	}.ToInterceptor()
	fmt.Println(interceptor != nil, err)
	// Output:
	// true <nil>
}

// A client that gets CodeUnknown looks whether the order is there before it tries again.
func ExampleCommitError() {
	var err error = &connecttx.CommitError{Err: outbox.ErrOutcomeUnknown}
	fmt.Println(connect.CodeOf(err), errors.Is(err, outbox.ErrOutcomeUnknown))
	// Output:
	// unknown true
}
