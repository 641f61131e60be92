package connecttx_test

import (
	"context"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboxkit/outbox-go/connecttx"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

// The interceptor without a network.
func BenchmarkCall(b *testing.B) {
	shop := webtest.NewBenchShop(b)
	req, res := connect.NewRequest(wrapperspb.String("tea")), connect.NewResponse(wrapperspb.String("placed"))
	intercepted := connecttx.NewInterceptor(shop.Adapter).WrapUnary(func(ctx context.Context, _ connect.AnyRequest) (connect.AnyResponse, error) {
		return res, shop.InTx(ctx)
	})
	for name, call := range map[string]func(ctx context.Context) error{
		"hand": shop.ByHand,
		"interceptor": func(ctx context.Context) error {
			_, err := intercepted(ctx, req)
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
