package systemtest

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestGalera(t *testing.T) {
	wholeSystem(t)
	g := startGalera(t)
	c := cluster{addresses: [2]string{g.clients[0].addr, g.clients[1].addr}, shop: g.shop, conflicts: g.conflicts}
	t.Run("a COMMIT that fails the certification rolled back", func(t *testing.T) { testCertification(t, c, "1213") })
	t.Run("nodes at two servers claim the same events", func(t *testing.T) { testClaims(t, c) })
	t.Run("a pool on both servers", func(t *testing.T) { testBalanced(t, g) })
	t.Run("a server is killed", func(t *testing.T) { testServerKilled(t, g) })
}

// cluster is two servers that both take writes, and find their conflicts at COMMIT.
type cluster struct {
	addresses [2]string
	// shop creates a database of the test's own, and returns a pool on it at each server.
	shop func(t testing.TB, name string) [2]*sql.DB
	// conflicts is how many transactions lost against one of another server.
	conflicts func(t testing.TB) int
}

// Both servers take writes, and one is killed: nothing that was acknowledged is lost.
func testServerKilled(t *testing.T, g *galera) {
	t.Helper()
	s, pools := newShop(), g.shop(t, "killed")
	first := s.sqlNode(t, "node-1", "mysql", mysqlDSN(g.clients[0].addr, "killed"), sqlstore.MySQL())
	second := s.sqlNode(t, "node-2", "mysql", mysqlDSN(g.clients[1].addr, "killed"), sqlstore.MySQL())
	held := s.next()
	leave := s.hold(held)
	require.Equal(t, acknowledged, s.order(t.Context(), second, held, nil))

	stop := s.business(t.Context(), 4, first, second)
	require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > 500 && s.delivered(held) > 0 }))
	f := fault{began: time.Now()}
	g.servers[1].kill()
	g.clients[1].lead()
	survivor := pools[0]
	awaitTrue(t, survivor, status("wsrep_cluster_size", "1"))
	f.stored, f.frozen = storedNow(t, survivor), time.Now()
	expire(t, survivor, "node-2/%")
	g.clients[1].lead(loopback(g.servers[0].port))
	f.over = time.Now()
	s.goesOn(t, 500)
	stop()
	leave()
	settle(t, survivor)
	s.check(t, survivor, nil, nil, f)
}

// Row locks are not replicated: nodes at two servers claim the same rows at once, and
// one of them fails when it commits. Each event is delivered once.
func testClaims(t *testing.T, c cluster) {
	t.Helper()
	s, pools := newShop(), c.shop(t, "claims")
	for i, address := range c.addresses {
		s.sqlNode(t, fmt.Sprintf("node-%d", i+1), "mysql", mysqlDSN(address, "claims"), sqlstore.MySQL())
	}
	db, err := sqltx.Open("mysql", mysqlDSN(c.addresses[0], "claims"))
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	// An event of a process that delivers nothing has no lease when it is written.
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.MySQL(), Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	writer := ob.Writer()
	a, err := sqltx.New(db, writer)
	require.NoError(t, err)
	began, before := time.Now(), c.conflicts(t)
	const events = 4000
	for range events / 20 {
		require.NoError(t, outbox.InTx(t.Context(), a, func(ctx context.Context) error {
			for range 20 {
				id := s.next()
				env := outbox.Envelope{EventID: id, EventType: "OrderPlaced", AggregateType: "Order", Payload: outbox.JSON(1)}
				if _, err := writer.Write(ctx, env); err != nil {
					return err
				}
			}
			return nil
		}))
		if c.conflicts(t) > before+20 {
			break
		}
	}
	settle(t, pools[0])
	by := map[string]int{}
	_, deliveries := s.record()
	for id, calls := range deliveries {
		require.Lenf(t, calls, 1, "event %s: %v", id, calls)
		by[calls[0].node]++
	}
	t.Logf("%d events, delivered by %v, %d conflicts, %d outcomes refused, in %s", len(deliveries), by, c.conflicts(t)-before, s.leaseLost.Load(), time.Since(began).Round(time.Millisecond))
	require.Greater(t, c.conflicts(t), before, "the nodes did not claim the same rows")
	require.Zero(t, s.leaseLost.Load())
}

