// Package connect_test has the code of docs/how-to/web/connect.md.
package connect_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/connecttx"
	"github.com/outboxkit/outbox-go/docs/code/shop"
	"github.com/outboxkit/outbox-go/outbox"
)

type order = shop.Order

var orderPlaced = shop.OrderPlaced

// PlaceRequest and Placed stand for messages that protoc generates.
type (
	PlaceRequest struct{ ID, Item string }
	Placed       struct{ ID string }
)

func newServer(a *sqltx.Adapter) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(NewOrdersHandler(&orders{a}, connect.WithInterceptors(connecttx.NewInterceptor(a))))
	return mux
}

type orders struct{ a *sqltx.Adapter }

// Place is a method of the service. ctx carries the transaction.
func (s *orders) Place(ctx context.Context, req *connect.Request[PlaceRequest]) (*connect.Response[Placed], error) {
	if err := s.place(ctx, req.Msg); err != nil {
		return nil, err // rolls back
	}
	return connect.NewResponse(&Placed{ID: req.Msg.ID}), nil // sent after the commit
}

func (s *orders) place(ctx context.Context, req *PlaceRequest) error {
	tx, _ := s.a.TxFrom(ctx)
	o := order{ID: req.ID, Item: req.Item}
	// on PostgreSQL: VALUES ($1, $2)
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", o.ID, o.Item); err != nil {
		return connect.NewError(connect.CodeAlreadyExists, errors.New("the order is there"))
	}
	_, err := s.a.Write(ctx, tx, orderPlaced.Envelope(o.ID, o))
	return err
}

// Import is a streaming method: each message has a transaction of its own.
func (s *orders) Import(ctx context.Context, stream *connect.ClientStream[PlaceRequest]) (*connect.Response[Placed], error) {
	for stream.Receive() {
		err := outbox.InTx(ctx, s.a, func(ctx context.Context) error {
			return s.place(ctx, stream.Msg())
		})
		if err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&Placed{}), stream.Err()
}

// NewOrdersHandler stands for the code that protoc-gen-connect-go generates.
func NewOrdersHandler(s *orders, opts ...connect.HandlerOption) (string, http.Handler) {
	opts = append(opts, connect.WithCodec(codec{}))
	mux := http.NewServeMux()
	mux.Handle(placeProcedure, connect.NewUnaryHandler(placeProcedure, s.Place, opts...))
	mux.Handle(importProcedure, connect.NewClientStreamHandler(importProcedure, s.Import, opts...))
	return "/shop.v1.Orders/", mux
}

const (
	placeProcedure  = "/shop.v1.Orders/Place"
	importProcedure = "/shop.v1.Orders/Import"
)

// codec is JSON without protocol buffers.
type codec struct{}

func (codec) Name() string                       { return "json" }
func (codec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (codec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

func client(server *httptest.Server, procedure string) *connect.Client[PlaceRequest, Placed] {
	return connect.NewClient[PlaceRequest, Placed](server.Client(), server.URL+procedure, connect.WithCodec(codec{}))
}

func TestConnect(t *testing.T) {
	t.Parallel()
	s := shop.Open(t)
	server := httptest.NewServer(newServer(s.Adapter))
	defer server.Close()
	place := func() error {
		_, err := client(server, placeProcedure).CallUnary(t.Context(), connect.NewRequest(&PlaceRequest{"o-1", "tea"}))
		return err
	}
	require.NoError(t, place())
	require.Equal(t, connect.CodeAlreadyExists, connect.CodeOf(place()))
	stream := client(server, importProcedure).CallClientStream(t.Context())
	require.NoError(t, stream.Send(&PlaceRequest{"o-2", "mate"}))
	_, err := stream.CloseAndReceive()
	require.NoError(t, err)
	s.Has(t, order{ID: "o-1", Item: "tea"}, order{ID: "o-2", Item: "mate"})
}
