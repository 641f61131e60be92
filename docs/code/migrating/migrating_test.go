// Package migrating_test runs the statements of docs/MIGRATING.md.
package migrating_test

import (
	"context"
	"database/sql"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The tables of others, by kind of database.
var (
	javaTable = map[testdb.Kind]string{
		testdb.Postgres: `CREATE TABLE outbox_event (
			event_id VARCHAR(36) PRIMARY KEY, event_type VARCHAR(128) NOT NULL, aggregate_type VARCHAR(64),
			aggregate_id VARCHAR(128), tenant_id VARCHAR(64), payload JSONB NOT NULL, headers JSONB,
			status SMALLINT NOT NULL, attempts INT NOT NULL DEFAULT 0, available_at TIMESTAMPTZ NOT NULL,
			created_at TIMESTAMPTZ NOT NULL, done_at TIMESTAMPTZ, last_error TEXT, locked_by VARCHAR(128), locked_at TIMESTAMPTZ)`,
		testdb.MySQL: `CREATE TABLE outbox_event (
			event_id VARCHAR(36) PRIMARY KEY, event_type VARCHAR(128) NOT NULL, aggregate_type VARCHAR(64),
			aggregate_id VARCHAR(128), tenant_id VARCHAR(64), payload JSON NOT NULL, headers JSON,
			status TINYINT NOT NULL, attempts INT NOT NULL DEFAULT 0, available_at DATETIME(6) NOT NULL,
			created_at DATETIME(6) NOT NULL, done_at DATETIME(6), last_error TEXT, locked_by VARCHAR(128), locked_at DATETIME(6))`,
	}
	ownTable = map[testdb.Kind]string{
		testdb.Postgres: "CREATE TABLE my_outbox (id BIGSERIAL PRIMARY KEY, type VARCHAR(64), order_id VARCHAR(64), payload JSONB, created_at TIMESTAMPTZ NOT NULL, sent_at TIMESTAMPTZ)",
		testdb.MySQL:    "CREATE TABLE my_outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, type VARCHAR(64), order_id VARCHAR(64), payload JSON, created_at DATETIME(6) NOT NULL, sent_at DATETIME(6))",
	}
	now = map[testdb.Kind]string{testdb.Postgres: "now()", testdb.MySQL: "UTC_TIMESTAMP(6)"}
)

// statements are those of a block of MIGRATING.md.
func statements(t *testing.T, name string) []string {
	t.Helper()
	page, err := os.ReadFile("../../MIGRATING.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)<!-- test: " + name + " -->\n```sql\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, block, name)
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(string(block[1])), ";"), ";\n")
}

// run runs statements on one connection, for some begin a transaction.
func run(t *testing.T, db *testdb.DB, list ...string) {
	t.Helper()
	runAround(t, db, list, func(string) {})
}

// runAround calls after behind each statement.
func runAround(t *testing.T, db *testdb.DB, list []string, after func(statement string)) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	for _, statement := range list {
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
		after(statement)
	}
	require.NoError(t, conn.Close())
}

func eachServer(t *testing.T, test func(t *testing.T, db *testdb.DB)) {
	t.Helper()
	testdb.Each(t, testdb.Main()[:2], test)
}

// indexes are the definitions of the table's indexes.
func indexes(t *testing.T, db *testdb.DB, table string) (list []string) {
	t.Helper()
	query := "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = $1 ORDER BY 1"
	if db.Kind == testdb.MySQL {
		query = "SELECT CONCAT(index_name, ': ', GROUP_CONCAT(column_name ORDER BY seq_in_index)) FROM information_schema.statistics" +
			" WHERE table_schema = DATABASE() AND table_name = ? GROUP BY index_name ORDER BY 1"
	}
	rows, err := db.QueryContext(t.Context(), query, table)
	require.NoError(t, err)
	for rows.Next() {
		var index string
		require.NoError(t, rows.Scan(&index))
		list = append(list, index)
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	return list
}

// takeOver starts an outbox on the table, and returns what its listener gets until the
// last of these events is delivered.
func takeOver(t *testing.T, db *testdb.DB, store *sqlstore.Store, ids ...string) (*outbox.Outbox, map[string]outbox.Envelope) {
	t.Helper()
	var mu sync.Mutex
	got := map[string]outbox.Envelope{}
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: 50 * time.Millisecond}}})
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		mu.Lock()
		defer mu.Unlock()
		_, again := got[env.EventID]
		if again {
			t.Errorf("event %s was delivered twice", env.EventID)
		}
		got[env.EventID] = env
		return nil
	}))))
	require.NoError(t, ob.Start(t.Context()))
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			if _, delivered := got[id]; !delivered {
				return false
			}
		}
		return true
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, ob.Close(t.Context()))
	require.Len(t, got, len(ids))
	return ob, got
}

