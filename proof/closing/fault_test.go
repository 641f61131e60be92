package closing_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// fault happens to the database of a node. through is the node's pool.
type fault func(t *testing.T, db *testdb.DB) (through *testdb.DB, begin, end func())

// behindProxy is a fault of the network.
func behindProxy(to testdb.Fault) fault {
	return func(t *testing.T, db *testdb.DB) (*testdb.DB, func(), func()) {
		through, set := db.Faulty(t)
		return through, func() { set(to) }, func() { set(testdb.Away) } // which ends what still waits
	}
}

// locked is another transaction that has locked the table: claims hang, and outcomes.
func locked(t *testing.T, db *testdb.DB) (*testdb.DB, func(), func()) {
	lock := map[testdb.Kind][]string{
		testdb.Postgres: {"BEGIN", "LOCK TABLE outbox_event IN ACCESS EXCLUSIVE MODE"},
		testdb.MySQL:    {"LOCK TABLES outbox_event WRITE"},
		testdb.SQLite:   {"BEGIN IMMEDIATE"},
	}[db.Kind]
	unlock := map[testdb.Kind]string{testdb.Postgres: "ROLLBACK", testdb.MySQL: "UNLOCK TABLES", testdb.SQLite: "ROLLBACK"}[db.Kind]
	conn, err := db.Conn(context.Background())
	require.NoError(t, err)
	run := func(query string) {
		_, err := conn.ExecContext(context.Background(), query)
		require.NoError(t, err, query)
	}
	end := sync.OnceFunc(func() { run(unlock); _ = conn.Close() })
	t.Cleanup(func() { _ = conn.Close() })
	return db.Reopen(t), func() {
		for _, query := range lock {
			run(query)
		}
	}, end
}

// The database fails while writers write and listeners work, and then the outbox closes:
// it returns within its bound, what it says is true, and nothing is lost.
func TestCloseWhileTheDatabaseFails(t *testing.T) {
	faults := map[string]fault{
		"silent": behindProxy(testdb.Silent), "mute": behindProxy(testdb.Mute), "away": behindProxy(testdb.Away), "locked": locked,
	}
	for name := range faultKinds("") {
		for _, tt := range []struct {
			target, fault string
			short         string // the kind that has this case in the short form
		}{
			{"postgres/pgx", "silent", "many nodes"},
			{"postgres/pgx", "mute", ""},
			{"postgres/pgx", "away", "single node"},
			{"postgres/pgx", "locked", ""},
			{"postgres/pq", "silent", "single node"},
			{"mysql", "silent", ""},
			{"mysql", "mute", "ordered by key"},
			{"mysql", "away", ""},
			{"mysql", "locked", "many nodes"},
			{"sqlite", "locked", "batches"},
		} {
			if rounds(0) == 0 && tt.short != name {
				continue
			}
			t.Run(name+"/"+tt.target+"/"+tt.fault, func(t *testing.T) {
				targets := adaptertest.Drivers()
				i := slices.IndexFunc(targets, func(target testdb.Target) bool { return target.Name == tt.target })
				closeAtFault(t, testdb.Open(t, targets[i]), name, faults[tt.fault])
			})
		}
	}
}

// faultKinds are kinds whose leases expire soon: nothing gives them back while the
// database is away.
func faultKinds(owner string) map[string]kind {
	d := outbox.DispatchOptions{Workers: 4, HotCapacity: 20, ColdCapacity: 20, DrainTimeout: drain}
	poll := outbox.PollOptions{Interval: 50 * time.Millisecond, BatchSize: 15}
	claim := outbox.ClaimOptions{Owner: owner, LeaseDuration: 15 * time.Second}
	return map[string]kind{
		"single node":    {mode: outbox.SingleNode{Dispatch: d, Poll: poll}},
		"many nodes":     {mode: outbox.MultiNode{Dispatch: d, Poll: poll, Claim: claim}},
		"ordered":        {mode: outbox.Ordered{Poll: poll, DrainTimeout: drain}},
		"ordered by key": {mode: outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 4, ColdCapacity: 20, DrainTimeout: drain}, Poll: poll, Claim: claim}},
		"batches":        {mode: outbox.MultiNode{Dispatch: d, Poll: poll, Claim: claim}, batches: true},
	}
}

func closeAtFault(t *testing.T, db *testdb.DB, name string, happen fault) {
	t.Helper()
	require.NoError(t, storeOf(db.Kind).CreateSchema(t.Context(), db.DB))
	through, begin, end := happen(t, db)
	noLeak := leakless(t)
	l := newLedger()
	n := l.open(t, through, faultKinds("closed")[name])
	require.NoError(t, l.write(t.Context(), n, 60))
	require.NoError(t, n.Start(t.Context()))
	stop := l.writeUntil(t, n, func(error) {})
	require.Eventually(t, func() bool { return l.answers() >= 20 }, patience, time.Millisecond)
	begin()
	// Some are delivered without it.
	before := l.answers()
	require.Eventually(t, func() bool { return l.answers() > before || l.running.Load() == 0 }, patience, time.Millisecond)

	took, err := closeTogether(n, anyContext())
	t.Logf("closed after %s: %v", took, err)
	begun, answered, said := l.begun.Load(), l.answers(), told(t, err)
	require.Less(t, took, bound+ignoring(db)+slack)
	require.Zero(t, l.running.Load(), "a listener runs although Close does not say so")
	end()
	stop()
	require.Equal(t, begun, l.begun.Load(), "nothing is delivered after Close")
	require.LessOrEqual(t, answered-rows(t, db, "status = 1"), said.outcomes, "outcomes are not stored although Close does not say so")
	_ = through.Close() // MySQL's driver says of a connection that the fault cut that it is bad
	noLeak()

	var version string // of the ranges, which the process that closed may have left
	_ = db.QueryRowContext(t.Context(), "SELECT owner FROM outbox_event_control WHERE kind = 'ranges'").Scan(&version)
	l.deliverRest(t, db, faultKinds("rest")[name], func() {
		if rounds(0) > 0 { // the long form waits until leases and ranges expire
			return
		}
		// What fails is done again by the next look at the table.
		_, _ = db.ExecContext(context.Background(), "UPDATE outbox_event SET locked_by = NULL, locked_at = NULL WHERE locked_by LIKE 'closed/%'")
		_, _ = db.ExecContext(context.Background(), "DELETE FROM outbox_event_control WHERE kind = 'ranges' AND owner = '"+version+"'")
	})
	l.requireDelivered(t, said.outcomes)
}
