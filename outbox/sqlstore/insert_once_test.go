package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// uniqueTable opens a database with a table that has the unique index.
func uniqueTable(t *testing.T, db *testdb.DB) *sqlstore.Store {
	t.Helper()
	store := detected(t, db, sqlstore.WithUniqueIndex())
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	require.NoError(t, store.Check(t.Context(), db.DB, false))
	return store
}

func keyedEvent(id, key string) outbox.Envelope {
	env := events("e", 1)[0]
	env.EventID, env.UniqueKey = id, key
	return env
}

// once writes events in a transaction.
func once(t *testing.T, store *sqlstore.Store, tx outbox.Execer, envs ...outbox.Envelope) []string {
	t.Helper()
	ids, err := store.InsertOnce(t.Context(), tx, envs, "", time.Time{})
	require.NoError(t, err)
	return ids
}

func beginAt(t *testing.T, db *testdb.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestAnErrorNamesAllIDsThatAreThere(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store := uniqueTable(t, db)
		tx := beginAt(t, db, sql.LevelDefault)
		envs := events("e", 1_200)
		once(t, store, tx, envs[3], envs[998], envs[1_100])
		_, err := store.InsertOnce(t.Context(), tx, envs, "", time.Time{})
		var there *outbox.DuplicateEventError
		require.ErrorAs(t, err, &there)
		require.Equal(t, envs[3].EventID, there.EventID)
		require.Equal(t, []string{envs[3].EventID, envs[998].EventID}, there.EventIDs, "of the first 1,000 events")
	})
}

// The error of a unique index of the user's stays the database's, alone and among others.
func TestAnotherUniqueIndexIsNoDuplicateEvent(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		store := uniqueTable(t, db)
		_, err := db.ExecContext(t.Context(), "CREATE UNIQUE INDEX of_the_user ON outbox_event (tenant_id)")
		require.NoError(t, err)
		there, other := keyedEvent("there", ""), keyedEvent("other", "")
		there.TenantID, other.TenantID = "t", "t"
		insert(t, store, db, []outbox.Envelope{there}, "", time.Time{})
		keyed := other
		keyed.UniqueKey = "k"
		for _, envs := range [][]outbox.Envelope{{other}, {keyed}, {keyedEvent("a", ""), other}, {keyedEvent("a", "j"), keyed}} {
			tx := beginAt(t, db, sql.LevelDefault)
			_, err := store.InsertOnce(t.Context(), tx, envs, "", time.Time{})
			require.True(t, sqlerr.IsDuplicate(err), "%v", err)
			require.NotErrorIs(t, err, outbox.ErrDuplicateEvent)
			require.NoError(t, tx.Rollback())
		}
		// A letter that cannot be replayed because of that index is not in the way of others.
		require.Equal(t, 1, count(t, db))
	})
}

func count(t *testing.T, db *testdb.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event").Scan(&n))
	return n
}

// A transaction with a snapshot either sees the event that is in the way, or is to run again.
func TestInsertOnceInATransactionWithASnapshot(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Main()[:2] { // on SQLite the first write waits, or fails
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			for what, env := range map[string]outbox.Envelope{"id": keyedEvent("first", ""), "key": keyedEvent("second", "k")} {
				t.Run(fmt.Sprintf("%s/%s/%s", target.Name, level, what), func(t *testing.T) {
					t.Parallel()
					db := testdb.Open(t, target)
					store := uniqueTable(t, db)
					insert(t, store, db, events("before", 1), "", time.Time{})
					tx := beginAt(t, db, level)
					var n int
					require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE event_id = 'none'").Scan(&n))
					if target.Kind == testdb.MySQL && level == sql.LevelSerializable {
						t.Skip("the read has locked the table: the other write would wait")
					}
					first := beginAt(t, db, sql.LevelReadCommitted)
					once(t, store, first, keyedEvent("first", "k"))
					require.NoError(t, first.Commit())
					ids, err := store.InsertOnce(t.Context(), tx, []outbox.Envelope{env}, "", time.Time{})
					switch {
					case target.Kind == testdb.Postgres && level != sql.LevelReadCommitted:
						require.True(t, sqlerr.IsConflict(err), "%v", err)
						require.NotErrorIs(t, err, outbox.ErrDuplicateEvent)
						return
					case what == "id":
						require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
					default:
						require.NoError(t, err)
						require.Equal(t, []string{"first"}, ids)
					}
					require.Equal(t, []string{"after"}, once(t, store, tx, keyedEvent("after", "")))
					require.NoError(t, tx.Commit())
				})
			}
		}
	}
}

// between is a transaction in which something happens before each read.
type between struct {
	*sql.Tx
	happens func(n int)
	reads   int
}

func (b *between) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	b.reads++
	b.happens(b.reads)
	return b.Tx.QueryContext(ctx, query, args...)
}

// The event that was in the way is delivered and deleted before the store has read its id.
func TestAnEventInTheWayMayBeDelivered(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	store := uniqueTable(t, db)
	for name, envs := range map[string][]outbox.Envelope{
		"alone": {keyedEvent("second", "k")}, "among others": {keyedEvent("other", ""), keyedEvent("second", "k"), keyedEvent("another", "j")},
	} {
		for _, again := range []int{0, 3} { // how often another event takes the key
			tx := beginAt(t, db, sql.LevelDefault)
			insertFirst := func() {
				first := beginAt(t, db, sql.LevelDefault)
				once(t, store, first, keyedEvent("first", "k"))
				require.NoError(t, first.Commit())
			}
			insertFirst()
			ids, err := store.InsertOnce(t.Context(), &between{Tx: tx, happens: func(n int) {
				if n > 2*again+2 {
					return
				}
				_, err := db.ExecContext(t.Context(), "DELETE FROM outbox_event WHERE event_id = 'first'")
				require.NoError(t, err)
				if n%2 == 0 && n <= 2*again {
					insertFirst()
				}
			}}, envs, "", time.Time{})
			require.NoError(t, err, name)
			require.Equal(t, envs[len(envs)/2].EventID, ids[len(envs)/2], name)
			require.NoError(t, tx.Commit())
			require.Equal(t, len(envs), count(t, db), name)
			_, err = db.ExecContext(t.Context(), "DELETE FROM outbox_event")
			require.NoError(t, err)
		}
	}
}

