package main

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/docs/code/shapes/service/servicetest"
)

func TestAServiceWritesAndDelivers(t *testing.T) {
	t.Parallel()
	db := servicetest.Open(t)
	address := servicetest.Serve(t, func(ctx context.Context, l net.Listener) error { return serve(ctx, db.DB, l) })
	require.Equal(t, http.StatusOK, servicetest.Post(t, address))
	require.Equal(t, http.StatusInternalServerError, servicetest.Post(t, address), "the order is there")
	servicetest.Delivered(t, db.DB, 1)
	servicetest.Counts(t, db.DB, "outbox_event", 1)
}