// A COMMIT that fails the certification rolled back: neither the writer nor the outbox
// is left in doubt. The numbers are the errors that it may fail with.
func testCertification(t *testing.T, c cluster, numbers ...string) {
	t.Helper()
	s, pools := newShop(), c.shop(t, "certification")
	execute(t, pools[0], "CREATE TABLE stock (id INT PRIMARY KEY, left_over INT NOT NULL)", "INSERT INTO stock VALUES (1, 100)")
	awaitTrue(t, pools[1], "SELECT COUNT(*) = 1 FROM stock")
	var doubts, rolledBackHooks atomic.Int32
	db, err := sqltx.Open("mysql", mysqlDSN(c.addresses[1], "certification"))
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	cfg := s.config(t, "node-2")
	cfg.DB, cfg.Store = db, sqlstore.MySQL()
	cfg.Hooks = []outbox.WriterHook{{AfterRollback: func(_ context.Context, _ []outbox.Envelope, cause error) {
		if rolledBackHooks.Add(1); cause == nil || isUnknown(cause) {
			doubts.Add(1)
		}
	}}}
	ob := s.start(t, "node-2", cfg)
	a, err := sqltx.New(db, ob.Writer())
	require.NoError(t, err)
	const rounds = 20
	errs := map[string]int{}
	for i := range rounds {
		id := s.next()
		err := outbox.InTx(t.Context(), a, func(ctx context.Context) error {
			tx, _ := a.TxFrom(ctx)
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET left_over = left_over - 1 WHERE id = 1"); err != nil {
				return err
			}
			_, err := ob.Writer().Write(ctx, outbox.Envelope{EventID: id, EventType: "OrderPlaced", AggregateType: "Order", Payload: outbox.JSON(i)})
			if err != nil {
				return err
			}
			execute(t, pools[0], "UPDATE stock SET left_over = left_over - 1 WHERE id = 1")
			if i%2 == 1 { // the other transaction has then taken the lock, too
				awaitTrue(t, pools[1], fmt.Sprintf("SELECT left_over = %d FROM stock", 99-i))
			}
			return nil
		})
		require.Error(t, err)
		number := fmt.Sprint(mysqlNumber(err))
		require.Contains(t, numbers, number, err.Error())
		require.NotErrorIs(t, err, outbox.ErrOutcomeUnknown)
		errs[number]++
	}
	t.Logf("errors of %d conflicts by number: %v", rounds, errs)
	require.EqualValues(t, rounds, rolledBackHooks.Load())
	require.Zero(t, doubts.Load(), "hooks were told that the outcome is unknown")
	require.Empty(t, column(t, pools[0], "SELECT event_id FROM outbox_event"))
	_, deliveries := s.record()
	require.Empty(t, deliveries)
	awaitTrue(t, pools[1], fmt.Sprintf("SELECT left_over = %d FROM stock", 100-rounds))
}

// The connections of one pool lead to both servers. A statement may then reach a server
// that has not applied what the one before it wrote at the other: the outcome of an
// event whose row is not there yet. With wsrep_sync_wait a statement waits for that.
func testBalanced(t *testing.T, g *galera) {
	t.Helper()
	pools := g.shop(t, "balanced")
	balancer := newRelay(t, loopback(g.servers[0].port), loopback(g.servers[1].port))
	run := func(settings string) *shop {
		s := newShop()
		execute(t, pools[0], "DELETE FROM orders", "DELETE FROM outbox_event")
		n := s.sqlNode(t, "node", "mysql", mysqlDSN(balancer.addr, "balanced")+settings, sqlstore.MySQL())
		stop := s.business(t.Context(), 4, n)
		require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > 1000 }))
		stop()
		if settings == "" { // some outcomes are not stored, and their events wait for their leases to expire
			_ = n.Close(context.Background())
			return s
		}
		settle(t, pools[0])
		require.NoError(t, n.Close(context.Background()))
		return s
	}
	without := run("")
	t.Logf("without wsrep_sync_wait: %d outcomes refused", without.leaseLost.Load())
	with := run("&wsrep_sync_wait=7")
	with.check(t, pools[0], nil, nil)
	require.Zero(t, with.leaseLost.Load())
}
