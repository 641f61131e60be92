package cdc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

// Writers write before, while and after Setup makes the slot. An event that is neither in the snapshot nor
// in the log would be lost; an event in both would be published twice.
func TestSetupLosesNoEventAndPublishesNoEventTwice(t *testing.T) {
	t.Parallel()
	s := bareShop(t, sqlstore.Postgres())
	s.createTable()
	ctx, end := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	counts := make([]int, 4)
	for w := range counts {
		writers.Go(func() {
			for ; ctx.Err() == nil; counts[w]++ {
				s.commit(fmt.Sprint(w), fmt.Sprintf("%d-%06d", w, counts[w]))
			}
		})
	}
	written := func(n int) {
		relaytest.Eventually(t, "events are written", func() bool { return s.ask("SELECT count(*) FROM outbox_event") >= n })
	}
	written(600)
	require.NoError(t, s.reader(nil).Setup(t.Context()))
	require.NotEmpty(t, s.broker.IDs(), "the pending events")
	s.read(nil)
	s.ready()
	written(s.ask("SELECT count(*) FROM outbox_event") + 300)
	end()
	writers.Wait()
	total := counts[0] + counts[1] + counts[2] + counts[3]
	s.published(total)
	ids := s.broker.IDs()
	slices.Sort(ids)
	require.Len(t, slices.Compact(ids), total)
	for w, n := range counts {
		var of []string
		for _, id := range s.broker.IDs() {
			if strings.HasPrefix(id, fmt.Sprint(w, "-")) {
				of = append(of, id)
			}
		}
		require.Len(t, of, n)
		require.True(t, slices.IsSorted(of), "in the order of the writes, across the snapshot and the log")
	}
	before := len(s.broker.IDs())
	require.NoError(t, s.reader(nil).Setup(t.Context()), "again")
	require.Len(t, s.broker.IDs(), before, "publishes nothing")
}

// A slot that exists without its pending events would lose them.
func TestASetupThatFailsLeavesNoSlot(t *testing.T) {
	t.Parallel()
	s := bareShop(t, sqlstore.Postgres())
	s.createTable()
	s.commit("a", "1", "2")
	ctx, cancel := context.WithCancel(t.Context())
	r := s.reader(func(cfg *cdc.Config, _ *cdc.Postgres) {
		cfg.Publish = func(ctx context.Context, batch []outbox.Envelope) []error {
			cancel()
			return slices.Repeat([]error{ctx.Err()}, len(batch))
		}
	})
	require.ErrorIs(t, r.Setup(ctx), context.Canceled)
	relaytest.Eventually(t, "the temporary slot is gone", func() bool { return s.ask("SELECT count(*) FROM pg_replication_slots") == 0 })
	require.ErrorIs(t, s.reader(nil).Run(t.Context()), cdc.ErrNoSlot)
	require.NoError(t, s.reader(nil).Setup(t.Context()))
	require.Equal(t, []string{"1", "2"}, s.broker.IDs())
}

func TestRowsThatAreDoneOrDeadAreNotPending(t *testing.T) {
	t.Parallel()
	s := bareShop(t, sqlstore.Postgres())
	s.createTable()
	s.commit("a", "1", "2", "3", "4")
	s.exec("UPDATE outbox_event SET status = 1 WHERE event_id = '1'", "UPDATE outbox_event SET status = 3 WHERE event_id = '3'", "UPDATE outbox_event SET status = 2 WHERE event_id = '4'")
	require.NoError(t, s.reader(nil).Setup(t.Context()))
	require.Equal(t, []string{"2", "4"}, s.broker.IDs())
}

