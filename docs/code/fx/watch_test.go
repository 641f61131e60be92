package main

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// watch makes a followed pool of one that another module provides and closes.
func watch(lc fx.Lifecycle, pool *sql.DB) *sql.DB {
	db := sqltx.Watch(pool)
	lc.Append(fx.StopHook(db.Close)) // else each app leaves a goroutine behind
	return db
}

// Not in parallel: it looks for goroutines that stay.
func TestAWatchedPoolIsClosedWithTheApp(t *testing.T) {
	plain := testdb.Open(t, testdb.Main()[2])
	ignore := goleak.IgnoreCurrent()
	var s *shop
	app := fx.New(
		fx.NopLogger, fx.Supply(plain.DB), fx.Provide(newAdapter, newShop),
		fx.Decorate(watch),
		outboxfx.Module,
		outboxfx.AsBinding(newOrderListener),
		fx.Replace(outboxfx.Config{CreateSchema: true}),
		fx.Populate(&s),
	)
	require.NoError(t, app.Start(t.Context()))
	require.NoError(t, s.place(t.Context(), "o-1"))
	require.NoError(t, app.Stop(context.Background()))
	goleak.VerifyNone(t, ignore)
	require.NoError(t, plain.PingContext(t.Context()), "the pool is its module's to close")
}
