package nethttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// rollsBack makes the transaction of a call that fails roll back.
func rollsBack(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		if err != nil {
			_ = httptx.Rollback(ctx) // fails if the request has no transaction
		}
		return res, err
	}
}

// orWithErrors makes the transaction of an answer with errors roll back.
func orWithErrors(ctx context.Context, next graphql.ResponseHandler) *graphql.Response {
	res := next(ctx)
	if res != nil && len(res.Errors) > 0 {
		_ = httptx.Rollback(ctx) // fails if the request has no transaction
	}
	return res
}

func interceptors() connect.Option {
	return connect.WithInterceptors(connect.UnaryInterceptorFunc(rollsBack))
}

func withErrors(schema graphql.ExecutableSchema) *handler.Server {
	server := handler.New(schema)
	server.AddTransport(transport.POST{})
	server.AroundResponses(orWithErrors)
	return server
}

var errOutOfStock = errors.New("out of stock")

// rpcShop places orders, and fails after it wrote the event of an order without an item.
type rpcShop struct {
	store  *outboxtest.Store
	writer *outbox.Writer
	tx     outbox.Transactor
}

func newRPCShop() *rpcShop {
	store := outboxtest.NewStore()
	return &rpcShop{store, store.Writer(), outboxtest.NewTransactor(store.DB())}
}

func (s *rpcShop) place(ctx context.Context, o order) error {
	_, err := s.writer.Write(ctx, orderPlaced.Envelope(o.ID, o))
	if o.Item == "" {
		err = errors.Join(err, errOutOfStock)
	}
	return err
}

// emitted are the orders whose event was committed.
func (s *rpcShop) emitted() (ids []string) {
	for _, env := range s.store.Emitted() {
		ids = append(ids, env.AggregateID)
	}
	return ids
}

// serve serves HTTP/2 for the tests' client.
func serve(t *testing.T, h http.Handler) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, server.Client()
}

func TestAFailedCallOfConnectRollsBack(t *testing.T) {
	t.Parallel()
	const procedure = "/shop.Orders/Place"
	for name, protocol := range map[string]connect.ClientOption{
		"connect": connect.WithProtoJSON(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(),
	} {
		for with, options := range map[string][]connect.HandlerOption{
			"the interceptor": {interceptors()},
			"the grpc-status": nil, // by itself; gRPC-Web has it in the body if the error has headers
		} {
			t.Run(name+", "+with, func(t *testing.T) {
				t.Parallel()
				s := newRPCShop()
				mux := http.NewServeMux()
				mux.Handle(procedure, httptx.Transaction(s.tx)(connect.NewUnaryHandler(procedure,
					func(ctx context.Context, req *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
						if err := s.place(ctx, order{ID: req.Msg.Value, Item: req.Header().Get("Item")}); err != nil {
							return nil, connect.NewError(connect.CodeFailedPrecondition, err)
						}
						return connect.NewResponse(wrapperspb.String("placed")), nil
					}, options...)))
				url, http := serve(t, mux)
				client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](http, url+procedure, protocol)
				_, err := client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("o-1")))
				require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err))
				require.ErrorContains(t, err, errOutOfStock.Error())
				second := connect.NewRequest(wrapperspb.String("o-2"))
				second.Header().Set("Item", "tea")
				res, err := client.CallUnary(t.Context(), second)
				require.NoError(t, err)
				require.Equal(t, "placed", res.Msg.Value)
				require.Equal(t, []string{"o-2"}, s.emitted())
			})
		}
	}
}

// graph is a schema whose code is usually generated.
type graph struct {
	*rpcShop
	schema *ast.Schema
}

func (g graph) Schema() *ast.Schema { return g.schema }

func (graph) Complexity(context.Context, string, string, int, map[string]any) (int, bool) {
	return 0, false
}

// Exec runs the resolver when the answer is asked for, as generated code does.
func (g graph) Exec(ctx context.Context) graphql.ResponseHandler {
	variables, asked := graphql.GetOperationContext(ctx).Variables, false
	return func(ctx context.Context) *graphql.Response {
		if asked {
			return nil
		}
		asked = true
		id, _ := variables["id"].(string)
		item, _ := variables["item"].(string)
		if err := g.place(ctx, order{ID: id, Item: item}); err != nil {
			graphql.AddError(ctx, err)
			return &graphql.Response{Data: []byte(`{"place":null}`)}
		}
		return &graphql.Response{Data: []byte(`{"place":"placed"}`)}
	}
}

func TestAnAnswerOfGraphQLWithErrorsRollsBack(t *testing.T) {
	t.Parallel()
	s := newRPCShop()
	schema := gqlparser.MustLoadSchema(&ast.Source{Input: `
		type Query { orders: Int }
		type Mutation { place(id: String!, item: String): String }`})
	url, client := serve(t, httptx.Transaction(s.tx)(withErrors(graph{s, schema})))
	post := func(variables map[string]any) (answer struct {
		Data   map[string]any
		Errors []any
	},
	) {
		body, err := json.Marshal(map[string]any{
			"query": `mutation($id: String!, $item: String) { place(id: $id, item: $item) }`, "variables": variables,
		})
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.NoError(t, json.NewDecoder(res.Body).Decode(&answer))
		return answer
	}
	require.Len(t, post(map[string]any{"id": "o-1"}).Errors, 1)
	require.Equal(t, "placed", post(map[string]any{"id": "o-2", "item": "tea"}).Data["place"])
	require.Equal(t, []string{"o-2"}, s.emitted())
}
