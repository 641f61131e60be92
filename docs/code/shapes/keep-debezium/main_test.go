package main

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/docs/code/shapes/service/servicetest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestAServiceOnlyWrites(t *testing.T) {
	t.Parallel()
	db := servicetest.Open(t)
	require.NoError(t, sqlstore.Postgres(sqlstore.WithAgeIndex()).CreateSchema(t.Context(), db.DB))
	address := servicetest.Serve(t, func(ctx context.Context, l net.Listener) error { return serve(ctx, db.DB, l) })
	require.Equal(t, http.StatusOK, servicetest.Post(t, address))
	servicetest.Counts(t, db.DB, "outbox_event WHERE status = 0", 1)
}
