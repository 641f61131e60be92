package main

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/docs/code/shapes/service/servicetest"
)

func TestTheWorkerDeliversWhatTheAPIWrote(t *testing.T) {
	t.Parallel()
	db := servicetest.Open(t)
	address := servicetest.Serve(t, func(ctx context.Context, l net.Listener) error { return api(ctx, db.DB, l) })
	require.Equal(t, http.StatusOK, servicetest.Post(t, address))
	servicetest.Counts(t, db.DB, "outbox_event WHERE status = 0", 1)
	servicetest.Start(t, func(ctx context.Context) error { return worker(ctx, db.DB) })
	servicetest.Delivered(t, db.DB, 1)
}
