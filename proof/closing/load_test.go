package closing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// kind is a mode with what else changes how deliveries are closed.
type kind struct {
	mode    outbox.Mode
	batches bool
}

// kinds are all, with small queues, so that both paths work, and with an interval and
// leases that no test waits for.
func kinds() map[string]kind {
	d := outbox.DispatchOptions{Workers: 4, HotCapacity: 20, ColdCapacity: 20, DrainTimeout: drain}
	limited := d
	limited.Rules = map[outbox.EventKind]outbox.Rules{{AggregateType: "Order", EventType: "Placed"}: {Concurrency: 3, Rate: 800}}
	poll := outbox.PollOptions{Interval: time.Hour, BatchSize: 15}
	return map[string]kind{
		"single node":     {mode: outbox.SingleNode{Dispatch: d, Poll: poll}},
		"many nodes":      {mode: outbox.MultiNode{Dispatch: d, Poll: poll, Claim: outbox.ClaimOptions{LeaseDuration: time.Hour}}},
		"ordered":         {mode: outbox.Ordered{Poll: poll, DrainTimeout: drain}},
		"ordered by key":  {mode: outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 4, ColdCapacity: 20, DrainTimeout: drain}, Poll: poll, Claim: outbox.ClaimOptions{LeaseDuration: time.Hour}}},
		"writer only":     {mode: outbox.WriterOnly{}},
		"batches":         {mode: outbox.MultiNode{Dispatch: d, Poll: poll, Claim: outbox.ClaimOptions{LeaseDuration: time.Hour}}, batches: true},
		"limits":          {mode: outbox.SingleNode{Dispatch: limited, Poll: poll}},
		"tenants in turn": {mode: outbox.MultiNode{Dispatch: d, Poll: poll, Claim: outbox.ClaimOptions{LeaseDuration: time.Hour, TenantsInTurn: true}}},
	}
}

// Close while writers write and listeners work, again and again, in every mode: it
// returns within its bound, what it says is true, no goroutine and no lease is left, and
// another node delivers the rest at once, each event once.
func TestCloseUnderLoad(t *testing.T) {
	for name, k := range kinds() {
		t.Run(name, func(t *testing.T) {
			dbs := map[testdb.Kind]*testdb.DB{}
			clean, n := 0, rounds(4)
			for round := range n {
				target := targetOf(round)
				db := dbs[target.Kind]
				if db == nil {
					db = testdb.Open(t, target)
					require.NoError(t, storeOf(db.Kind).CreateSchema(t.Context(), db.DB))
					dbs[target.Kind] = db
				}
				if closeUnderLoad(t, db, k) {
					clean++
				}
			}
			t.Logf("%d of %d closed without an error", clean, n)
			if n == longRounds {
				require.Greater(t, clean, n/2)
			}
		})
	}
}

// targetOf is SQLite in most rounds.
func targetOf(round int) testdb.Target {
	main := adaptertest.Main()
	switch round % 5 {
	case 1:
		return main[0]
	case 3:
		return main[1]
	default:
		return main[2]
	}
}

// closeUnderLoad reports whether Close returned no error. A machine that is too busy for
// the DrainTimeout is a reason for one, and then it has to be true.
func closeUnderLoad(t *testing.T, db *testdb.DB, k kind) (clean bool) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "DELETE FROM outbox_event")
	require.NoError(t, err)
	_, writes := k.mode.(outbox.WriterOnly)
	noLeak := leakless(t)
	l := newLedger()
	n := l.open(t, db, k)
	require.NoError(t, l.write(t.Context(), n, 60)) // for the cold path
	require.NoError(t, n.Start(t.Context()))
	stop := l.writeUntil(t, n, func(err error) { t.Errorf("writing: %v", err) })
	some := rand.IntN(60) //nolint:gosec // any moment does.
	require.Eventually(t, func() bool { return writes || l.answers() >= some }, patience, time.Millisecond)

	took, err := closeTogether(n, anyContext())
	require.Zero(t, l.running.Load(), "a listener runs although Close does not say so: %v", err)
	begun, said := l.begun.Load(), told(t, err)
	require.Less(t, took, bound+ignoring(db)+slack)
	stop()
	require.Equal(t, begun, l.begun.Load(), "nothing is delivered after Close")
	require.LessOrEqual(t, l.answers()-rows(t, db, "status = 1"), said.outcomes, "%v", err)
	// A transaction that ended after Close gives its lease back a moment later.
	require.Eventually(t, func() bool { return rows(t, db, "locked_by IS NOT NULL") <= said.outcomes+said.leases }, patience, 5*time.Millisecond, "%v", err)
	require.Zero(t, rows(t, db, "attempts <> 0 OR status > 1"), "what was cut off is no failed attempt")
	noLeak()
	if writes {
		require.Equal(t, len(l.committed), rows(t, db, "status = 0"))
		return err == nil
	}

	if err != nil { // other nodes deliver some of the rest when leases expire
		t.Logf("%s: %v", db.Name, err)
		_, err := db.ExecContext(t.Context(), "UPDATE outbox_event SET locked_by = NULL, locked_at = NULL")
		require.NoError(t, err)
	}
	l.deliverRest(t, db, k, func() {})
	l.requireDelivered(t, said.outcomes)
	noLeak()
	return err == nil
}

// deliverRest delivers what is left with another node, at once or, where leases had to
// expire, then; or when free, which is called again and again, has freed them.
func (l *ledger) deliverRest(t *testing.T, db *testdb.DB, k kind, free func()) {
	t.Helper()
	rest := l.open(t, db, k)
	require.NoError(t, rest.Start(t.Context()))
	require.Eventually(t, func() bool {
		free()
		rest.Wake()
		return rows(t, db, "status <> 1") == 0
	}, 3*patience, 100*time.Millisecond, "the rest is not delivered")
	_ = rest.Close(context.Background()) // it may know less of the outcomes than the table
}

// requireDelivered requires that each committed event was delivered, and at most as many
// twice as Close said.
func (l *ledger) requireDelivered(t *testing.T, twice int) {
	t.Helper()
	deliveries := 0
	for id, known := range l.committed {
		require.True(t, !known || l.done[id] > 0, "%s is not delivered", id)
	}
	for id, times := range l.done {
		require.Contains(t, l.committed, id)
		deliveries += times
	}
	require.LessOrEqual(t, deliveries-len(l.done), twice, "events are delivered twice although Close does not say so")
}

// anyContext is one that never ends, has ended, or ends soon.
func anyContext() func() (context.Context, context.CancelFunc) {
	switch rand.IntN(3) { //nolint:gosec // any does.
	case 0:
		return func() (context.Context, context.CancelFunc) { return context.Background(), func() {} }
	case 1:
		return func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}
	default:
		return func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 5*time.Millisecond)
		}
	}
}

// closeTogether closes from two goroutines, and returns what both were told.
func closeTogether(n node, contextOf func() (context.Context, context.CancelFunc)) (took time.Duration, err error) {
	var both sync.WaitGroup
	var errs [2]error
	began := time.Now()
	for i := range errs {
		both.Go(func() {
			ctx, cancel := contextOf()
			defer cancel()
			errs[i] = n.Close(ctx)
		})
	}
	both.Wait()
	if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
		return 0, fmt.Errorf("two answers: %w and %w", errs[0], errs[1])
	}
	return time.Since(began), errs[0]
}
