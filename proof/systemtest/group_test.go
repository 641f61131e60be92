package systemtest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// group is three MySQL servers in group replication.
type group struct {
	servers [3]*mysqld
	// clients is the address of the primary, or in multi-primary mode of the first
	// server, as a router in front of the group has it.
	clients *relay
	primary *mysqld
}

// startGroup starts the servers with these variables of the plugin.
func startGroup(t testing.TB, settings map[string]string) *group {
	t.Helper()
	g := &group{}
	ports := freePorts(t, len(g.servers))
	var seeds []string
	for _, port := range ports {
		seeds = append(seeds, loopback(port))
	}
	args := []string{
		"--plugin-load-add=group_replication.so", "--loose-group-replication-group-name=1f0c2d4e-7d55-4b1e-9c53-0b9a3f6e1a01",
		"--loose-group-replication-start-on-boot=OFF", "--loose-group-replication-group-seeds=" + strings.Join(seeds, ","),
		"--loose-group-replication-recovery-get-public-key=ON", "--loose-group-replication-recovery-reconnect-interval=1", "--loose-group-replication-message-cache-size=128M",
		// A dead server is expelled five seconds after its last sign of life instead of ten.
		"--loose-group-replication-member-expel-timeout=0",
	}
	for name, value := range settings {
		args = append(args, "--loose-group-replication-"+name+"="+value)
	}
	for i := range g.servers {
		m := newMySQL(t, i+1, append(args, "--loose-group-replication-local-address="+seeds[i])...)
		g.servers[i] = m
		m.start(t)
		execute(t, m.admin, "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR CHANNEL 'group_replication_recovery'")
		if i == 0 {
			execute(t, m.admin, "SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF")
		} else {
			execute(t, m.admin, "START GROUP_REPLICATION")
		}
		awaitTrue(t, m.admin, isOnline)
	}
	g.primary = g.servers[0]
	awaitTrue(t, g.primary.admin, isPrimary)
	g.clients = newRelay(t, g.primary.address())
	return g
}

// What a server says of itself.
const (
	isOnline  = "SELECT MEMBER_STATE = 'ONLINE' FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid"
	isPrimary = "SELECT MEMBER_STATE = 'ONLINE' AND MEMBER_ROLE = 'PRIMARY' FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid"
)

// awaitPrimary waits until one of the servers that are not dead is the primary. It may
// still refuse writes, until it has applied its backlog.
func (g *group) awaitPrimary(t testing.TB, dead *mysqld) {
	t.Helper()
	require.True(t, eventually(patience, func() bool {
		for _, m := range g.servers {
			var yes sql.NullBool
			if m != dead && m.admin.QueryRowContext(t.Context(), isPrimary).Scan(&yes) == nil && yes.Bool {
				g.primary = m
				return true
			}
		}
		return false
	}), "the group has no primary")
}

// fail kills the primary, and leads the clients to the new one. The dead server has
// then left the group, and its data stays.
func (g *group) fail(t testing.TB, longer bool) (f fault, dead *mysqld) {
	t.Helper()
	dead, f.began = g.primary, time.Now()
	dead.kill()
	g.clients.lead()
	g.awaitPrimary(t, dead)
	db := g.shopAt(t, g.primary)
	f.stored, f.frozen = storedNow(t, db), time.Now()
	if longer {
		expire(t, db, "%")
	}
	g.clients.lead(g.primary.address())
	f.over = time.Now()
	return f, dead
}

// lag keeps the secondaries from applying what the primary commits in the shop, for
// longer than it takes to elect another primary, which then has a backlog.
func (g *group) lag(t testing.TB) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	for _, m := range g.servers {
		if m == g.primary {
			continue
		}
		conn, err := m.admin.Conn(t.Context())
		require.NoError(t, err)
		for _, statement := range []string{
			"SET group_replication_consistency = 'EVENTUAL'", // else UNLOCK waits for the backlog
			"LOCK TABLES shop.orders READ, shop.outbox_event READ",
		} {
			_, err = conn.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		all.Go(func() {
			time.Sleep(lagTime)
			_, err := conn.ExecContext(context.Background(), "UNLOCK TABLES")
			assert.NoError(t, err)
			_ = conn.Close()
		})
	}
	return all.Wait
}

// lagTime is longer than the group takes to notice a dead primary, and to elect another.
const lagTime = 10 * time.Second

// shop creates a database of the test's own, and returns a pool on it at the first two
// servers.
func (g *group) shop(t testing.TB, name string) (pools [2]*sql.DB) {
	t.Helper()
	pools[0] = g.servers[0].shop(t, name)
	var written string
	require.NoError(t, pools[0].QueryRowContext(t.Context(), "SELECT @@global.gtid_executed").Scan(&written))
	awaitTrue(t, g.servers[1].admin, "SELECT GTID_SUBSET(?, @@global.gtid_executed)", written)
	pools[1] = open(t, "mysql", mysqlDSN(g.servers[1].address(), name))
	return pools
}

// conflicts is how many transactions failed the certification. Each server certifies all.
func (g *group) conflicts(t testing.TB) (n int) {
	t.Helper()
	err := g.servers[0].admin.QueryRowContext(t.Context(), "SELECT COUNT_CONFLICTS_DETECTED FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@server_uuid").Scan(&n)
	require.NoError(t, err)
	return n
}

// rejoin starts a server that was killed, which joins the group again.
func (g *group) rejoin(t testing.TB, m *mysqld) {
	t.Helper()
	m.start(t)
	execute(t, m.admin, "START GROUP_REPLICATION")
	awaitTrue(t, m.admin, isOnline)
	for _, m := range g.servers {
		awaitTrue(t, m.admin, fmt.Sprintf("SELECT COUNT(*) = %d FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'", len(g.servers)))
	}
}
