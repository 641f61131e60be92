package faultrun_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/proof/checker"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

var drivers = map[testdb.Kind]string{testdb.Postgres: "pgx", testdb.MySQL: "mysql", testdb.SQLite: "sqlite"}

// Two processes write and deliver, one of them is killed and comes back.
func TestAKilledProcess(t *testing.T) {
	t.Parallel()
	program, err := faultrun.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		spec := faultrun.Spec{
			Driver: drivers[db.Kind], DSN: db.DSN, Mode: "multi", Lease: 15 * time.Second, Interval: 50 * time.Millisecond,
			Writers: []string{"sqltx", "sqltx"}, Transactions: 50, RollBack: 10, Fail: 10, Later: 5, Bury: 2, Slow: 2 * time.Millisecond,
		}
		require.NoError(t, faultrun.CreateTables(ctx, db.DB, spec))
		run, err := faultrun.NewRun(program, t.TempDir())
		require.NoError(t, err)
		defer run.End()
		start := func(process string) *faultrun.Process {
			spec.Process = process
			p, err := run.Start(spec)
			require.NoError(t, err)
			require.NoError(t, p.Ready(ctx))
			return p
		}
		a, b := start("a0"), start("b0")
		a.Kill()
		a = start("a1")
		require.NoError(t, a.Written(ctx))
		require.NoError(t, b.Written(ctx))
		require.NoError(t, faultrun.Delivered(ctx, db.DB))
		require.NoError(t, a.Terminate(ctx))
		require.NoError(t, b.Terminate(ctx))
		h, err := run.History(ctx, db.DB, spec.Promise())
		require.NoError(t, err)
		report := checker.Check(h)
		t.Log(report)
		require.Empty(t, report.Violations)
		require.NotZero(t, report.Succeeded)
	})
}
