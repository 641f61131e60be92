package cdc_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

var placed = outbox.NewTopic[int]("Order", "Placed")

// shop is an outbox that only writes, on a server with logical decoding, and a broker.
type shop struct {
	t      testing.TB
	server *relaytest.Process
	data   string // the server's folder
	dsn    string
	db     *sql.DB
	store  *sqlstore.Store
	writer *outbox.Writer
	broker *relaytest.Fake
	relay  *relay.Relay
}

// newShop makes a shop whose reader is set up.
func newShop(t testing.TB) *shop {
	s := bareShop(t, sqlstore.Postgres(sqlstore.WithAgeIndex()))
	s.createTable()
	require.NoError(t, s.reader(nil).Setup(t.Context()))
	return s
}

// bareShop makes a shop without tables.
func bareShop(t testing.TB, store *sqlstore.Store) *shop {
	s := &shop{t: t, store: store, broker: &relaytest.Fake{}}
	s.server, s.data, s.dsn = postgres(t)
	s.db = open(t, s.dsn)
	ob, err := outbox.New(outbox.Config{DB: s.db, Store: s.store, Mode: outbox.WriterOnly{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s.writer = ob.Writer()
	s.relay, err = relay.New(relay.Config{
		Publisher: s.broker, Source: "/orders", Routes: []relay.Route{relay.To("orders", placed.Kind())}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return s
}

func (s *shop) createTable() { require.NoError(s.t, s.store.CreateSchema(s.t.Context(), s.db)) }

func (s *shop) exec(statements ...string) {
	for _, statement := range statements {
		_, err := s.db.ExecContext(s.t.Context(), statement)
		require.NoError(s.t, err, statement)
	}
}

// reader makes a reader; change may change its config.
func (s *shop) reader(change func(cfg *cdc.Config, pg *cdc.Postgres)) *cdc.Reader {
	pg := cdc.Postgres{DSN: s.dsn, Slot: "cdc", Tables: []string{s.store.Table()}}
	cfg := cdc.Config{Publish: s.relay.Publish, Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil))}
	if change != nil {
		change(&cfg, &pg)
	}
	cfg.Source = pg
	r, err := cdc.New(cfg)
	require.NoError(s.t, err)
	return r
}

// read runs a reader. stop ends it and returns its error.
func (s *shop) read(change func(cfg *cdc.Config, pg *cdc.Postgres)) (stop func() error) {
	return run(s.t, s.reader(change))
}

func run(t testing.TB, r *cdc.Reader) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// ready waits until a reader follows the slot.
func (s *shop) ready() {
	relaytest.Eventually(s.t, "the reader follows the slot", func() bool {
		return s.ask("SELECT count(*) FROM pg_replication_slots WHERE active AND NOT temporary") == 1
	})
}

// free waits until the server has noticed that the reader is gone.
func (s *shop) free() {
	relaytest.Eventually(s.t, "the slot is free", func() bool { return s.ask("SELECT count(*) FROM pg_replication_slots WHERE active") == 0 })
}

func (s *shop) ask(query string) (n int) {
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&n))
	return n
}

func (s *shop) begin() *sql.Tx {
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	require.NoError(s.t, err)
	return tx
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

func (s *shop) published(n int) {
	relaytest.Eventually(s.t, fmt.Sprintf("%d events are published", n), func() bool { return len(s.broker.IDs()) >= n })
}

// postgres starts a private PostgreSQL with wal_level=logical, which ends with the test.
func postgres(t testing.TB) (server *relaytest.Process, data, dsn string) {
	t.Helper()
	found, err := filepath.Glob(cmp.Or(os.Getenv("OUTBOX_TEST_POSTGRES_BIN"), "/usr/lib/postgresql/*/bin"))
	require.NoError(t, err)
	if len(found) == 0 {
		const why = "PostgreSQL's programs are missing: install the package postgresql"
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	bin := found[len(found)-1]
	version, err := exec.CommandContext(t.Context(), filepath.Join(bin, "postgres"), "--version").Output()
	require.NoError(t, err)
	t.Logf("server: %s", bytes.TrimSpace(version))
	own := testdb.NewAccount(t, "postgres")
	data = own.InitPostgres(t, filepath.Join(bin, "initdb"))
	const settings = "\nwal_level = logical\nfsync = off\nunix_socket_directories = ''\nmax_wal_size = 64MB\nmin_wal_size = 32MB\n"
	conf, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = conf.WriteString(settings)
	require.NoError(t, errors.Join(err, conf.Close()))
	addr := relaytest.FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	dsn = "postgres://postgres@" + addr + "/postgres?sslmode=disable"
	server = relaytest.Start(t, func() *exec.Cmd {
		relaytest.Eventually(t, "the processes of a killed server have ended", func() bool { return ended(data) })
		return own.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1")
	}, func() error { return testdb.Ping("pgx", dsn) })
	return server, data, dsn
}

// ended reports whether no process of a killed server uses its shared memory any more. A
// new server refuses to start before.
func ended(data string) bool {
	pid, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	lines := strings.Split(string(pid), "\n")
	if err != nil || len(lines) < 7 {
		return true // it has not run
	}
	shared, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return true // this is not Linux
	}
	id := strings.Fields(lines[6])[1]
	for line := range strings.Lines(string(shared)) {
		if f := strings.Fields(line); len(f) > 6 && f[1] == id {
			return f[6] == "0" // processes that are attached
		}
	}
	return true
}

func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
