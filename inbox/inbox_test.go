package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dialectOf(kind testdb.Kind) inbox.Dialect {
	return map[testdb.Kind]inbox.Dialect{testdb.Postgres: inbox.Postgres, testdb.MySQL: inbox.MySQL, testdb.SQLite: inbox.SQLite}[kind]
}

// newBox makes an inbox on an empty database.
func newBox(t *testing.T, db *testdb.DB) *inbox.Inbox {
	t.Helper()
	box, err := inbox.New(inbox.Config{Dialect: dialectOf(db.Kind)})
	require.NoError(t, err)
	require.NoError(t, box.CreateSchema(t.Context(), db))
	return box
}

// inTx runs fn in a transaction; it commits unless fn fails.
func inTx(t *testing.T, db *testdb.DB, fn func(tx *sql.Tx) error) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// handle runs Once in a transaction of its own and reports whether the function ran.
func handle(t *testing.T, db *testdb.DB, box *inbox.Inbox, consumer, id string) (ran bool) {
	t.Helper()
	require.NoError(t, inTx(t, db, func(tx *sql.Tx) error {
		first, err := box.Once(t.Context(), tx, consumer, id, func(context.Context) error {
			ran = true
			return nil
		})
		require.Equal(t, ran, first)
		return err
	}))
	return ran
}

func TestMessageIsHandledOnceByEachConsumer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		box := newBox(t, db)
		require.True(t, handle(t, db, box, "billing", "m1"))
		require.False(t, handle(t, db, box, "billing", "m1"))
		require.True(t, handle(t, db, box, "mail", "m1"))
		require.True(t, handle(t, db, box, "billing", "m2"))
		// Ids differ by case, by accents and by trailing spaces.
		for _, id := range []string{"M1", "m1 ", "m1\t", "ḿ1", `m'1`, `m\1`, strings.Repeat("x", inbox.MaxMessageIDLength)} {
			require.True(t, handle(t, db, box, "billing", id), id)
			require.False(t, handle(t, db, box, "billing", id), id)
		}
	})
}

func TestFailedEffectLeavesNoRecord(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		box := newBox(t, db)
		err := inTx(t, db, func(tx *sql.Tx) error {
			first, err := box.Once(t.Context(), tx, "billing", "m1", func(context.Context) error { return broken })
			require.True(t, first)
			return err
		})
		require.ErrorIs(t, err, broken)
		require.True(t, handle(t, db, box, "billing", "m1"))
	})
}

// A second delivery at the same time waits for the first one's transaction, then
// skips when that committed and takes its place when it rolled back.
func TestConcurrentDuplicateWaits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		box := newBox(t, db)
		for _, commit := range []bool{true, false} {
			id := fmt.Sprint("m", commit)
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			first, err := box.Once(t.Context(), tx, "billing", id, func(context.Context) error { return nil })
			require.NoError(t, err)
			require.True(t, first)
			second := make(chan bool)
			go func() { second <- handle(t, db, box, "billing", id) }()
			select {
			case <-second:
				t.Fatal("the duplicate did not wait")
			case <-time.After(50 * time.Millisecond): // gives a duplicate that does not wait time to show
			}
			if commit {
				require.NoError(t, tx.Commit())
			} else {
				require.NoError(t, tx.Rollback())
			}
			require.Equal(t, !commit, <-second)
		}
	})
}

func TestPurgeForgetsOldRecordsInBatches(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		box := newBox(t, db)
		const old = 2500
		require.NoError(t, inTx(t, db, func(tx *sql.Tx) error {
			for i := range old {
				if _, err := box.Once(t.Context(), tx, "billing", fmt.Sprint(i), func(context.Context) error { return nil }); err != nil {
					return err
				}
			}
			return nil
		}))
		age := map[testdb.Kind]string{
			testdb.Postgres: "UPDATE inbox_message SET handled_at = handled_at - INTERVAL '2 hours'",
			testdb.MySQL:    "UPDATE inbox_message SET handled_at = handled_at - INTERVAL 2 HOUR",
			testdb.SQLite:   "UPDATE inbox_message SET handled_at = handled_at - 7200000000",
		}[db.Kind]
		_, err := db.ExecContext(t.Context(), age)
		require.NoError(t, err)
		require.True(t, handle(t, db, box, "billing", "young"))

		n, err := box.Purge(t.Context(), db, 3*time.Hour)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = box.Purge(t.Context(), db, time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, old, n)
		require.False(t, handle(t, db, box, "billing", "young"))
		require.True(t, handle(t, db, box, "billing", "0"))
	})
}

func TestSchemaIsCreatedAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		box, err := inbox.New(inbox.Config{Dialect: dialectOf(db.Kind), Table: "mine"})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := box.CreateSchema(t.Context(), db); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.True(t, handle(t, db, box, "billing", "m1"))
		require.Contains(t, box.Schema(), "mine")
	})
}

func TestQualifiedTable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		schema := "main"
		if query := map[testdb.Kind]string{testdb.Postgres: "SELECT current_schema()", testdb.MySQL: "SELECT DATABASE()"}[db.Kind]; query != "" {
			require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&schema))
		}
		box, err := inbox.New(inbox.Config{Dialect: dialectOf(db.Kind), Table: schema + ".mine"})
		require.NoError(t, err)
		require.NoError(t, box.CreateSchema(t.Context(), db))
		require.True(t, handle(t, db, box, "billing", "m1"))
		require.False(t, handle(t, db, box, "billing", "m1"))
	})
}

func TestInvalidConfigIsRefused(t *testing.T) {
	t.Parallel()
	_, err := inbox.New(inbox.Config{Dialect: "oracle", Table: "a b"})
	require.ErrorContains(t, err, `Config.Dialect is "oracle"`)
	require.ErrorContains(t, err, `Config.Table is given "a b"`)
}

func TestInvalidCallReachesNoDatabase(t *testing.T) {
	t.Parallel()
	box, err := inbox.New(inbox.Config{Dialect: inbox.SQLite})
	require.NoError(t, err)
	run := func(context.Context) error { return nil }
	var pool *sql.DB
	for _, c := range []struct {
		name, consumer, id, want string
		tx                       inbox.Execer
		fn                       func(context.Context) error
	}{
		{"no transaction", "c", "m", "tx is nil", pool, run},
		{"pool", "c", "m", "tx is a *sql.DB", &sql.DB{}, run},
		{"connection", "c", "m", "tx is a *sql.Conn", &sql.Conn{}, run},
		{"no function", "c", "m", "fn is nil", &sql.Tx{}, nil},
		{"no consumer", "", "m", "consumer is empty", &sql.Tx{}, run},
		{"no id", "c", "", "messageID is empty", &sql.Tx{}, run},
		{"long consumer", strings.Repeat("c", 65), "m", "consumer has 65 bytes, at most 64", &sql.Tx{}, run},
		{"long id", "c", strings.Repeat("é", 128), "messageID has 256 bytes, at most 255", &sql.Tx{}, run},
		{"NUL", "c", "a\x00b", "messageID (3 bytes) is not valid UTF-8 or has a NUL", &sql.Tx{}, run},
		{"not UTF-8", "\xff", "m", "consumer (1 bytes) is not valid UTF-8", &sql.Tx{}, run},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := box.Once(t.Context(), c.tx, c.consumer, c.id, c.fn)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err = box.Purge(t.Context(), pool, 0)
	require.ErrorContains(t, err, "age is 0s; it must be positive")
}

func TestMissingTableIsNamed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		box, err := inbox.New(inbox.Config{Dialect: dialectOf(db.Kind)})
		require.NoError(t, err)
		err = inTx(t, db, func(tx *sql.Tx) error {
			_, err := box.Once(t.Context(), tx, "billing", "m1", func(context.Context) error { return nil })
			return err
		})
		require.ErrorContains(t, err, `recording message "m1" for consumer "billing" in table inbox_message`)
	})
}
