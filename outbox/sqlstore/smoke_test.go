package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	_ "github.com/uptrace/bun/driver/pgdriver"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestSmoke(t *testing.T) {
	for _, c := range [][2]string{
		{"sqlite", "file:" + filepath.Join(t.TempDir(), "x.db") + "?_pragma=busy_timeout(5000)&_txlock=immediate"},
		{"pgx", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"},
		{"pgx", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable&default_query_exec_mode=simple_protocol"},
		{"postgres", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"},
		{"pg", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"},
		{"mysql", "root@tcp(127.0.0.1:3306)/test"},
	} {
		t.Run(c[0], func(t *testing.T) {
			ctx := context.Background()
			db, err := sql.Open(c[0], c[1])
			require.NoError(t, err)
			defer db.Close()
			s, err := sqlstore.Detect(ctx, db, sqlstore.WithTable("smoke"))
			require.NoError(t, err)
			db.Exec("DROP TABLE smoke")
			require.NoError(t, s.CreateSchema(ctx, db))
			require.NoError(t, s.CreateSchema(ctx, db))
			now := time.Now().UTC().Truncate(time.Microsecond)
			mk := func(i int) outbox.Envelope {
				return outbox.Envelope{EventID: fmt.Sprintf("e%05d", i), EventType: "T", AggregateType: outbox.Global, Payload: outbox.RawJSON(`{"a": "é\"\\"}`), OccurredAt: now.Add(time.Duration(i) * time.Microsecond), AvailableAt: now.Add(time.Duration(i) * time.Microsecond), Headers: map[string]string{"k": "v"}}
			}
			var envs []outbox.Envelope
			for i := range 1200 {
				envs = append(envs, mk(i))
			}
			require.NoError(t, s.Insert(ctx, db, envs, ""))
			b, err := s.Poll(ctx, db, outbox.PollQuery{Now: now.Add(time.Second), Limit: 10})
			require.NoError(t, err)
			require.Equal(t, 10, b.Len())
			require.Equal(t, envs[0], b.Envelopes[0])
			b, err = s.Poll(ctx, db, outbox.PollQuery{Now: now.Add(time.Second), Limit: 10, After: b.Next})
			require.NoError(t, err)
			require.Equal(t, "e00010", b.Envelopes[0].EventID)
			b, err = s.Claim(ctx, db, outbox.ClaimQuery{Now: now.Add(time.Second), Limit: 10, Owner: "me", LockTimeout: time.Minute})
			require.NoError(t, err)
			require.Equal(t, "e00000", b.Envelopes[0].EventID)
			require.Equal(t, 10, b.Len())
			b, err = s.Claim(ctx, db, outbox.ClaimQuery{Now: now.Add(time.Second), Limit: 10, Owner: "me", LockTimeout: time.Minute})
			require.NoError(t, err)
			require.Equal(t, "e00010", b.Envelopes[0].EventID)
			for kind, ids := range map[outbox.MarkKind][]string{outbox.MarkDone: {"e00000", "e00001", "e00002"}, outbox.MarkRetry: {"e00003", "e00004"}, outbox.MarkDead: {"e00005", "e00006", "e00007"}, outbox.MarkDeferred: {"e00008"}, outbox.MarkReleased: {"e00009"}, outbox.MarkDelete: {"e00010"}} {
				var marks []outbox.Mark
				for _, id := range ids {
					marks = append(marks, outbox.Mark{EventID: id, AvailableAt: now, Error: `bad "thing\` + id, CountAttempt: true})
				}
				n, err := s.Mark(ctx, db, kind, "me", marks)
				require.NoError(t, err, kind)
				require.Equal(t, len(ids), n, kind)
			}
			n, err := s.Renew(ctx, db, "me", []string{"e00011", "e00012", "e01000"})
			require.NoError(t, err)
			require.Equal(t, 2, n)
			st, err := s.Stats(ctx, db, now.Add(time.Second))
			require.NoError(t, err)
			require.Equal(t, outbox.StoreStats{Due: 1200 - 3 - 3 - 1, Dead: 3, OldestDue: now}, st)
			due, err := s.NextDue(ctx, db, now.Add(500*time.Microsecond))
			require.NoError(t, err)
			require.Equal(t, now.Add(501*time.Microsecond), due)
			dl, err := s.QueryDead(ctx, db, outbox.DeadQuery{Limit: 2})
			require.NoError(t, err)
			require.Len(t, dl, 2)
			require.Equal(t, `bad "thing\e00005`, dl[0].LastError)
			require.Equal(t, 1, dl[0].Attempts)
			dl, err = s.QueryDead(ctx, db, outbox.DeadQuery{Limit: 2, AfterDiedAt: dl[1].DiedAt, AfterEventID: dl[1].EventID, KeysOnly: true})
			require.NoError(t, err)
			require.Len(t, dl, 1)
			_, err = s.GetDead(ctx, db, "nope")
			require.ErrorIs(t, err, outbox.ErrNotFound)
			n, err = s.ReplayDead(ctx, db, []string{"e00005"}, now)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			n, err = s.DeleteDead(ctx, db, []string{"e00006", "e00000"})
			require.NoError(t, err)
			require.Equal(t, 1, n)
			clock, err := s.Now(ctx, db)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), clock, time.Second)
			n, err = s.Purge(ctx, db, outbox.PurgeQuery{Before: clock.Add(time.Hour), Limit: 3})
			require.NoError(t, err)
			require.Equal(t, 3, n)
			n, err = s.Purge(ctx, db, outbox.PurgeQuery{Before: clock.Add(time.Hour), Limit: 3})
			require.NoError(t, err)
			require.Equal(t, 1, n)
			n, err = s.Purge(ctx, db, outbox.PurgeQuery{Before: clock.Add(time.Hour), ByAge: true, Limit: 100})
			require.NoError(t, err)
			require.Equal(t, 100, n)
		})
	}
}
