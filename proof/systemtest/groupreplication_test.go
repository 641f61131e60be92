package systemtest

import (
	"database/sql"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// How often each test kills or stops the primary.
const (
	kills = 20
	stops = 5
)

// The primary is killed again and again: nothing that was acknowledged is lost, and each
// server that was killed joins the group again.
func TestGroupReplication(t *testing.T) {
	wholeSystem(t)
	for _, consistency := range []string{"EVENTUAL", "BEFORE_ON_PRIMARY_FAILOVER"} {
		t.Run("the primary is killed, "+consistency, func(t *testing.T) { testPrimaryKilled(t, consistency) })
	}
}

func testPrimaryKilled(t *testing.T, consistency string) {
	t.Helper()
	g := startGroup(t, map[string]string{"consistency": consistency})
	s, stop := g.business(t)
	var faults []fault
	for i := range kills {
		// Every other new primary has a backlog, and half of the outages are longer than
		// any lease lasts.
		backlog, longer := i%2 == 1, i%4 >= 2
		lagged := func() {}
		if backlog {
			lagged = g.lag(t)
			s.goesOn(t, 50)
		}
		f, dead := g.fail(t, longer)
		faults = append(faults, f)
		lagged()
		s.goesOn(t, 300)
		s.gentle.Store(true)
		g.rejoin(t, dead)
		s.gentle.Store(false)
		s.goesOn(t, 300)
	}
	stop()
	survivor := g.shopAt(t, g.primary)
	settle(t, survivor)
	s.check(t, survivor, nil, nil, faults...)
	g.agree(t)
}

// The primary stands still until the group has another one, and its connections stay. A
// transaction that it then refuses is in no server of the group.
func TestGroupReplicationWhosePrimaryStops(t *testing.T) {
	wholeSystem(t)
	g := startGroup(t, nil)
	var level string
	require.NoError(t, g.primary.admin.QueryRowContext(t.Context(), "SELECT @@group_replication_consistency").Scan(&level))
	t.Logf("the default of group_replication_consistency is %s", level)
	s, stop := g.business(t)
	var faults []fault
	for range stops {
		f, old := fault{began: time.Now()}, g.primary
		old.signal(t, syscall.SIGSTOP)
		g.awaitPrimary(t, old)
		old.signal(t, syscall.SIGCONT)
		awaitTrue(t, old.admin, "SELECT @@super_read_only")
		awaitTrue(t, old.admin, isOnline) // it joins the group again by itself
		f.stored, f.frozen = storedNow(t, g.shopAt(t, g.primary)), time.Now()
		g.clients.lead(g.primary.address())
		f.over = time.Now()
		faults = append(faults, f)
		s.goesOn(t, 300)
	}
	stop()
	numbers := map[uint16]int{}
	for _, err := range s.errs {
		numbers[mysqlNumber(err)]++
	}
	t.Logf("errors of orders by number: %v", numbers)
	survivor := g.shopAt(t, g.primary)
	settle(t, survivor)
	s.check(t, survivor, nil, nil, faults...)
	g.agree(t)
}

// Every server takes writes. Conflicts show at COMMIT.
func TestGroupReplicationWithSeveralPrimaries(t *testing.T) {
	wholeSystem(t)
	g := startGroup(t, map[string]string{"single-primary-mode": "OFF", "enforce-update-everywhere-checks": "ON"})
	c := cluster{addresses: [2]string{g.servers[0].address(), g.servers[1].address()}, shop: g.shop, conflicts: g.conflicts}
	t.Run("a COMMIT that fails the certification rolled back", func(t *testing.T) { testCertification(t, c, "3101", "1180", "1213") })
	t.Run("nodes at two servers claim the same events", func(t *testing.T) { testClaims(t, c) })
	t.Run("a transaction that is too large rolled back", func(t *testing.T) { testTooLarge(t, g) })
}

// The group refuses a large transaction at COMMIT.
func testTooLarge(t *testing.T, g *group) {
	t.Helper()
	s, pools := newShop(), g.shop(t, "large")
	n := s.sqlNode(t, "node", "mysql", mysqlDSN(g.servers[0].address(), "large"), sqlstore.MySQL())
	execute(t, g.servers[0].admin, "SET GLOBAL group_replication_transaction_size_limit = 100000")
	env := outbox.Envelope{EventID: s.next(), EventType: "OrderPlaced", AggregateType: "Order", Payload: outbox.JSON(strings.Repeat("x", 200_000))}
	err := n.place(t.Context(), env, nil)
	require.EqualValues(t, 3100, mysqlNumber(err), err)
	require.NotErrorIs(t, err, outbox.ErrOutcomeUnknown)
	require.Equal(t, acknowledged, s.order(t.Context(), n, s.next(), nil))
	settle(t, pools[0])
	require.Len(t, column(t, pools[0], "SELECT id FROM orders"), 1)
	require.Len(t, column(t, pools[0], "SELECT event_id FROM outbox_event"), 1)
}

// business creates the shop in the group, starts two nodes that reach the primary through
// the address of the clients, and places orders at both.
func (g *group) business(t testing.TB) (s *shop, stop func()) {
	t.Helper()
	s = newShop()
	g.primary.shop(t, "shop")
	dsn := mysqlDSN(g.clients.addr, "shop")
	first := s.sqlNode(t, "node-1", "mysql", dsn, sqlstore.MySQL())
	second := s.sqlNode(t, "node-2", "mysql", dsn, sqlstore.MySQL())
	stop = s.business(t.Context(), 4, first, second)
	s.goesOn(t, 300)
	return s, stop
}

// shopAt is a pool of the test's own on the shop at a server.
func (g *group) shopAt(t testing.TB, m *mysqld) *sql.DB {
	t.Helper()
	return open(t, "mysql", mysqlDSN(m.address(), "shop"))
}

// agree checks that all servers have the same orders, and the same events.
func (g *group) agree(t testing.TB) {
	t.Helper()
	var written string
	require.NoError(t, g.primary.admin.QueryRowContext(t.Context(), "SELECT @@global.gtid_executed").Scan(&written))
	var orders, events []string
	for _, m := range g.servers {
		awaitTrue(t, m.admin, "SELECT GTID_SUBSET(?, @@global.gtid_executed)", written)
		db := g.shopAt(t, m)
		o, e := column(t, db, "SELECT id FROM orders ORDER BY id"), column(t, db, "SELECT CONCAT(event_id, ' ', status) FROM outbox_event ORDER BY event_id")
		if orders == nil {
			orders, events = o, e
		}
		require.True(t, slices.Equal(orders, o), "the orders of %s", m.name)
		require.True(t, slices.Equal(events, e), "the events of %s", m.name)
	}
}