func TestATableOfTheJavaFrameworkIsDelivered(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, db *testdb.DB) {
		ctx, clock := t.Context(), now[db.Kind]
		hour := map[testdb.Kind]string{testdb.Postgres: "INTERVAL '1 hour'", testdb.MySQL: "INTERVAL 1 HOUR"}[db.Kind]
		run(t, db, javaTable[db.Kind], "CREATE INDEX idx_status_available ON outbox_event (status, available_at, created_at)")
		insert := "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, headers, status, attempts, available_at, created_at, done_at, last_error, locked_by, locked_at) VALUES "
		end := ", " + clock + ", NULL, NULL, "
		run(
			t, db,
			insert+`('new', 'OrderPlaced', 'Order', 'o-1', '{"n": 1}', '{"source": "api"}', 0, 0, `+clock+end+"NULL, NULL)",
			insert+`('retry', 'OrderPlaced', 'Order', 'o-2', '2', NULL, 2, 3, `+clock+end+"NULL, NULL)",
			insert+`('locked', 'OrderPlaced', 'Order', 'o-3', '3', NULL, 0, 0, `+clock+end+"'poller-1', "+clock+")",
			insert+`('delayed', 'OrderPlaced', 'Order', 'o-4', '4', NULL, 0, 0, `+clock+" + "+hour+end+"NULL, NULL)",
			insert+`('done', 'OrderPlaced', 'Order', 'o-5', '5', NULL, 1, 0, `+clock+", "+clock+", "+clock+", NULL, NULL, NULL)",
			// The specification's statement for DEAD does not set done_at.
			insert+`('dead', 'OrderPlaced', 'Order', 'o-6', '6', NULL, 3, 10, `+clock+", "+clock+", NULL, 'no stock', NULL, NULL)",
		)
		run(t, db, statements(t, "java "+string(db.Kind))...)
		if db.Kind == testdb.MySQL { // the times as a service nine hours ahead stores them
			run(t, db, "UPDATE outbox_event SET available_at = available_at + INTERVAL 9 HOUR, created_at = created_at + INTERVAL 9 HOUR, done_at = done_at + INTERVAL 9 HOUR")
			run(t, db, statements(t, "java mysql zone")...)
		}
		store, err := sqlstore.Detect(ctx, db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, db.DB))

		ob, got := takeOver(t, db, store, "new", "retry", "locked")
		require.Equal(t, "api", got["new"].Headers["source"])
		require.JSONEq(t, `{"n": 1}`, got["new"].Payload.String())
		require.Equal(t, "o-1", got["new"].AggregateID)
		require.Equal(t, 3, got["retry"].Attempts)
		require.WithinDuration(t, time.Now(), got["new"].OccurredAt, time.Minute)
		st, err := ob.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, []int64{0, 1, 1}, []int64{st.Due, st.Delayed, st.Dead})
		letter, err := ob.DeadLetters().Get(ctx, "dead")
		require.NoError(t, err)
		require.Equal(t, "no stock", letter.LastError)

		fresh, err := sqlstore.Detect(ctx, db.DB, sqlstore.WithTable("fresh_event"))
		require.NoError(t, err)
		require.NoError(t, fresh.CreateSchema(ctx, db.DB))
		var want []string
		for _, index := range indexes(t, db, "fresh_event") {
			want = append(want, strings.ReplaceAll(index, "fresh_event", "outbox_event"))
		}
		require.NotEmpty(t, want)
		require.Equal(t, want, indexes(t, db, "outbox_event"), "as those of a table that CreateSchema makes")
	})
}

