package systemtest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

const (
	postgresWay    = "install the package postgresql"
	postgresFolder = "/usr/lib/postgresql/*/bin"
)

// postgres is a private PostgreSQL server.
type postgres struct {
	*server
	account
	port int
}

func postgresDSN(address string) string {
	return "postgres://postgres@" + address + "/postgres?sslmode=disable"
}

func (p *postgres) address() string { return loopback(p.port) }

// startPostgres starts an empty server with the programs of a folder.
func startPostgres(t testing.TB, folders ...string) *postgres {
	t.Helper()
	p := &postgres{account: account{testdb.NewAccount(t, "postgres")}, port: freePorts(t, 1)[0]}
	data := p.InitPostgres(t, program(t, "initdb", postgresWay, folders...))
	p.start(t, "primary", program(t, "postgres", postgresWay, folders...), data)
	return p
}

func (p *postgres) start(t testing.TB, name, program, data string) {
	t.Helper()
	p.server = p.launch(t, name, program, "-D", data, "-p", strconv.Itoa(p.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "max_connections=200", "-c", "wal_level=replica", "-c", "hot_standby=on")
	p.await(t, "pgx", postgresDSN(p.address()))
}

// startStandby copies a server and starts the copy as its standby, which gets the WAL
// through the relay.
func startStandby(t testing.TB, via *relay, folders ...string) *postgres {
	t.Helper()
	p := &postgres{account: account{testdb.NewAccount(t, "postgres")}, port: freePorts(t, 1)[0]}
	data := filepath.Join(p.Dir, "data")
	p.Run(t, program(t, "pg_basebackup", postgresWay, folders...), "-h", "127.0.0.1", "-p", strconv.Itoa(via.port()), "-U", "postgres",
		"-D", data, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync")
	p.start(t, "standby", program(t, "postgres", postgresWay, folders...), data)
	return p
}

// open opens a pool of the test's own on a server, past the relay.
func open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// awaitTrue waits until a query answers true, or 1.
func awaitTrue(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	var last error
	became := eventually(patience, func() bool {
		var yes sql.NullBool
		last = db.QueryRowContext(t.Context(), query, args...).Scan(&yes)
		return last == nil && yes.Bool
	})
	require.Truef(t, became, "%s: %v", query, last)
}

// column reads a column of texts.
func column(t testing.TB, db *sql.DB, query string) (texts []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		texts = append(texts, text)
	}
	require.NoError(t, rows.Err())
	return texts
}

// postgresPair is a primary and its standby.
func postgresPair(t testing.TB, synchronous bool) *pair {
	t.Helper()
	primary := startPostgres(t, postgresFolder)
	wal := newRelay(t, primary.address())
	standby := startStandby(t, wal, postgresFolder)
	p := &pair{primary: primary, standby: standby, clients: newRelay(t, primary.address()), log: wal}
	p.old, p.survivor = open(t, "pgx", postgresDSN(primary.address())), open(t, "pgx", postgresDSN(standby.address()))
	awaitTrue(t, p.old, "SELECT bool_or(state = 'streaming') FROM pg_stat_replication")
	if synchronous {
		execute(t, p.old, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
		awaitTrue(t, p.old, "SELECT bool_or(sync_state = 'sync') FROM pg_stat_replication")
	}
	p.catchUp = func(t testing.TB) {
		t.Helper()
		var written string
		require.NoError(t, p.old.QueryRowContext(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&written))
		awaitTrue(t, p.survivor, "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", written)
	}
	p.promote = func(t testing.TB) {
		t.Helper()
		awaitTrue(t, p.survivor, fmt.Sprintf("SELECT pg_promote(true, %d)", int(patience.Seconds())))
		awaitTrue(t, p.survivor, "SELECT NOT pg_is_in_recovery()")
	}
	p.nodesOn = func(t testing.TB, s *shop) (first, second *node) {
		t.Helper()
		execute(t, p.old, ordersDDL)
		require.NoError(t, sqlstore.Postgres().CreateSchema(t.Context(), p.old))
		dsn := postgresDSN(p.clients.addr)
		return s.sqlNode(t, "database-sql", "pgx", dsn, sqlstore.Postgres()), s.pgxNode(t, "pgx", dsn)
	}
	return p
}
