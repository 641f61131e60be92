package outbox_test

import (
	"context"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// Some web frameworks, such as Fiber, give a handler strings whose memory the next request uses. An event
// keeps what it was written with.
func TestAnEventHasItsOwnStrings(t *testing.T) {
	t.Parallel()
	memory := []byte("12345678")
	text := unsafe.String(unsafe.SliceData(memory), len(memory))
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	require.NoError(t, err)
	require.NoError(t, outbox.InTx(t.Context(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, outbox.Envelope{
			EventID: text, EventType: outbox.EventType(text), AggregateType: outbox.AggregateType(text), AggregateID: text,
			TenantID: text, Headers: map[string]string{"key": text, text: "value"}, Payload: outbox.RawJSON(text),
		})
		return err
	}))
	copy(memory, "overwritten")
	env := store.Rows()[0].Envelope
	require.Equal(t, outbox.Envelope{
		EventID: "12345678", EventType: "12345678", AggregateType: "12345678", AggregateID: "12345678", TenantID: "12345678",
		Headers: map[string]string{"key": "12345678", "12345678": "value"}, Payload: env.Payload, OccurredAt: env.OccurredAt, AvailableAt: env.AvailableAt,
	}, env)
	require.Equal(t, "12345678", env.Payload.String())
	memory = []byte("image/png")
	text = unsafe.String(unsafe.SliceData(memory), len(memory))
	payload := outbox.Bytes(text, text)
	copy(memory, "overwritten")
	require.Equal(t, "image/png", payload.ContentType())
	require.Equal(t, "image/png", string(payload.Bytes()))
}
