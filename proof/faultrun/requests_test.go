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

// Two processes serve requests with keys. The clients repeat the requests at both, and cut connections
// off. Meanwhile one process is killed several times, and the COMMITs of the other get no answer.
func TestRequestsWithKeys(t *testing.T) {
	t.Parallel()
	program, err := faultrun.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		spec := faultrun.Spec{
			Driver: drivers[db.Kind], Mode: "multi", Lease: 15 * time.Second, Interval: 50 * time.Millisecond,
			Requests: true, RollBack: 10,
		}
		require.NoError(t, faultrun.CreateTables(ctx, db.DB, spec))
		run, err := faultrun.NewRun(program, historyDir(t))
		require.NoError(t, err)
		defer run.End()
		start := func(process, dsn string) *faultrun.Process {
			spec.Process, spec.DSN = process, dsn
			p, err := run.Start(spec)
			require.NoError(t, err)
			require.NoError(t, p.Ready(ctx))
			return p
		}
		clients, err := run.NewClients()
		require.NoError(t, err)
		began, lossy := time.Now(), db
		if db.Kind != testdb.SQLite {
			lossy, _ = db.CutCommits(t)
		}
		b := start("b", lossy.DSN)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			clients.Send(ctx, 4, 15, 0)
		}()
		for _, process := range []string{"a0", "a1", "a2"} {
			a, before := start(process, db.DSN), clients.Answered()
			require.Eventually(t, func() bool { return clients.Answered() > before+15 || isClosed(sent) }, time.Minute, time.Millisecond)
			a.Kill()
		}
		<-sent
		require.NoError(t, b.Terminate(ctx))
		run.Fault(checker.Network, "b", began, time.Now())
		c := start("c", db.DSN)
		clients.Finish(ctx)
		require.NoError(t, faultrun.Delivered(ctx, db.DB))
		require.NoError(t, c.Terminate(ctx))
		h, err := run.History(ctx, db.DB, spec.Promise())
		require.NoError(t, err)
		report := checker.Check(h)
		t.Log(report)
		require.Empty(t, report.Violations, "the logs are in %s", run.Dir)
		require.Equal(t, 60, report.Keys)
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
