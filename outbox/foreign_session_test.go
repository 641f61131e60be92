package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// foreignSession makes the table's name another table in the session of a transaction.
type foreignSession struct {
	prepare []string // outside of a transaction
	set     []string // within
	back    []string // within, before the commit
	drop    string
}

// foreignSessions are the ways of each database.
func foreignSessions(t *testing.T, db *testdb.DB) map[string]foreignSession {
	t.Helper()
	var home string
	if db.Kind != testdb.SQLite {
		require.NoError(t, db.QueryRowContext(t.Context(), map[testdb.Kind]string{testdb.Postgres: "SELECT current_schema()", testdb.MySQL: "SELECT DATABASE()"}[db.Kind]).Scan(&home))
	}
	other := strings.ToLower(fmt.Sprintf("tenant_%d", time.Now().UnixNano()))
	switch db.Kind {
	case testdb.Postgres:
		like := func(schema string) []string {
			return []string{
				"CREATE SCHEMA " + schema, "CREATE TABLE " + schema + ".outbox_event (LIKE outbox_event INCLUDING ALL)",
			}
		}
		role := other + "_role"
		return map[string]foreignSession{
			"search_path": {prepare: like(other), set: []string{"SET LOCAL search_path TO " + other}, drop: "DROP SCHEMA " + other + " CASCADE"},
			"temporary table": {set: []string{
				"CREATE TEMPORARY TABLE outbox_event (LIKE outbox_event INCLUDING ALL) ON COMMIT DROP",
			}},
			"role": {prepare: append(
				like(role), "CREATE ROLE "+role, "GRANT ALL ON SCHEMA "+home+", "+role+" TO "+role,
				"GRANT ALL ON ALL TABLES IN SCHEMA "+home+", "+role+" TO "+role,
			), set: []string{`SET LOCAL search_path TO "$user", ` + home, "SET LOCAL ROLE " + role}, drop: "DROP SCHEMA " + role + " CASCADE; DROP OWNED BY " + role + "; DROP ROLE " + role},
		}
	case testdb.MySQL:
		return map[string]foreignSession{
			"use": {
				prepare: []string{"CREATE DATABASE " + other, "CREATE TABLE " + other + ".outbox_event LIKE outbox_event"},
				set:     []string{"USE " + other}, back: []string{"USE " + home}, drop: "DROP DATABASE " + other,
			},
		}
	default:
		return map[string]foreignSession{
			"temporary table": {set: []string{"CREATE TEMPORARY TABLE outbox_event AS SELECT * FROM outbox_event WHERE 1 = 0"}, back: []string{"DROP TABLE temp.outbox_event"}},
		}
	}
}

// An event goes to the outbox's table whatever its name means in the session of the
// transaction: it is tried again, delivered when it is due, and stored as done.
func TestAForeignSessionWritesToTheTableOfTheOutbox(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		for name, session := range foreignSessions(t, db) {
			for _, statement := range session.prepare {
				_, err := db.ExecContext(t.Context(), statement)
				require.NoError(t, err, statement)
			}
			if session.drop != "" {
				t.Cleanup(func() {
					for statement := range strings.SplitSeq(session.drop, "; ") {
						_, err := db.ExecContext(context.WithoutCancel(t.Context()), statement)
						require.NoError(t, err, statement)
					}
				})
			}
			for mode, cfg := range map[string]outbox.Mode{
				"single node": outbox.SingleNode{Poll: outbox.PollOptions{Interval: 20 * time.Millisecond}},
				"multi node":  outbox.MultiNode{Poll: outbox.PollOptions{Interval: 20 * time.Millisecond}},
			} {
				t.Run(name+", "+mode, func(t *testing.T) { writeInForeignSession(t, db, store, cfg, session) })
			}
		}
	})
}

func writeInForeignSession(t *testing.T, db *testdb.DB, store outbox.Store, mode outbox.Mode, session foreignSession) {
	ctx := t.Context()
	var calls atomic.Int32
	delivered := make(chan string, 10)
	book := &logbook{}
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: mode, Logger: slog.New(book), RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond)})
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		if calls.Add(1) == 1 {
			return errors.New("the mail server is away")
		}
		delivered <- env.EventID
		return nil
	}))))
	a := adaptertest.Adapter(t, db.DB, ob.Writer())
	var ids []string
	write := func(n int) {
		require.NoError(t, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			for _, statement := range session.set {
				_, err := tx.ExecContext(ctx, statement)
				require.NoError(t, err, statement)
			}
			for n := range n {
				batch := []outbox.Envelope{adaptertest.Event(), adaptertest.Event()}[:1+n%2]
				batch[len(batch)-1].DeliverAfter = time.Duration(n) * 10 * time.Millisecond
				written, err := a.WriteAll(ctx, tx, batch)
				require.NoError(t, err)
				ids = append(ids, written...)
			}
			rows := -1
			require.NoError(t, tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event").Scan(&rows))
			require.Zero(t, rows, "rows in the other table")
			for _, statement := range session.back {
				_, err := tx.ExecContext(ctx, statement)
				require.NoError(t, err, statement)
			}
			return nil
		}))
	}
	write(2) // before the start, too
	require.NoError(t, ob.Start(ctx))
	defer func() { require.NoError(t, ob.Close(context.WithoutCancel(ctx))) }()
	write(3)
	got := map[string]bool{}
	for len(got) < len(ids) {
		select {
		case id := <-delivered:
			got[id] = true
		case <-time.After(20 * time.Second):
			t.Fatalf("delivered %d of %d events", len(got), len(ids))
		}
	}
	require.Eventually(t, func() bool {
		stats, err := ob.Stats(ctx)
		return err == nil && stats.Due == 0 && stats.Delayed == 0
	}, 20*time.Second, 5*time.Millisecond)
	require.Empty(t, book.about("outcomes found no row"))
}

