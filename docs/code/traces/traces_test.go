// Package traces_test holds the code of docs/how-to/traces.md.
package traces_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestAnOutboxIsTraced(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	db := store.DB()
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store,
		Hooks:        []outbox.WriterHook{outboxotel.Hook()},         // where events are written
		Interceptors: []outbox.Interceptor{outboxotel.Interceptor()}, // where they are delivered
	})
	require.NoError(t, err)
	require.NoError(t, ob.Close(context.Background()))
}
