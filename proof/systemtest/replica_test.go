package systemtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// With a replica that is semi-synchronous for as long as it takes, nothing that was
// acknowledged is lost.
func TestASemiSynchronousReplicaTakesOver(t *testing.T) {
	wholeSystem(t)
	for name, longer := range map[string]bool{"at once": false, "when the leases have expired": true} {
		t.Run(name, func(t *testing.T) {
			p := mysqlPair(t, patience.Milliseconds())
			s := testNothingIsLost(t, p, longer)
			testOldSource(t, p, s)
		})
	}
}

// testOldSource starts the source again. Transactions that waited for the replica when the
// source was killed are in its log, so it commits them: their clients got no answer.
func testOldSource(t *testing.T, p *pair, s *shop) {
	t.Helper()
	p.primary.(*mysqld).start(t)
	there := setOf(column(t, p.survivor, "SELECT id FROM orders"))
	ends, _ := s.record()
	alone := 0
	for _, id := range column(t, p.old, "SELECT id FROM orders") {
		if !there[id] {
			alone++
			require.Equal(t, unknown, ends[id])
			require.Zero(t, s.delivered(id))
		}
	}
	t.Logf("the old source has %d orders that the new one does not have", alone)
}

// A source that waits for its replica for a second only goes on without it, and then
// acknowledges what can be lost.
func TestAReplicaThatIsSemiSynchronousForASecondTakesOver(t *testing.T) {
	wholeSystem(t)
	testTheLatestIsLost(t, mysqlPair(t, 1000))
}

// With an asynchronous replica, what was not replicated is lost.
func TestAnAsynchronousReplicaTakesOver(t *testing.T) {
	wholeSystem(t)
	testTheLatestIsLost(t, mysqlPair(t, 0))
}

// mysqlPair is a source and its replica. The source waits for it so many milliseconds, or
// not at all.
func mysqlPair(t testing.TB, wait int64) *pair {
	t.Helper()
	plugins := []string{"--plugin-load-add=semisync_source.so", "--plugin-load-add=semisync_replica.so"}
	source, replica := newMySQL(t, 1, plugins...), newMySQL(t, 2, plugins...)
	source.start(t)
	replica.start(t)
	log := newRelay(t, source.address())
	p := &pair{primary: source, standby: replica, clients: newRelay(t, source.address()), log: log}
	execute(t, source.admin, "CREATE DATABASE shop")
	p.old, p.survivor = open(t, "mysql", mysqlDSN(source.address(), "shop")), open(t, "mysql", mysqlDSN(replica.address(), "shop"))
	execute(t, replica.admin, "SET GLOBAL super_read_only = ON", fmt.Sprintf("SET GLOBAL rpl_semi_sync_replica_enabled = %t", wait > 0),
		fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %d, SOURCE_USER = 'root', GET_SOURCE_PUBLIC_KEY = 1, SOURCE_AUTO_POSITION = 1", log.port()),
		"START REPLICA")
	p.catchUp = func(t testing.TB) {
		t.Helper()
		var written string
		require.NoError(t, source.admin.QueryRowContext(t.Context(), "SELECT @@global.gtid_executed").Scan(&written))
		awaitTrue(t, replica.admin, "SELECT GTID_SUBSET(?, @@global.gtid_executed)", written)
	}
	p.catchUp(t)
	if wait > 0 {
		execute(t, source.admin, fmt.Sprintf("SET GLOBAL rpl_semi_sync_source_timeout = %d", wait), "SET GLOBAL rpl_semi_sync_source_enabled = ON")
		awaitTrue(t, source.admin, "SELECT VARIABLE_VALUE = '1' FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Rpl_semi_sync_source_clients'")
	}
	p.promote = func(t testing.TB) {
		t.Helper()
		execute(t, replica.admin, "STOP REPLICA IO_THREAD")
		awaitTrue(t, replica.admin, "SELECT GTID_SUBSET(RECEIVED_TRANSACTION_SET, @@global.gtid_executed) FROM performance_schema.replication_connection_status")
		execute(t, replica.admin, "STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")
	}
	p.nodesOn = func(t testing.TB, s *shop) (first, second *node) {
		t.Helper()
		execute(t, p.old, ordersDDL)
		require.NoError(t, sqlstore.MySQL().CreateSchema(t.Context(), p.old))
		dsn := mysqlDSN(p.clients.addr, "shop")
		return s.sqlNode(t, "node-1", "mysql", dsn, sqlstore.MySQL()), s.sqlNode(t, "node-2", "mysql", dsn, sqlstore.MySQL())
	}
	return p
}
