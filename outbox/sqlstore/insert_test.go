package sqlstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// hostile has what could be taken for the syntax of a list, an array, or a
// literal.
var hostile = []string{"", "NULL", `a"b`, `a\b`, "it's", "{a,b}", "$1", "?", "é漢😀", "\x02", " a ", `\x01`}

func hostileEvents(prefix string) []outbox.Envelope {
	envs := events(prefix, len(hostile))
	for i, text := range hostile {
		env := &envs[i]
		env.AggregateID, env.TenantID = text, text
		if text != "" {
			env.EventType, env.AggregateType = outbox.EventType(text), outbox.AggregateType(text)
			env.Headers = map[string]string{text: text}
		}
		env.Payload = outbox.JSON(map[string]string{"text": text})
		env.OccurredAt = someTime.Add(time.Duration(i/2) * time.Microsecond)
		env.AvailableAt = env.OccurredAt.Add(time.Duration(i%3) * time.Second)
	}
	return envs
}

// alike are events that differ in their ids alone.
func alike(text string) []outbox.Envelope {
	envs := hostileEvents("alike-" + strconv.Itoa(len(text)))[:3]
	for i := range envs {
		id := envs[i].EventID
		envs[i] = envs[2]
		envs[i].EventID, envs[i].AggregateID, envs[i].TenantID = id, text, text
		envs[i].Headers = map[string]string{"text": text}
		envs[i].Payload = outbox.JSON(map[string]string{"text": text})
	}
	return envs
}

func TestBatchKeepsEveryText(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		store, ctx := storeFor(db.Kind), t.Context()
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		separated := hostileEvents("separated") // texts with the separator of the lists
		for i := range separated {
			separated[i].AggregateID += "\x01"
		}
		lone := hostileEvents("lone")
		lone[3].TenantID = "\x01"
		batches := [][]outbox.Envelope{hostileEvents("plain"), separated, lone, hostileEvents("two")[:2]}
		for _, text := range append(hostile, "\x01", "a\x01b") {
			batches = append(batches, alike(text))
		}
		for _, envs := range batches {
			insert(t, store, db, envs, "", time.Time{})
			batch, err := store.Poll(ctx, db.DB, outbox.PollQuery{Now: time.Now(), Limit: 100})
			require.NoError(t, err)
			require.Len(t, batch.Envelopes, len(envs))
			for i, got := range batch.Envelopes {
				want := envs[i]
				require.JSONEq(t, want.Payload.String(), got.Payload.String())
				want.Payload, got.Payload = outbox.Payload{}, outbox.Payload{}
				require.Equal(t, want, got)
			}
			_, err = db.ExecContext(ctx, "DELETE FROM outbox_event")
			require.NoError(t, err)
		}
	})
}

func TestTheSameEventTwiceIsTheDatabasesError(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store, ctx, env := storeFor(db.Kind), t.Context(), events("e", 1)[0]
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		err := store.Insert(ctx, db.DB, []outbox.Envelope{env, env}, "", time.Time{})
		require.Regexp(t, "(?i)duplicate|unique", err)
	})
}

func TestOnlyDueRowsAreLeased(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		store, ctx := storeFor(db.Kind), t.Context()
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		for _, n := range []int{1, 2, 7} {
			envs, due := events(fmt.Sprint("n", n), n), time.Now()
			for i := range envs {
				if i%2 == 1 {
					envs[i].AvailableAt = due.Add(time.Hour)
				}
			}
			insert(t, store, db, envs, "me/1", due)
			rows, err := db.QueryContext(ctx, "SELECT event_id FROM outbox_event WHERE locked_by = 'me/1' AND locked_at IS NOT NULL ORDER BY event_id")
			require.NoError(t, err)
			var leased, want []string
			for rows.Next() {
				var id string
				require.NoError(t, rows.Scan(&id))
				leased = append(leased, id)
			}
			require.NoError(t, rows.Err())
			for i := 0; i < n; i += 2 {
				want = append(want, envs[i].EventID)
			}
			require.Equal(t, want, leased)
			_, err = db.ExecContext(ctx, "DELETE FROM outbox_event WHERE locked_by IS NOT NULL")
			require.NoError(t, err)
		}
		var rest int
		require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM outbox_event WHERE locked_at IS NULL").Scan(&rest))
		require.Equal(t, 0+1+3, rest)
	})
}

// The caller may go on with the transaction after an error: all events are in it, or
// none.
func TestBatchInSeveralStatementsIsWrittenWholly(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		store, ctx := storeFor(db.Kind), t.Context()
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		envs := events("e", 250)
		for _, twice := range []bool{true, false} {
			batch := slices.Clone(envs)
			if twice {
				batch[249].EventID = batch[0].EventID
			}
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			err = store.Insert(ctx, tx, batch, "", time.Time{})
			require.Equal(t, twice, err != nil, err)
			err = tx.Commit()
			require.True(t, err == nil || twice && db.Kind == testdb.Postgres, err)
			var n int
			require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event").Scan(&n))
			require.Equal(t, map[bool]int{true: 0, false: 250}[twice], n)
		}
	})
}
