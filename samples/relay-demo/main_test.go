package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheOrderIsDeliveredTwiceAndHandledOnce(t *testing.T) {
	var out strings.Builder
	stock, err := run(t.Context(), t.TempDir(), &out)
	require.NoError(t, err, out.String())
	require.Equal(t, 9, stock, out.String())
	require.Equal(t, 2, strings.Count(out.String(), "delivers"))
	require.Equal(t, 1, strings.Count(out.String(), "takes the item"))
}

func TestAShopThatFailsClosesItsConnection(t *testing.T) {
	broker, err := startServer(t.TempDir())
	require.NoError(t, err)
	defer broker.Shutdown()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = placeOrder(ctx, t.TempDir(), broker.ClientURL())
	require.ErrorIs(t, err, context.Canceled)
	state, err := broker.Varz(nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, state.TotalConnections)
	require.Eventually(t, func() bool { return broker.NumClients() == 0 }, time.Minute, time.Millisecond)
}
