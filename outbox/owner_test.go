package outbox_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// What a process takes over in SingleNode is leased under the name of its hold, so that
// operators see one node.
func TestAProcessHasOneName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leased(t, "e")
		ob := build(t, outbox.Config{Store: store, Mode: outbox.SingleNode{}}, func(ctx context.Context, _ outbox.Envelope) error {
			<-ctx.Done()
			return nil
		})
		require.NoError(t, ob.Start(t.Context()))
		time.Sleep(30 * time.Second)
		nodes, err := ob.Nodes(t.Context())
		require.NoError(t, err)
		require.Len(t, nodes, 1)
		require.True(t, nodes[0].Holds)
		require.Equal(t, 1, nodes[0].Leases)
		row, _ := store.Row("e")
		require.True(t, strings.HasPrefix(row.LockedBy, nodes[0].Owner+"/"))
		require.NoError(t, ob.Close(context.WithoutCancel(t.Context())))
	})
}
