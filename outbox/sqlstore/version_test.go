package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestStartRefusesTablesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind)
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.SingleNode{}})
		require.NoError(t, err)
		require.ErrorContains(t, ob.Start(ctx), "outbox schema create")
		_, err = store.Migrate(ctx, db.DB, 1)
		require.NoError(t, err)
		require.ErrorContains(t, ob.Start(ctx), "outbox schema migrate")
		_, err = store.Migrate(ctx, db.DB, sqlstore.SchemaVersion)
		require.NoError(t, err)
		require.NoError(t, ob.Start(ctx))
		require.NoError(t, ob.Close(ctx))
	})
}

// newer is a version that this build does not know.
const newer = sqlstore.SchemaVersion + 2

// The commands in an error mend the table that it is about.
func TestErrorsOfVersionsNameTheTableInTheirCommands(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind, sqlstore.WithTable("fresh"))
		oneErrorWith(t, store.Check(ctx, db.DB, true), "outbox schema create --table fresh,")
		_, err := store.Migrate(ctx, db.DB, 1)
		require.NoError(t, err)
		oneErrorWith(t, store.Check(ctx, db.DB, true), "outbox schema migrate --table fresh,")
		_, err = db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO fresh_control (kind, name, value) VALUES ('schema', 'version', '{"version":%d,"min_version":%d}')`, newer, sqlstore.SchemaVersion+1))
		require.NoError(t, err)
		oneErrorWith(t, store.Check(ctx, db.DB, true), fmt.Sprintf("outbox schema migrate --table fresh --to %d ", sqlstore.SchemaVersion))
	})
}

func TestCreateSchemaSaysThatTheSchemaOfTheTableIsMissing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		err := storeFor(db.Kind, sqlstore.WithTable("no_such.ev")).CreateSchema(t.Context(), db.DB)
		oneErrorWith(t, err, "create the schema no_such first")
	})
}

func TestARowOfANodeThatIsDamagedHidesNoOther(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		for _, owner := range []string{"node-1", "node-2"} {
			require.NoError(t, store.Announce(ctx, db.DB, outbox.Node{Owner: owner, Mode: "ordered"}, time.Minute))
		}
		_, err := db.ExecContext(ctx, "UPDATE outbox_event_control SET value = 'secret' WHERE kind = 'node' AND name = 'node-1'")
		require.NoError(t, err)
		nodes, err := store.Nodes(ctx, db.DB)
		require.NoError(t, err)
		require.Len(t, nodes, 2)
		require.Equal(t, "node-1", nodes[0].Owner)
		require.True(t, nodes[0].Live)
		require.True(t, nodes[0].SeenAt.IsZero())
		require.Equal(t, "its row of the control table, with kind 'node', has no valid value (6 bytes): delete the row", nodes[0].Problem)
		require.Equal(t, "ordered", nodes[1].Mode)
		require.Empty(t, nodes[1].Problem)
	})
}

func TestCheckRefusesTablesThatAreTooOldOrTooNew(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store := storeFor(db.Kind)
		_, err := store.Migrate(ctx, db.DB, 1)
		require.NoError(t, err)
		oneErrorWith(t, store.Check(ctx, db.DB, true), "on table outbox_event", "the table has version 1", fmt.Sprintf("needs version %d", sqlstore.SchemaVersion),
			"outbox schema migrate", "store.Migrate(ctx, db, sqlstore.SchemaVersion)", "from 0002 on in outbox/sqlstore/schema/"+string(db.Kind))
		_, err = store.Migrate(ctx, db.DB, sqlstore.SchemaVersion)
		require.NoError(t, err)
		require.NoError(t, store.Check(ctx, db.DB, true))

		set := func(value string) {
			_, err := db.ExecContext(ctx, "UPDATE outbox_event_control SET value = '"+value+"' WHERE kind = 'schema'")
			require.NoError(t, err)
		}
		set(fmt.Sprintf(`{"version":%d,"min_version":%d,"later":true}`, newer, sqlstore.SchemaVersion))
		require.NoError(t, store.Check(ctx, db.DB, true), "a newer table that says that it fits")
		requireVersion(t, newer, store, db)
		require.NoError(t, store.CreateSchema(ctx, db.DB), "a build that creates its schema starts on it")
		requireVersion(t, newer, store, db)
		_, err = store.Migrate(ctx, db.DB, 1)
		oneErrorWith(t, err, fmt.Sprint("the table has version ", newer), fmt.Sprint("this build knows versions up to ", sqlstore.SchemaVersion))
		requireVersion(t, newer, store, db)

		set(fmt.Sprintf(`{"version":%d,"min_version":%d}`, newer, sqlstore.SchemaVersion+1))
		oneErrorWith(t, store.Check(ctx, db.DB, true), fmt.Sprint("the table has version ", newer), fmt.Sprint("needs a build for version ", sqlstore.SchemaVersion+1),
			fmt.Sprint("this one is for version ", sqlstore.SchemaVersion), fmt.Sprint("outbox schema migrate --to ", sqlstore.SchemaVersion))

		for _, value := range []string{"", "{}", "4", `{"version":4}`, `{"version":2,"min_version":3}`, "secret"} {
			set(value)
			err := store.Check(ctx, db.DB, true)
			oneErrorWith(t, err, "row 'schema', 'version' of the control table has no valid value", `{"version":2,"min_version":1}`)
			require.NotContains(t, err.Error(), "secret")
		}
	})
}
