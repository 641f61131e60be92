package relaypubsub_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	relaypubsub "github.com/outboxkit/outbox-go/relay/pubsub"
)

func TestMain(m *testing.M) {
	// A dependency of the client starts this goroutine when the program starts.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// handler answers a call in place of the server when its second result is true.
type handler func(ctx context.Context, request any) (answer any, err error, handled bool) //nolint:revive // the error belongs to the answer

// server is pstest, Google's imitation of Pub/Sub, behind a server of gRPC that can be stopped and
// started again, and that checks the documented limits, which pstest does not.
type server struct {
	*pstest.Server
	addr    string
	handler handler
	grpc    *grpc.Server
}

// start starts a server with the topics orders and relaytest.Topic of the project shop.
func start(t testing.TB, h handler) *server {
	t.Helper()
	t.Log("broker: pstest, Google's imitation of Pub/Sub, in this process")
	s := &server{Server: pstest.NewServer(), addr: relaytest.FreeAddr(t), handler: h}
	t.Cleanup(func() { _ = s.Close() })
	for _, topic := range []string{"orders", relaytest.Topic} {
		_, err := s.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/shop/topics/" + topic})
		require.NoError(t, err)
	}
	s.Start(t)
	t.Cleanup(func() { s.Kill(t) })
	return s
}

// Start starts the server with the messages that it has.
func (s *server) Start(t testing.TB) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", s.addr)
	require.NoError(t, err)
	const anySize = 64 << 20
	s.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(anySize), grpc.UnaryInterceptor(s.intercept))
	pubsubpb.RegisterPublisherServer(s.grpc, &s.GServer)
	go func(g *grpc.Server) { _ = g.Serve(listener) }(s.grpc)
}

// Kill closes all connections.
func (s *server) Kill(testing.TB) { s.grpc.Stop() }

func (s *server) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if s.handler != nil {
		if answer, err, handled := s.handler(ctx, request); handled {
			return answer, err
		}
	}
	if r, ok := request.(*pubsubpb.PublishRequest); ok {
		if problem := problemOf(r); problem != "" {
			return nil, status.Error(codes.InvalidArgument, problem)
		}
	}
	return next(ctx, request)
}

// problemOf returns the problem of a request with the documented limits.
func problemOf(r *pubsubpb.PublishRequest) string {
	switch {
	case len(r.GetMessages()) == 0 || len(r.GetMessages()) > 1_000:
		return fmt.Sprintf("%d messages in a request", len(r.GetMessages()))
	case proto.Size(r) > 10_000_000:
		return fmt.Sprintf("a request of %d bytes", proto.Size(r))
	}
	for _, m := range r.GetMessages() {
		switch {
		case m.GetOrderingKey() != r.GetMessages()[0].GetOrderingKey():
			return "the messages of a request have different ordering keys"
		case len(m.GetOrderingKey()) > 1024:
			return "a long ordering key"
		case len(m.GetData()) == 0 && len(m.GetAttributes()) == 0:
			return "a message without data and attributes"
		case len(m.GetAttributes()) > 100:
			return fmt.Sprintf("%d attributes", len(m.GetAttributes()))
		}
		for name, value := range m.GetAttributes() {
			if name == "" || len(name) > 256 || len(value) > 1024 || strings.HasPrefix(name, "goog") {
				return "an invalid attribute"
			}
		}
	}
	return ""
}

// bodies are the bodies of the messages.
func (s *server) bodies() (list []string) {
	for _, m := range s.Messages() {
		list = append(list, string(m.Data))
	}
	return list
}

func publisher(t testing.TB, addr string) *relaypubsub.Publisher {
	t.Helper()
	p, err := relaypubsub.New(relaypubsub.Config{Project: "shop", Options: options(addr)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

func options(addr string) []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint(addr), option.WithoutAuthentication(), option.WithTelemetryDisabled(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}
