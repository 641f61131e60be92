package systemtest

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/adapters/pqnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// access is a way to reach PostgreSQL.
type access struct {
	name    string // in the table of the documents
	driver  string // of database/sql; empty: pgx without it
	setting string // of the DSN
	refused string // what Start says; empty: it works
}

const (
	refusesNamed = "loses prepared statements: with pgx add default_query_exec_mode=exec to the DSN"
	refusesParts = "sends a statement in two parts, between which the pooler may change the server: with lib/pq add binary_parameters=yes to the DSN, with pgx default_query_exec_mode=exec"
)

// accesses are all: each driver, with each setting that changes how it sends a
// statement.
func accesses() (all []access) {
	for _, through := range []struct{ name, driver string }{{"database/sql on pgx's stdlib", "pgx"}, {"`outboxpgx`", ""}} {
		for _, mode := range []struct{ setting, refused string }{
			{"", refusesNamed},
			{"&default_query_exec_mode=cache_describe", ""},
			{"&default_query_exec_mode=describe_exec", refusesParts},
			{"&default_query_exec_mode=exec", ""},
			{"&default_query_exec_mode=simple_protocol", ""},
		} {
			all = append(all, access{through.name, through.driver, mode.setting, mode.refused})
		}
	}
	return append(all,
		access{"database/sql on lib/pq", "postgres", "", refusesParts},
		access{"database/sql on lib/pq", "postgres", "&binary_parameters=yes", ""},
		access{"database/sql on bun's pgdriver", "pg", "&timeout=60s", ""},
	)
}

// row is the way's row in the table of the documents.
func (a access) row() string {
	setting := "default"
	if a.setting != "" && a.driver != "pg" {
		setting = "`" + a.setting[1:] + "`"
	}
	works := "yes | sent through it, heard past it"
	switch a.refused {
	case refusesNamed:
		works = "no: `Start` fails, because prepared statements are lost | no"
	case refusesParts:
		works = "no: `Start` fails, because a statement is sent in two parts | no"
	}
	return fmt.Sprintf("| %s | %s | %s |", a.name, setting, works)
}

func TestPgBouncerModes(t *testing.T) {
	wholeSystem(t)
	t.Setenv("CI", "true") // what is missing is a failure
	text, err := os.ReadFile("../../docs/reliability/SYSTEMS.md")
	require.NoError(t, err)
	for _, a := range accesses() {
		assert.Contains(t, string(text), a.row(), "the table of docs/reliability/SYSTEMS.md")
		t.Run(cmp.Or(a.driver, "outboxpgx")+a.setting, func(t *testing.T) {
			db := testdb.Open(t, testdb.Main()[0])
			execute(t, db.DB, ordersDDL)
			require.NoError(t, sqlstore.Postgres().CreateSchema(t.Context(), db.DB))
			dsn := db.PgBouncer(t) + a.setting
			if a.refused == "" {
				a.works(t, db, dsn)
				a.notifies(t, db, dsn)
			} else {
				a.isRefused(t, dsn)
			}
		})
	}
}

// works checks that orders are placed and their events delivered, on the hot path and
// by the poller, while many clients share few connections.
func (a access) works(t *testing.T, db *testdb.DB, dsn string) {
	t.Helper()
	s := newShop()
	var nodes []*node
	for _, name := range []string{"node-1", "node-2"} {
		nodes = append(nodes, a.start(t, s, name, dsn))
	}
	stop := s.business(t.Context(), 4, nodes...)
	require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > 300 }))
	stop()
	require.Zero(t, s.count(unknown))
	settle(t, db.DB)
	// What has no lease is claimed: retries, and what other processes wrote.
	execute(t, db.DB, "UPDATE outbox_event SET status = 0, done_at = NULL")
	settle(t, db.DB)
	ends, deliveries := s.record()
	for id, end := range ends {
		want := 0
		if end == acknowledged {
			want = 2
		}
		require.Lenf(t, deliveries[id], want, "order %s was %s", id, end)
	}
	for _, n := range nodes {
		require.NoError(t, n.Close(t.Context()))
	}
}

func (a access) start(t *testing.T, s *shop, name, dsn string, change ...func(cfg *outbox.Config)) *node {
	t.Helper()
	if a.driver == "" {
		return s.pgxNode(t, name, dsn, change...)
	}
	return s.sqlNode(t, name, a.driver, dsn, sqlstore.Postgres(), change...)
}

