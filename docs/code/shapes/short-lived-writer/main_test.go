package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/docs/code/shapes/service/servicetest"
)

func TestAProgramWritesAndEnds(t *testing.T) {
	t.Parallel()
	db := servicetest.Open(t)
	require.NoError(t, importOrders(t.Context(), db.DB, []string{"o-1", "o-2"}))
	servicetest.Counts(t, db.DB, "outbox_event WHERE status = 0", 2)
	require.Error(t, importOrders(t.Context(), db.DB, []string{"o-3", "o-1"}), "o-1 is there")
	servicetest.Counts(t, db.DB, "orders", 3)
	servicetest.Counts(t, db.DB, "outbox_event", 3)
}
