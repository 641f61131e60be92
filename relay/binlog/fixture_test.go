package binlog_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/binlog"
)

var placed = outbox.NewTopic[int]("Order", "Placed")

// kind is a kind of server. The tests of the package share a server of each kind.
type kind struct {
	name    string
	mariadb bool
	// program and its arguments to make the data, or why the program is missing.
	find func() (program, initialize string, tree string, err error)

	once    sync.Once
	missing error
	process *relaytest.Process
	addr    string
	keeper  *keeper
}

var kinds = []*kind{
	{name: "mysql", find: func() (string, string, string, error) {
		tree, err := filepath.Abs("../../.bin/mysql")
		if err != nil {
			return "", "", "", err
		}
		if tree, err = filepath.EvalSymlinks(tree); err != nil {
			return "", "", "", fmt.Errorf("MySQL's programs are missing: run make mysql: %w", err)
		}
		server := filepath.Join(tree, "usr/sbin/mysqld")
		return server, "", tree, nil
	}},
	{name: "mariadb", mariadb: true, find: func() (string, string, string, error) {
		server, err1 := program("mariadbd")
		install, err2 := program("mariadb-install-db")
		if err1 != nil || err2 != nil {
			return "", "", "", fmt.Errorf("MariaDB's programs are missing: install the package mariadb-server: %w", err1)
		}
		return server, install, "", nil
	}},
}

func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

// keeper outlives the test that started a server.
type keeper struct {
	testing.TB
	dir      string
	cleanups []func()
}

func (k *keeper) Cleanup(f func())         { k.cleanups = append(k.cleanups, f) }
func (k *keeper) TempDir() string          { return k.dir }
func (k *keeper) Failed() bool             { return false }
func (k *keeper) Context() context.Context { return context.Background() }

// start starts the server once.
func (k *kind) start(t *testing.T) {
	t.Helper()
	k.once.Do(func() {
		var server, install, tree string
		if server, install, tree, k.missing = k.find(); k.missing != nil {
			return
		}
		began := time.Now()
		k.keeper = &keeper{TB: t}
		own := testdb.NewAccount(k.keeper, "mysql")
		if testdb.TreeNeedsRoot(tree) {
			own = testdb.Account{Dir: own.Dir}
		}
		k.keeper.dir = own.Dir
		data := filepath.Join(own.Dir, "data")
		common := append([]string{"--no-defaults", "--datadir=" + data}, testdb.TreeArguments(tree)...)
		if install != "" {
			own.Run(t, install, append(common, "--auth-root-authentication-method=normal", "--skip-test-db")...)
		} else {
			own.Run(t, server, append(common, "--initialize-insecure")...)
		}
		k.addr = relaytest.FreeAddr(t)
		_, port, err := net.SplitHostPort(k.addr)
		require.NoError(t, err)
		args := append(common, "--bind-address=127.0.0.1", "--port="+port, "--socket=", "--loose-mysqlx=OFF", "--tmpdir="+own.Dir,
			"--pid-file="+filepath.Join(own.Dir, "server.pid"), "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0",
			"--log-bin=log", "--server-id=1", "--binlog-format=ROW", "--binlog-row-metadata=FULL", "--max-binlog-size=1M")
		if !k.mariadb {
			args = append(args, "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
		}
		k.process = relaytest.Start(k.keeper, func() *exec.Cmd { return own.Command(server, args...) }, func() error { return testdb.Ping("mysql", k.dsn("")) })
		t.Logf("%s runs after %s", k.name, time.Since(began).Round(time.Millisecond))
	})
	if k.missing == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(k.missing)
	}
	t.Skip(k.missing)
}

func (k *kind) end() {
	if k.keeper == nil {
		return
	}
	for _, f := range slices.Backward(k.keeper.cleanups) {
		f()
	}
}

func (k *kind) dsn(database string) string { return "root@tcp(" + k.addr + ")/" + database }

// each runs a test on a server of each kind, in a database of its own whose reader is set up.
func each(t *testing.T, test func(t *testing.T, s *shop)) {
	eachBare(t, func(t *testing.T, s *shop) {
		require.NoError(t, s.reader(nil).Setup(t.Context()))
		test(t, s)
	})
}

// eachBare is each without the Setup. The kinds of servers are tested at the same time.
func eachBare(t *testing.T, test func(t *testing.T, s *shop)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			k.start(t)
			test(t, newShop(t, k))
		})
	}
}