// notifies checks that notifications are sent through the pooler, and heard on a
// connection past it.
func (a access) notifies(t *testing.T, db *testdb.DB, dsn string) {
	t.Helper()
	s := newShop()
	notified := func(mode outbox.Mode) func(cfg *outbox.Config) {
		return func(cfg *outbox.Config) {
			cfg.Mode = mode
			var err error
			if a.driver == "postgres" {
				cfg.Notifier, err = pqnotify.New(db.DSN)
			} else {
				cfg.Notifier, err = pgnotify.FromDSN(db.DSN)
			}
			require.NoError(t, err)
		}
	}
	a.start(t, s, "listens", dsn, notified(outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}}))
	writes := a.start(t, s, "writes", dsn, notified(outbox.WriterOnly{}))
	for i := range 5 { // the first one may be found when the other begins to listen
		id := fmt.Sprintf("notified-%d", i)
		require.Equal(t, acknowledged, s.order(t.Context(), writes, id, nil))
		require.Truef(t, eventually(patience, func() bool { return s.delivered(id) == 1 }), "event %s waits for the interval", id)
	}
}

// isRefused checks that Start says why it cannot work, and that it indeed cannot: that
// statements fail when clients share connections.
func (a access) isRefused(t *testing.T, dsn string) {
	t.Helper()
	db := a.open(t, dsn)
	for range 5 {
		cfg := newShop().config(t, "node")
		cfg.DB, cfg.Store = db, sqlstore.Postgres()
		ob, err := outbox.New(cfg)
		require.NoError(t, err)
		err = ob.Start(t.Context())
		require.NoError(t, ob.Close(context.Background()))
		require.ErrorContains(t, err, a.refused)
		require.ErrorContains(t, err, "pooler in transaction mode")
	}
	require.True(t, a.failsUnderLoad(t, db), "it works: no statement failed")
}

func (a access) open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	if a.driver == "" {
		pool, err := outboxpgx.Open(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return closing(t, outboxpgx.DB(pool))
	}
	db, err := sqltx.Open(a.driver, dsn)
	require.NoError(t, err)
	return closing(t, db)
}

func closing(t *testing.T, db *sql.DB) *sql.DB {
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// failsUnderLoad reports whether a statement fails while many clients send different
// ones. PostgreSQL's errors of prepared statements are the cause.
func (a access) failsUnderLoad(t *testing.T, db *sql.DB) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var failed atomic.Bool
	ended := make(chan struct{}, 4)
	for client := range cap(ended) {
		go func() {
			defer func() { ended <- struct{}{} }()
			query := fmt.Sprintf("SELECT CAST($1 AS TEXT), %d", client)
			args := []any{"x"}
			for i := range client { // statements of different forms
				query += fmt.Sprintf(", CAST($%d AS TEXT)", i+2)
				args = append(args, "x")
			}
			for ctx.Err() == nil {
				rows, err := db.QueryContext(ctx, query, args...)
				if err == nil {
					for rows.Next() {
					}
					err = rows.Err()
					_ = rows.Close()
				}
				if err != nil && ctx.Err() == nil {
					t.Logf("a statement of the application: %v", err)
					failed.Store(true)
					cancel()
				}
			}
		}()
	}
	for range cap(ended) {
		<-ended
	}
	return failed.Load()
}

// Through the pooler LISTEN succeeds, and no notification arrives: the log says so.
func TestNotificationsDoNotArriveThroughPgBouncer(t *testing.T) {
	wholeSystem(t)
	t.Setenv("CI", "true")
	for name, notifier := range map[string]func(db *sql.DB, dsn string) (outbox.Notifier, error){
		"pgnotify": func(db *sql.DB, _ string) (outbox.Notifier, error) { return pgnotify.New(db) },
		"pqnotify": func(_ *sql.DB, dsn string) (outbox.Notifier, error) { return pqnotify.New(dsn) },
	} {
		t.Run(name, func(t *testing.T) {
			db := testdb.Open(t, testdb.Main()[0])
			require.NoError(t, sqlstore.Postgres().CreateSchema(t.Context(), db.DB))
			dsn := db.PgBouncer(t)
			pool := closing(t, open(t, "pgx", dsn+"&default_query_exec_mode=exec"))
			cfg := newShop().config(t, "node")
			cfg.DB, cfg.Store = pool, sqlstore.Postgres()
			var log syncBuffer
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			var err error
			cfg.Notifier, err = notifier(pool, dsn)
			require.NoError(t, err)
			newShop().start(t, "node", cfg)
			said := func() bool { return strings.Contains(log.String(), "give the notifier an address past the pooler") }
			require.True(t, eventually(patience, said), log.String())
		})
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
