package systemtest

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// galera is a cluster of two MariaDB servers. The first has two votes, so that it goes
// on when the second is killed; with one vote each it would refuse to work, for it
// could not know whether the other one lives.
type galera struct {
	servers [2]*mariadb
	// clients are the addresses of the servers for the nodes.
	clients [2]*relay
}

// mariadb is a private server of the cluster.
type mariadb struct {
	*server
	account
	port      int
	groupPort int     // for the other servers of the cluster
	admin     *sql.DB // of the test's own
}

func mysqlDSN(address, database string) string {
	return "root@tcp(" + address + ")/" + database + "?timeout=10s&readTimeout=60s&writeTimeout=60s"
}

func startGalera(t testing.TB) *galera {
	t.Helper()
	g := &galera{}
	g.servers[0] = startMariaDB(t, "galera-1", "gcomm://", 2, "--wsrep-new-cluster")
	g.servers[1] = startMariaDB(t, "galera-2", "gcomm://"+loopback(g.servers[0].groupPort), 1)
	for i, m := range g.servers {
		awaitTrue(t, m.admin, status("wsrep_cluster_size", "2"))
		g.clients[i] = newRelay(t, loopback(m.port))
	}
	return g
}

// status is a query whether a variable of the server's state has the value.
func status(variable, value string) string {
	return fmt.Sprintf("SELECT VARIABLE_VALUE = '%s' FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '%s'", value, variable)
}

// shop creates a database of the test's own, and returns a pool on it at each server.
func (g *galera) shop(t testing.TB, name string) (pools [2]*sql.DB) {
	t.Helper()
	execute(t, g.servers[0].admin, "CREATE DATABASE "+name)
	awaitTrue(t, g.servers[1].admin, "SELECT COUNT(*) = 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?", name)
	for i, m := range g.servers {
		pools[i] = open(t, "mysql", mysqlDSN(loopback(m.port), name))
	}
	execute(t, pools[0], ordersDDL)
	require.NoError(t, sqlstore.MySQL().CreateSchema(t.Context(), pools[0]))
	awaitTrue(t, pools[1], "SELECT COUNT(*) = 3 FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", name)
	return pools
}

const (
	mariadbWay = "install the package mariadb-server"
	galeraWay  = "install the packages galera-4 and rsync"
)

// startMariaDB starts a server, which joins the cluster at the address or makes a new
// one.
func startMariaDB(t testing.TB, name, cluster string, votes int, args ...string) *mariadb {
	t.Helper()
	provider := "/usr/lib/galera/libgalera_smm.so"
	if _, err := os.Stat(provider); err != nil {
		t.Fatalf("%s is missing: %s", provider, galeraWay)
	}
	program(t, "rsync", galeraWay)
	ports := freePorts(t, 4)
	m := &mariadb{account: account{testdb.NewAccount(t, "mysql")}, port: ports[0]}
	data := filepath.Join(m.Dir, "data")
	m.Run(t, program(t, "mariadb-install-db", mariadbWay), "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	group, ist, sst := ports[1], ports[2], ports[3]
	options := []string{
		fmt.Sprintf("gmcast.listen_addr=tcp://127.0.0.1:%d", group), fmt.Sprintf("ist.recv_addr=127.0.0.1:%d", ist),
		fmt.Sprintf("pc.weight=%d", votes), "gcache.size=32M",
		// A dead server is noticed within about two seconds instead of five.
		"evs.keepalive_period=PT0.5S", "evs.inactive_check_period=PT0.5S", "evs.suspect_timeout=PT2S", "evs.inactive_timeout=PT10S",
	}
	m.server = m.launch(t, name, program(t, "mariadbd", mariadbWay, "/usr/sbin", "/usr/libexec"), append([]string{
		"--no-defaults", "--datadir=" + data, "--tmpdir=" + m.Dir, "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", m.port),
		"--socket=" + filepath.Join(m.Dir, "sock"), "--pid-file=" + filepath.Join(m.Dir, "pid"), "--skip-log-bin", "--binlog-format=ROW",
		"--innodb-autoinc-lock-mode=2", "--innodb-buffer-pool-size=64M",
		"--wsrep-on=ON", "--wsrep-provider=" + provider, "--wsrep-cluster-name=outbox", "--wsrep-cluster-address=" + cluster,
		"--wsrep-node-name=" + name, fmt.Sprintf("--wsrep-node-address=127.0.0.1:%d", group),
		"--wsrep-sst-method=rsync", fmt.Sprintf("--wsrep-sst-receive-address=127.0.0.1:%d", sst),
		"--wsrep-provider-options=" + strings.Join(options, ";"),
	}, args...)...)
	m.groupPort = group
	m.await(t, "mysql", mysqlDSN(loopback(m.port), ""))
	m.admin = open(t, "mysql", mysqlDSN(loopback(m.port), ""))
	awaitTrue(t, m.admin, status("wsrep_ready", "ON"))
	return m
}

// conflicts is how many transactions of the servers lost against one of the other server.
func (g *galera) conflicts(t testing.TB) int {
	return g.servers[0].conflicts(t) + g.servers[1].conflicts(t)
}

// conflicts is how many transactions of the server lost against one of the other server:
// at COMMIT, or before.
func (m *mariadb) conflicts(t testing.TB) (n int) {
	t.Helper()
	err := m.admin.QueryRowContext(t.Context(), "SELECT SUM(VARIABLE_VALUE) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ('wsrep_local_cert_failures', 'wsrep_local_bf_aborts')").Scan(&n)
	require.NoError(t, err)
	return n
}