// shop is an outbox that only writes, in a database of its own, and a broker.
type shop struct {
	t        testing.TB
	kind     *kind
	database string
	db       *sql.DB
	store    *sqlstore.Store
	writer   *outbox.Writer
	broker   *relaytest.Fake
	relay    *relay.Relay
	log      relaytest.Log
}

var shops atomic.Int32

func newShop(t testing.TB, k *kind) *shop {
	s := &shop{t: t, kind: k, database: fmt.Sprintf("shop_%d", shops.Add(1)), store: sqlstore.MySQL(sqlstore.WithAgeIndex()), broker: &relaytest.Fake{}}
	admin := open(t, k.dsn(""))
	_, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+s.database)
	require.NoError(t, err)
	s.db = open(t, s.dsn())
	require.NoError(t, s.store.CreateSchema(t.Context(), s.db))
	ob, err := outbox.New(outbox.Config{DB: s.db, Store: s.store, Mode: outbox.WriterOnly{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s.writer = ob.Writer()
	s.relay, err = relay.New(relay.Config{
		Publisher: s.broker, Source: "/orders", Routes: []relay.Route{relay.To("orders", placed.Kind())}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return s
}

func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *shop) dsn() string { return s.kind.dsn(s.database) }

func (s *shop) exec(statements ...string) {
	for _, statement := range statements {
		_, err := s.db.ExecContext(s.t.Context(), statement)
		require.NoError(s.t, err, statement)
	}
}

// tee writes to the test's output and to a log that the test reads.
type tee struct {
	test, log interface{ Write([]byte) (int, error) }
}

func (t tee) Write(line []byte) (int, error) {
	_, _ = t.test.Write(line)
	return t.log.Write(line)
}

// reader makes a reader; change may change its config.
func (s *shop) reader(change func(cfg *binlog.Config)) *binlog.Reader {
	cfg := binlog.Config{DSN: s.dsn(), Publish: s.relay.Publish, Logger: slog.New(slog.NewTextHandler(tee{s.t.Output(), &s.log}, nil))}
	if change != nil {
		change(&cfg)
	}
	r, err := binlog.New(cfg)
	require.NoError(s.t, err)
	return r
}

// read runs a reader. stop ends it and returns its error.
func (s *shop) read(change func(cfg *binlog.Config)) (stop func() error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	r := s.reader(change)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	s.t.Cleanup(func() { _ = stop() })
	return stop
}

// follows waits until the readers of the shop have begun n times.
func (s *shop) follows(n int) {
	relaytest.Eventually(s.t, "the reader follows the log", func() bool { return strings.Count(s.log.String(), "the reader follows the log") >= n })
}

// position is the stored position, or nothing.
func (s *shop) position() string {
	var value string
	err := s.db.QueryRowContext(s.t.Context(), "SELECT value FROM outbox_event_control WHERE kind = 'cdc' AND name = 'outbox'").Scan(&value)
	if err != nil {
		require.ErrorIs(s.t, err, sql.ErrNoRows)
		return ""
	}
	var p struct{ GTIDs string }
	require.NoError(s.t, json.Unmarshal([]byte(value), &p))
	return p.GTIDs
}

// write writes events whose ids are given, of one key.
func (s *shop) write(tx *sql.Tx, key string, ids ...string) error {
	var envs []outbox.Envelope
	for i, id := range ids {
		env := placed.Envelope(key, i)
		env.EventID, env.TenantID, env.Headers = id, "acme", map[string]string{"traceparent": "00-1"}
		envs = append(envs, env)
	}
	_, err := s.writer.WriteUnmanaged(s.t.Context(), tx, envs)
	return err
}

func (s *shop) begin() *sql.Tx {
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	require.NoError(s.t, err)
	return tx
}

// commit writes events in a transaction of their own.
func (s *shop) commit(key string, ids ...string) { require.NoError(s.t, s.tryCommit(key, ids...)) }

func (s *shop) tryCommit(key string, ids ...string) error {
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	if err != nil {
		return err
	}
	if err := s.write(tx, key, ids...); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// insert is a statement that inserts an event.
func insert(id string) string {
	return "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, status, available_at, created_at) VALUES ('" + id + "', 'Order', 'a', 'Placed', '1', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))"
}

func (s *shop) published(n int) {
	relaytest.Eventually(s.t, fmt.Sprintf("%d events are published", n), func() bool { return len(s.broker.IDs()) >= n })
}

func (s *shop) text(query string) (text string) {
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&text))
	return text
}

func (s *shop) ask(query string) (n int) {
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&n))
	return n
}
