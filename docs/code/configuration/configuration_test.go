// Package configuration_test holds the code of docs/reference/configuration.md.
package configuration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestTheOptionsOfAModeAreItsFields(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	db := store.DB()
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store,
		Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 32, ListenerTimeout: 30 * time.Second},
			Poll:     outbox.PollOptions{Interval: time.Second},
			Claim:    outbox.ClaimOptions{LeaseDuration: time.Minute},
		},
		Purge: &outbox.PurgeOptions{Retention: 3 * 24 * time.Hour},
	})
	require.NoError(t, err)
	require.NoError(t, ob.Close(context.Background()))
}
