package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// unreadable are rows that another program wrote: an INSERT for each, with %s for its id.
var unreadable = map[testdb.Kind]map[string]string{
	testdb.Postgres: {
		"due for ever":   "INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at) VALUES (%s, 'Said', '{}', 0, '-infinity', now())",
		"no attempts":    "INSERT INTO outbox_event (event_id, event_type, payload, status, attempts, available_at, created_at) VALUES (%s, 'Said', '{}', 2, -7, now(), now())",
		"before history": "INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at) VALUES (%s, 'Said', '{}', 0, now(), '4713-01-01 BC')",
	},
	testdb.MySQL: {
		"headers":     "INSERT INTO outbox_event (event_id, event_type, payload, headers, status, available_at, created_at) VALUES (%s, 'Said', '{}', '[1]', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
		"no attempts": "INSERT INTO outbox_event (event_id, event_type, payload, status, attempts, available_at, created_at) VALUES (%s, 'Said', '{}', 2, -7, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
		"zero date":   "INSERT IGNORE INTO outbox_event (event_id, event_type, payload, status, available_at, created_at) VALUES (%s, 'Said', '{}', 0, '0000-00-00', '0000-00-00')",
	},
	testdb.SQLite: {
		"text for times": "INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at) VALUES (%s, 'Said', '{}', 0, datetime('now'), datetime('now'))",
		"no attempts":    "INSERT INTO outbox_event (event_id, event_type, payload, status, attempts, available_at, created_at) VALUES (%s, 'Said', '{}', 2, 'none', 1, 1)",
		"bytes as id":    "INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at) VALUES (CAST(%s AS BLOB), 'Said', '{}', 0, 1, 1)",
		"no id":          "INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at) VALUES (NULLIF(%s, 'no id'), 'Said', '{}', 0, 1, 1)",
	},
}

// A row that another program spoilt is DEAD, and the events beside it are delivered.
func TestUnreadableRowsAreDeadAndTheOthersAreDelivered(t *testing.T) {
	t.Parallel()
	poll := outbox.PollOptions{Interval: 50 * time.Millisecond}
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Poll: poll},
		"multi node":  outbox.MultiNode{Poll: poll},
		"ordered":     outbox.Ordered{Poll: poll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
				_, claims := mode.(outbox.MultiNode)
				e := onDatabase(t, db, outbox.Config{Mode: mode}, nil)
				e.write(said("first"))
				dead := 0
				for name, insert := range unreadable[db.Kind] {
					if claims && name == "no id" { // no claim names it
						continue
					}
					e.exec(fmt.Sprintf(insert, "'"+name+"'"))
					dead++
				}
				e.write(said("second"))
				require.NoError(t, e.Start(t.Context()))
				e.eventually(func() bool {
					page, err := e.DeadLetters().Find(context.Background(), outbox.DeadQuery{Limit: 100})
					return err == nil && len(page.Rows) == dead &&
						e.event("first").Status == outbox.StatusDone && e.event("second").Status == outbox.StatusDone
				}, "not all rows came to their end")
				letters, err := e.DeadLetters().Find(t.Context(), outbox.DeadQuery{Limit: 100})
				require.NoError(t, err)
				for _, letter := range letters.Rows {
					require.NotEmpty(t, letter.LastError)
					d, err := e.DeadLetters().Delete(t.Context(), letter.EventID)
					require.NoError(t, err, "of %q", letter.EventID)
					_, err = e.DeadLetters().Restore(t.Context(), d.ID)
					require.NoError(t, err, "of %q", letter.EventID)
				}
				d, err := e.DeadLetters().DeleteAll(t.Context(), outbox.DeadFilter{}, 0, outbox.Final())
				require.NoError(t, err)
				require.Equal(t, dead, d.Count)
				page, err := e.FindEvents(t.Context(), outbox.EventQuery{Limit: 100})
				require.NoError(t, err)
				require.Len(t, page.Rows, 2)
			})
		})
	}
}

// A walk along dead letters of which most have no time of death that can be read ends, and
// counts all of them.
func TestDeadLettersWithoutATimeOfDeathAreCounted(t *testing.T) {
	t.Parallel()
	e := onDatabase(t, testdb.Open(t, adaptertest.Main()[0]), outbox.Config{}, nil)
	e.exec("INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at, done_at, last_error)" +
		" SELECT lpad(i::text, 8, '0'), 'Said', '{}', 3, now(), now(), CASE WHEN i < 10 THEN now() ELSE 'infinity' END, 'no' FROM generate_series(1, 3000) AS s (i)")
	groups, _, err := e.DeadLetters().Groups(t.Context(), outbox.DeadFilter{})
	require.NoError(t, err)
	require.NotEmpty(t, groups)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, err := e.DeadLetters().Count(ctx, outbox.DeadFilter{Group: groups[0].ID})
	require.NoError(t, err)
	require.EqualValues(t, 3000, n)
}