// Without leases, too, an outcome that finds no row is reported: the row may be in another
// table of this name.
func TestAnOutcomeWithoutARowIsReported(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		for _, onDone := range []outbox.OnDone{outbox.Keep, outbox.Delete} {
			book := &logbook{}
			ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: slog.New(book), Purge: &outbox.PurgeOptions{OnDone: onDone}})
			require.NoError(t, err)
			require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
				if env.AggregateID == "gone" {
					_, err := db.ExecContext(ctx, "DELETE FROM outbox_event WHERE event_id = '"+env.EventID+"'")
					return err
				}
				return nil
			}))))
			require.NoError(t, ob.Start(t.Context()))
			a := adaptertest.Adapter(t, db.DB, ob.Writer())
			var gone string
			for _, aggregate := range []string{"stays", "gone"} {
				require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) (err error) {
					event := adaptertest.Event()
					event.AggregateID = aggregate
					gone, err = a.Write(ctx, tx, event)
					return err
				}))
				require.Eventually(t, func() bool {
					stats, err := ob.Stats(t.Context())
					return err == nil && stats.Due == 0
				}, 20*time.Second, 5*time.Millisecond)
			}
			require.NoError(t, ob.Close(t.Context()))
			lines := book.about("outcomes found no row")
			require.Len(t, lines, 1)
			require.EqualValues(t, 1, counted(lines))
			require.Equal(t, gone, lines[0].attrs["event_id"].String())
			require.Empty(t, book.about("leases"))
		}
	})
}

// embedding is a store of a user's own, which counts its inserts and embeds ours.
type embedding struct {
	*sqlstore.Store
	inserts *atomic.Int32
}

func (c embedding) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, leasedAt time.Time) error {
	c.inserts.Add(1)
	return c.Store.Insert(ctx, tx, envs, lease, leasedAt)
}

func (c embedding) InsertOnce(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, leasedAt time.Time) ([]string, error) {
	c.inserts.Add(1)
	return c.Store.InsertOnce(ctx, tx, envs, lease, leasedAt)
}

// A store that embeds sqlstore's keeps its own methods, and names the schema, too.
func TestAStoreThatEmbedsOursKeepsItsMethods(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		inner, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		store := embedding{inner, new(atomic.Int32)}
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		for name, session := range foreignSessions(t, db) {
			for _, statement := range session.prepare {
				adaptertest.Exec(t, db.DB, statement)
			}
			ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.WriterOnly{}, Logger: quiet})
			require.NoError(t, err)
			require.NoError(t, ob.Start(t.Context()))
			before := store.inserts.Load()
			a := adaptertest.Adapter(t, db.DB, ob.Writer())
			require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
				for _, statement := range session.set {
					_, err := tx.ExecContext(ctx, statement)
					require.NoError(t, err, statement)
				}
				_, err := a.Write(ctx, tx, outbox.Envelope{EventID: name, EventType: "Said", Payload: outbox.RawJSON("1")})
				require.NoError(t, err)
				for _, statement := range session.back {
					_, err := tx.ExecContext(ctx, statement)
					require.NoError(t, err, statement)
				}
				return nil
			}))
			require.EqualValues(t, 1, store.inserts.Load()-before)
			_, err = ob.FindEvent(t.Context(), name)
			require.NoError(t, err, name)
			require.NoError(t, ob.Close(t.Context()))
			if session.drop != "" {
				for _, statement := range strings.Split(session.drop, "; ") {
					adaptertest.Exec(t, db.DB, statement)
				}
			}
		}
	})
}

// Such a store that two databases share goes by the name as it was given.
func TestAnEmbeddedStoreOfTwoDatabasesServesBoth(t *testing.T) {
	t.Parallel()
	for _, target := range adaptertest.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			dbs := []*testdb.DB{testdb.Open(t, target), testdb.Open(t, target)}
			inner, err := sqlstore.Detect(t.Context(), dbs[0].DB)
			require.NoError(t, err)
			store := embedding{inner, new(atomic.Int32)}
			for i, db := range dbs {
				require.NoError(t, store.CreateSchema(t.Context(), db.DB))
				ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.WriterOnly{}, Logger: quiet})
				require.NoError(t, err)
				require.NoError(t, ob.Start(t.Context()))
				a := adaptertest.Adapter(t, db.DB, ob.Writer())
				require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
					_, err := a.Write(ctx, tx, outbox.Envelope{EventType: "Said", Payload: outbox.RawJSON("1")})
					return err
				}))
				rows := 0
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event").Scan(&rows))
				require.Equal(t, 1, rows, i)
				t.Cleanup(func() { require.NoError(t, ob.Close(context.Background())) })
			}
		})
	}
}