// execOnly is a transaction that cannot read.
type execOnly struct{ tx *sql.Tx }

func (e execOnly) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return e.tx.ExecContext(ctx, query, args...)
}

func TestInsertOnceSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		plain := detected(t, db)
		require.NoError(t, plain.CreateSchema(t.Context(), db.DB))
		tx := beginAt(t, db, sql.LevelDefault)
		_, err := plain.InsertOnce(t.Context(), tx, []outbox.Envelope{keyedEvent("a", "k")}, "", time.Time{})
		require.ErrorIs(t, err, outbox.ErrInvalidEnvelope)
		require.ErrorContains(t, err, "Envelope.UniqueKey needs the option sqlstore.WithUniqueIndex()")
		require.ErrorContains(t, err, "ADD COLUMN")
		require.ErrorContains(t, err, "CREATE UNIQUE INDEX")
		once(t, plain, tx, keyedEvent("a", ""))
		require.NoError(t, tx.Commit())

		store := detected(t, db, sqlstore.WithUniqueIndex())
		err = store.Check(t.Context(), db.DB, false)
		require.ErrorContains(t, err, "Envelope.UniqueKey needs the index idx_outbox_event_unique")
		// The statements of the error are all that an existing table needs.
		_, statements, _ := strings.Cut(err.Error(), "run: ")
		for statement := range strings.SplitSeq(statements, "; ") {
			_, err = db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		require.NoError(t, store.Check(t.Context(), db.DB, false))
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))

		tx = beginAt(t, db, sql.LevelDefault)
		once(t, store, execOnly{tx}, keyedEvent("b", "k"), keyedEvent("c", ""))
		_, err = store.InsertOnce(t.Context(), execOnly{tx}, []outbox.Envelope{keyedEvent("d", "k")}, "", time.Time{})
		require.ErrorContains(t, err, "sqlstore_test.execOnly has no QueryContext")
		require.NotErrorIs(t, err, outbox.ErrDuplicateEvent)
		once(t, store, tx, keyedEvent("e", ""))
		require.NoError(t, tx.Commit())
		require.Equal(t, 4, count(t, db))
	})
}

// A migration that failed between the column and the index, or was cut short, goes on.
func TestTheUniqueIndexIsAddedToAColumn(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store := uniqueTable(t, db)
		drop := "DROP INDEX idx_outbox_event_unique"
		if db.Kind == testdb.MySQL {
			drop += " ON outbox_event"
		}
		_, err := db.ExecContext(t.Context(), drop)
		require.NoError(t, err)
		require.ErrorContains(t, store.Check(t.Context(), db.DB, false), "idx_outbox_event_unique")
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		require.NoError(t, store.Check(t.Context(), db.DB, false))
	})
}

// Of transactions that want the same key, the last one to commit writes the event if all others roll
// back.
func TestAKeyOfTransactionsThatRollBackIsFree(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		store := uniqueTable(t, db)
		const writers = 5
		var wrote atomic.Int32
		failed := make(chan error, writers)
		for n := range writers {
			go func() {
				for {
					tx, err := db.BeginTx(t.Context(), nil)
					if err == nil {
						_, err = store.InsertOnce(t.Context(), tx, []outbox.Envelope{keyedEvent(fmt.Sprint("e", n), "k")}, "", time.Time{})
					}
					switch {
					case sqlerr.IsConflict(err): // MySQL: several waited for the one that rolled back
						_ = tx.Rollback()
						continue
					case err == nil && n == 0:
						err = tx.Commit()
						wrote.Add(1)
					case tx != nil:
						_ = tx.Rollback()
					}
					failed <- err
					return
				}
			}()
		}
		for range writers {
			require.NoError(t, <-failed)
		}
		require.EqualValues(t, 1, wrote.Load())
		require.Equal(t, 1, count(t, db))
	})
}

// A partition has a primary key of its own, and no unique index can span the partitions.
func TestInsertOnceOnAPartitionedTable(t *testing.T) {
	t.Parallel()
	db, blocks := partitioned(t)
	_, err := blocks.ExecContext(t.Context(), "SELECT outbox_event_add_day('2024-03-05'), outbox_event_add_day('2024-03-06')")
	require.NoError(t, err)
	store := sqlstore.Postgres()
	env := keyedEvent("a", "")
	env.OccurredAt = time.Date(2024, 3, 5, 12, 0, 0, 0, time.UTC)
	env.AvailableAt = env.OccurredAt
	tx := beginAt(t, db, sql.LevelDefault)
	once(t, store, tx, env)
	for _, envs := range [][]outbox.Envelope{{env}, {keyedEvent("b", ""), env}} {
		_, err := store.InsertOnce(t.Context(), tx, envs, "", time.Time{})
		require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
	}
	env.OccurredAt, env.AvailableAt = env.OccurredAt.AddDate(0, 0, 1), env.AvailableAt.AddDate(0, 0, 1)
	once(t, store, tx, env) // of another day
	require.NoError(t, tx.Commit())
	require.Equal(t, 2, count(t, db))
	require.ErrorContains(t, sqlstore.Postgres(sqlstore.WithUniqueIndex()).CreateSchema(t.Context(), db.DB), "unique constraint on partitioned table")
}
