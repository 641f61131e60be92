package sqlstore_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// Dead letters whose time of death cannot be read come first, page by page, each once. All
// are counted and deleted.
func TestDeadLettersWhoseTimeCannotBeReadAreListedOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		const rows = 8
		insert(t, store, db, events("e", rows), "", time.Time{})
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		exec := func(query string) {
			_, err := conn.ExecContext(ctx, query)
			require.NoError(t, err, query)
		}
		exec("UPDATE outbox_event SET status = 3")
		var junk []string
		switch db.Kind {
		case testdb.Postgres:
			junk = []string{"'-infinity'", "'infinity'", "'10000-01-01'", "'0044-03-15 BC'"}
		case testdb.MySQL:
			exec("SET SESSION sql_mode = ''")
			junk = []string{"'0000-00-00'", "'0000-00-00'"}
		case testdb.SQLite:
			junk = []string{"'abc'", "x'ff'", "2460000.5", "-9000000000000000000"}
		}
		ids := scanIDs(t, db)
		for i, value := range junk {
			exec(fmt.Sprintf("UPDATE outbox_event SET done_at = %s WHERE event_id = '%s'", value, ids[2*i]))
		}
		dead, err := outbox.NewDeadLetters(db.DB, store)
		require.NoError(t, err)
		for _, filter := range []outbox.DeadFilter{{}, {AggregateType: "Order"}, {EventIDs: ids}, {Until: time.Now().Add(time.Hour)}} {
			for _, limit := range []int{1, 3, rows} {
				seen, place := map[string]bool{}, outbox.DeadLetter{}
				for {
					letters, next, err := dead.QueryAfter(ctx, filter, place, limit)
					require.NoError(t, err)
					for _, l := range letters {
						require.False(t, seen[l.EventID], "%v is listed again, in pages of %d", l.EventID, limit)
						seen[l.EventID] = true
					}
					if place = next; next.EventID == "" {
						break
					}
				}
				require.Len(t, seen, rows, "%+v in pages of %d", filter, limit)
			}
		}
		n, err := dead.Count(ctx, outbox.DeadFilter{})
		require.NoError(t, err)
		require.EqualValues(t, rows, n)
		deleted, err := dead.DeleteAll(ctx, outbox.DeadFilter{}, 2)
		require.NoError(t, err)
		require.Equal(t, rows, deleted)
	})
}

func scanIDs(t *testing.T, db *testdb.DB) (ids []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT event_id FROM outbox_event ORDER BY event_id")
	require.NoError(t, err)
	defer func(rows *sql.Rows) { require.NoError(t, rows.Close()) }(rows)
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}
