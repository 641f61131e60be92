package tenants

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A Use that found the tenant just before it was removed does not get a value that is closed.
func TestAUseThatComesTooLateIsRefused(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	m, err := New(Config[int]{Logger: slog.New(slog.DiscardHandler), Open: func(context.Context, string) (opened Tenant[int], err error) {
		opened.Outbox, err = outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler), Mode: outbox.WriterOnly{}})
		return opened, err
	}})
	require.NoError(t, err)
	require.NoError(t, m.Set(t.Context(), "acme"))
	acme := m.tenants["acme"]
	_, end, err := acme.use(t.Context())
	require.NoError(t, err)
	end()
	require.NoError(t, m.Set(t.Context()))
	_, _, err = acme.use(t.Context())
	require.ErrorIs(t, err, ErrUnknown)
}
