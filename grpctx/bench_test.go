package grpctx_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/outboxkit/outbox-go/grpctx"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

// The interceptor without a network.
func BenchmarkCall(b *testing.B) {
	shop := webtest.NewBenchShop(b)
	interceptor := grpctx.UnaryServerInterceptor(shop.Adapter)
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Place"}
	for name, call := range map[string]func(ctx context.Context) error{
		"hand": shop.ByHand,
		"interceptor": func(ctx context.Context) error {
			_, err := interceptor(ctx, nil, info, func(ctx context.Context, _ any) (any, error) { return nil, shop.InTx(ctx) })
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, call(b.Context()))
			}
		})
	}
}
