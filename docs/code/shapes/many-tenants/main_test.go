package main

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/docs/code/shapes/service/servicetest"
)

func TestEachTenantHasADatabase(t *testing.T) {
	t.Parallel()
	acme, globex := servicetest.Open(t), servicetest.Open(t)
	m, err := newManager(func(tenant string) string { return map[string]string{"acme": acme.DSN, "globex": globex.DSN}[tenant] })
	require.NoError(t, err)
	address := servicetest.Serve(t, func(ctx context.Context, l net.Listener) error { return serve(ctx, m, l, "acme", "globex") })
	require.Equal(t, http.StatusOK, servicetest.Post(t, address, "Tenant", "acme"))
	require.Equal(t, http.StatusServiceUnavailable, servicetest.Post(t, address, "Tenant", "none"))
	servicetest.Delivered(t, acme.DB, 1)
	servicetest.Counts(t, globex.DB, "outbox_event", 0)
	require.NoError(t, m.Set(t.Context(), "globex")) // acme has left
	require.Equal(t, http.StatusServiceUnavailable, servicetest.Post(t, address, "Tenant", "acme"))
	require.Equal(t, http.StatusOK, servicetest.Post(t, address, "Tenant", "globex"))
	servicetest.Delivered(t, globex.DB, 1)
}