// A slot that the reader made at the current position would leave out an event without a word. This is
// the recovery that docs/how-to/change-data-capture.md describes.
func TestNoEventIsLostWhenTheSlotIsGone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	stop := s.read(nil)
	s.ready()
	s.commit("a", "1")
	s.published(1)
	require.NoError(t, stop())
	s.free()
	s.exec("SELECT pg_drop_replication_slot('cdc')")
	s.commit("a", "2")
	require.ErrorIs(t, s.reader(nil).Run(t.Context()), cdc.ErrNoSlot, "it does not begin after the event")
	require.Zero(t, s.ask("SELECT count(*) FROM pg_replication_slots"))

	s.exec("UPDATE outbox_event SET status = 1, done_at = now() WHERE event_id = '1'") // published for certain
	require.NoError(t, s.reader(nil).Setup(t.Context()))
	s.read(nil)
	s.ready()
	s.commit("a", "3")
	s.published(3)
	require.Equal(t, []string{"1", "2", "3"}, s.broker.IDs())
}

// A slot that is dropped while a reader follows it needs the reader gone; the reader then finds no slot.
func TestAReaderEndsWhenItsSlotIsDropped(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ended := make(chan error, 1)
	r := s.reader(nil)
	go func() { ended <- r.Run(t.Context()) }()
	s.ready()
	relaytest.Eventually(t, "the slot is dropped", func() bool {
		s.exec("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
		_, err := s.db.ExecContext(t.Context(), "SELECT pg_drop_replication_slot('cdc')")
		return err == nil
	})
	err := <-ended
	require.ErrorIs(t, err, cdc.ErrNoSlot)
	require.ErrorContains(t, err, "call Setup once")
}

func TestALostSlotIsAnError(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
	lag, err := s.reader(nil).Lag(t.Context())
	require.NoError(t, err)
	require.False(t, lag.Active)
	relaytest.Eventually(t, "the server has invalidated the slot", func() bool {
		s.exec("SELECT pg_switch_wal()", "CREATE TABLE IF NOT EXISTS filler AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)", "DROP TABLE filler", "CHECKPOINT")
		return s.ask("SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'") == 1
	})
	err = s.reader(nil).Run(t.Context())
	require.ErrorIs(t, err, cdc.ErrSlotLost)
	require.ErrorContains(t, err, "pg_drop_replication_slot('cdc')")
	require.ErrorIs(t, s.reader(nil).Setup(t.Context()), cdc.ErrSlotLost)
	lag, err = s.reader(nil).Lag(t.Context())
	require.ErrorIs(t, err, cdc.ErrSlotLost)
	require.Equal(t, "lost", lag.Status)

	s.commit("a", "1")
	s.exec("SELECT pg_drop_replication_slot('cdc')")
	require.NoError(t, s.reader(nil).Setup(t.Context()))
	require.Equal(t, []string{"1"}, s.broker.IDs())
}

// Each problem is an error that says what to do, and Run does not try again.
func TestADatabaseThatIsNotSetUp(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	run := func(change func(*cdc.Config, *cdc.Postgres), texts ...string) {
		t.Helper()
		err := s.reader(change).Run(t.Context())
		require.ErrorIs(t, err, cdc.ErrNotSetUp)
		for _, text := range texts {
			require.ErrorContains(t, err, text)
		}
		require.NotContains(t, err.Error(), "secret")
	}
	s.exec("CREATE ROLE plain LOGIN PASSWORD 'secret'")
	plain := func(_ *cdc.Config, pg *cdc.Postgres) {
		pg.DSN = strings.Replace(s.dsn, "postgres@", "plain:secret@", 1)
	}
	run(plain, `ALTER ROLE "plain" REPLICATION`)
	s.exec("ALTER ROLE plain REPLICATION")
	other := s.reader(func(cfg *cdc.Config, pg *cdc.Postgres) { plain(cfg, pg); pg.Slot = "other" })
	err := other.Setup(t.Context())
	require.ErrorIs(t, err, cdc.ErrNotSetUp)
	require.ErrorContains(t, err, `CREATE PUBLICATION "other" FOR TABLE "public"."outbox_event"`)

	run(func(_ *cdc.Config, pg *cdc.Postgres) { pg.Tables = []string{"nowhere"} }, "the table nowhere does not exist", "search_path")
	s.exec("CREATE TABLE second (LIKE outbox_event)")
	run(func(_ *cdc.Config, pg *cdc.Postgres) { pg.Tables = []string{"outbox_event", "second"} }, `leaves out "public"."second"`, "call Setup")
	s.exec("ALTER PUBLICATION cdc SET (publish = 'delete')")
	run(nil, "leaves out INSERT", "SET (publish = 'insert')")
	s.exec("DROP PUBLICATION cdc")
	run(nil, "the publication \"cdc\" does not exist", "call Setup")
	s.exec("SELECT pg_create_physical_replication_slot('physical')", "CREATE DATABASE warehouse")
	run(func(_ *cdc.Config, pg *cdc.Postgres) { pg.Slot = "physical" }, "not pgoutput")
	run(func(_ *cdc.Config, pg *cdc.Postgres) { pg.DSN = strings.Replace(s.dsn, "/postgres?", "/warehouse?", 1) }, `belongs to the database "postgres"`)
	require.NoError(t, s.reader(nil).Setup(t.Context()), "makes the publication again")
	s.exec("SELECT pg_drop_replication_slot('cdc'), pg_drop_replication_slot('physical')", "ALTER SYSTEM SET wal_level = 'replica'")
	s.server.Restart(t)
	run(nil, "wal_level is replica", "restart")
	require.ErrorIs(t, s.reader(nil).Setup(t.Context()), cdc.ErrNotSetUp)
}

// PostgreSQL 17 and newer keep a failover slot on standbys too.
func TestTheSlotIsAFailoverSlotWhereTheServerHasThem(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if s.ask("SELECT current_setting('server_version_num')::int") < 170000 {
		require.Zero(t, s.ask("SELECT count(*) FROM pg_attribute WHERE attrelid = 'pg_replication_slots'::regclass AND attname = 'failover'"))
		return
	}
	require.Equal(t, 1, s.ask("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'cdc' AND failover"))
	require.NoError(t, s.reader(func(_ *cdc.Config, pg *cdc.Postgres) { pg.Slot, pg.NoFailover = "alone", true }).Setup(t.Context()))
	require.Equal(t, 1, s.ask("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'alone' AND NOT failover"))
}

// Partitions, schemas, several tables with one slot, and rows that are gone when the server decodes them.
func TestTablesOfAllKinds(t *testing.T) {
	t.Parallel()
	s := bareShop(t, sqlstore.Postgres())
	s.createTable()
	s.exec("ALTER TABLE outbox_event RENAME TO plain", "CREATE SCHEMA shop",
		"CREATE TABLE shop.outbox_event (LIKE plain INCLUDING DEFAULTS) PARTITION BY RANGE (created_at)",
		"CREATE TABLE shop.outbox_event_all PARTITION OF shop.outbox_event DEFAULT",
		"CREATE TABLE other (LIKE plain INCLUDING DEFAULTS)",
		`CREATE TABLE audit (id int)`,
		"CREATE FUNCTION deletes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM plain WHERE event_id = NEW.event_id; RETURN NULL; END $$",
		"CREATE TRIGGER deletes AFTER INSERT ON plain FOR EACH ROW EXECUTE FUNCTION deletes()")
	insert := func(table, id string) string {
		return "INSERT INTO " + table + " (event_id, aggregate_type, event_type, payload, status, available_at, created_at) VALUES ('" + id + "', 'Order', 'Placed', '1', 0, now(), now())"
	}
	s.exec(insert("shop.outbox_event", "pending"))
	config := func(_ *cdc.Config, pg *cdc.Postgres) { pg.Tables = []string{"plain", "shop.outbox_event"} }
	require.NoError(t, s.reader(config).Setup(t.Context()))
	s.exec("ALTER PUBLICATION cdc ADD TABLE audit, other") // of somebody else
	s.read(config)
	s.ready()
	s.exec("INSERT INTO audit VALUES (1)", insert("other", "never"), insert("plain", "1"), insert("shop.outbox_event", "2"))
	s.exec("ALTER TABLE plain ADD COLUMN note text", insert("plain", "3"), "DELETE FROM shop.outbox_event", insert("plain", "4"))
	s.published(5)
	require.Equal(t, []string{"pending", "1", "2", "3", "4"}, s.broker.IDs())
	require.Zero(t, s.ask("SELECT count(*) FROM plain"), "the table stays empty")
}