func TestATableOfOnesOwnIsMovedOnce(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, db *testdb.DB) {
		ctx, clock := t.Context(), now[db.Kind]
		store, err := sqlstore.Detect(ctx, db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		insert := "INSERT INTO my_outbox (type, order_id, payload, created_at, sent_at) VALUES ('OrderPlaced', 'o-1', '{}', "
		run(t, db, ownTable[db.Kind], insert+clock+", "+clock+")", insert+clock+", NULL)", insert+clock+", NULL)")
		move := statements(t, "own "+string(db.Kind))
		if db.Kind == testdb.MySQL { // where another transaction may commit between the statements
			move = append([]string{"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"}, move...)
		}
		late := false
		runAround(t, db, move, func(statement string) {
			if !late && strings.Contains(statement, "INSERT INTO outbox_event") {
				late = true
				run(t, db, insert+clock+", NULL)")
			}
		})
		require.True(t, late)
		run(t, db, move...)
		takeOver(t, db, store, "old-00000000000000000002", "old-00000000000000000003", "old-00000000000000000004")
		var unsent sql.NullInt64
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM my_outbox WHERE sent_at IS NULL").Scan(&unsent))
		require.Zero(t, unsent.Int64)
	})
}

// The tables of others have texts, UUIDs, times without a zone, and sessions elsewhere.
func TestATableOfOtherTypesIsMoved(t *testing.T) {
	t.Parallel()
	const id = "0193b1a2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"
	eachServer(t, func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store, err := sqlstore.Detect(ctx, db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		create := map[testdb.Kind]string{
			testdb.Postgres: "CREATE TABLE my_outbox (id UUID PRIMARY KEY, type TEXT, order_id TEXT, payload TEXT, created_at TIMESTAMP NOT NULL, sent_at TIMESTAMP)",
			testdb.MySQL:    "CREATE TABLE my_outbox (id CHAR(36) CHARACTER SET latin1 PRIMARY KEY, type TEXT, order_id TEXT, payload LONGTEXT, created_at TIMESTAMP(6) NOT NULL, sent_at TIMESTAMP(6) NULL)",
		}[db.Kind]
		zone := map[testdb.Kind]string{testdb.Postgres: "SET TIME ZONE 'America/New_York'", testdb.MySQL: "SET time_zone = '-05:00'"}[db.Kind]
		written := map[testdb.Kind]string{testdb.Postgres: "now() AT TIME ZONE 'UTC'", testdb.MySQL: "CURRENT_TIMESTAMP(6)"}[db.Kind]
		move := append([]string{zone}, statements(t, "own "+string(db.Kind))...)
		run(t, db, create, "INSERT INTO my_outbox (id, type, order_id, payload, created_at) VALUES ('"+id+`', 'OrderPlaced', 'o-1', '{"n": 1}', `+written+")")
		run(t, db, move...)
		run(t, db, move...)
		_, got := takeOver(t, db, store, id)
		require.JSONEq(t, `{"n": 1}`, got[id].Payload.String())
		require.WithinDuration(t, time.Now(), got[id].OccurredAt, 5*time.Minute)
	})
}

func TestTheRestOfAForwarderIsCounted(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	run(
		t, db,
		`CREATE TABLE "watermill_forwarder_topic" ("offset" BIGSERIAL, "transaction_id" xid8 NOT NULL, PRIMARY KEY ("transaction_id", "offset"))`,
		`CREATE TABLE "watermill_offsets_forwarder_topic" (consumer_group VARCHAR(255) PRIMARY KEY, offset_acked BIGINT, last_processed_transaction_id xid8 NOT NULL)`,
		// The transaction that began first committed last: it has the smaller offset.
		`INSERT INTO "watermill_forwarder_topic" VALUES (1, '10'), (3, '11'), (2, '12'), (4, '12')`,
		`INSERT INTO "watermill_offsets_forwarder_topic" VALUES ('', 0, '0')`,
	)
	for _, tt := range []struct {
		transaction string
		offset, n   int
	}{{"0", 0, 4}, {"11", 3, 2}, {"12", 2, 1}, {"12", 4, 0}} {
		_, err := db.ExecContext(t.Context(), `UPDATE "watermill_offsets_forwarder_topic" SET offset_acked = $1, last_processed_transaction_id = $2::xid8`, tt.offset, tt.transaction)
		require.NoError(t, err)
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), statements(t, "watermill postgres")[0]).Scan(&n))
		require.Equal(t, tt.n, n, tt)
	}
}
