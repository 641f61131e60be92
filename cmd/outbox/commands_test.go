package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestTheSchemaIsCreatedCheckedAndMigrated(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		for _, args := range [][]string{{"schema", "check"}, {"schema", "migrate"}, {"stats"}, {"events", "list"}, {"dead", "replay", "--all"}, {"nodes"}} {
			require.Contains(t, fails(t, 1, db.DSN, args...), "outbox schema create", "%v", args)
		}
		require.Contains(t, ok(t, db.DSN, "schema", "create", "--dry-run"), "would create")
		require.Contains(t, fails(t, 1, db.DSN, "schema", "check"), "schema create", "the dry run created nothing")
		require.Contains(t, ok(t, db.DSN, "schema", "create", "--index", "key,search"), "created the table outbox_event")
		require.Contains(t, ok(t, db.DSN, "schema", "create"), "already")
		require.EqualValues(t, sqlstore.SchemaVersion, answer(t, db.DSN, "schema", "check")["version"])
		require.EqualValues(t, sqlstore.SchemaVersion, answer(t, db.DSN, "schema", "migrate", "--to", "1", "--yes")["from"])
		require.Contains(t, fails(t, 1, db.DSN, "schema", "check"), "outbox schema migrate")
		require.Contains(t, ok(t, db.DSN, "schema", "migrate"), fmt.Sprintf("from version 1 to %d", sqlstore.SchemaVersion))
		ok(t, db.DSN, "schema", "check")
	})
}

func TestThePrintedSchemaCreatesTheTable(t *testing.T) {
	t.Parallel()
	for dialect, target := range map[string]testdb.Target{"postgres": testdb.Main()[0], "mariadb": testdb.Main()[1], "sqlite": testdb.Main()[2]} {
		db := testdb.Open(t, target)
		text := ok(t, "", "schema", "print", "--dialect", dialect, "--table", "my_events", "--index", "key")
		require.Equal(t, strings.TrimSpace(text), answer(t, "", "schema", "print", "--dialect", dialect, "--table", "my_events", "--index", "key")["sql"].(string), dialect)
		for _, statement := range strings.Split(text, ";\n") {
			if statement = strings.TrimSpace(statement); statement != "" {
				_, err := db.ExecContext(t.Context(), statement)
				require.NoError(t, err, statement)
			}
		}
		ok(t, db.DSN, "schema", "check", "--table", "my_events")
		require.Contains(t, ok(t, "", "schema", "print", "--dialect", dialect, "--version", "1", "--down"), "DROP TABLE")
	}
}

func TestEventsAreListedAndShown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		for i := range 5 {
			s.insert(t, envelope(fmt.Sprintf("e%d", i)))
		}
		s.kill(t, "the mail server is away", "e4")
		out := ok(t, s.DSN, "events", "list", "--status", "new")
		require.Contains(t, out, "Order/OrderPlaced")
		require.NotContains(t, out, "e4")
		require.NotContains(t, out, "tea", "a listing has no payload")

		var ids []string
		after := ""
		for {
			args := []string{"events", "list", "--limit", "2"}
			if after != "" {
				args = append(args, "--after", after)
			}
			page := answer(t, s.DSN, args...)
			for _, e := range page["events"].([]any) {
				ids = append(ids, e.(map[string]any)["event_id"].(string))
			}
			next, more := page["next"]
			if !more {
				break
			}
			after = next.(string)
		}
		require.ElementsMatch(t, []string{"e0", "e1", "e2", "e3", "e4"}, ids)
		require.Len(t, answer(t, s.DSN, "events", "list", "--aggregate-id", "o-e3", "--since", "1h")["events"], 1)
		require.Empty(t, answer(t, s.DSN, "events", "list", "--tenant", "t2")["events"])

		shown := ok(t, s.DSN, "events", "show", "e4")
		require.Contains(t, shown, "the mail server is away")
		require.NotContains(t, shown, "tea")
		require.NotContains(t, shown, "abc", "headers are hidden too")
		event := answer(t, s.DSN, "events", "show", "e4", "--payload")
		require.Equal(t, "DEAD", event["status"])
		require.Equal(t, map[string]any{"item": "tea"}, event["payload"])
		require.Equal(t, map[string]any{"trace": "abc"}, event["headers"])
		require.Contains(t, ok(t, s.DSN, "events", "show", "e4", "--payload"), "tea")
		require.Contains(t, fails(t, 3, s.DSN, "events", "show", "gone"), "no event")
	})
}

func TestAListNamesTheListenerOfARow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		row := envelope("row")
		row.Headers = map[string]string{outbox.HeaderListener: "mail", outbox.HeaderEventID: "event", "trace": "abc"}
		s.insert(t, row)
		out := ok(t, s.DSN, "events", "list")
		require.Contains(t, out, " mail ")
		listed := answer(t, s.DSN, "events", "list")["events"].([]any)[0].(map[string]any)
		require.Equal(t, []any{"mail", "event"}, []any{listed["listener"], listed["original_id"]})
		require.NotContains(t, listed, "headers")
	})
}

func TestDeadLettersAreListedAndShown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.dead(t, "timeout after 30 s", 3)
		page := answer(t, s.DSN, "dead", "list", "--limit", "2")
		require.Len(t, page["dead_letters"], 2)
		require.Equal(t, true, page["more"])
		rest := answer(t, s.DSN, "dead", "list", "--limit", "2", "--after", page["next"].(string))
		require.Len(t, rest["dead_letters"], 1)
		require.Equal(t, false, rest["more"])
		require.Positive(t, page["dead_letters"].([]any)[0].(map[string]any)["payload_bytes"])
		require.Contains(t, ok(t, s.DSN, "dead", "list"), "timeout after 30 s")
		require.NotContains(t, ok(t, s.DSN, "dead", "show", "d000001"), "tea")
		require.Contains(t, ok(t, s.DSN, "dead", "show", "d000001", "--payload"), "tea")
		require.Contains(t, fails(t, 3, s.DSN, "dead", "show", "gone"), "no dead letter")
	})
}

func TestDeadLettersAreReplayedAndDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.dead(t, "x", 9)
		require.EqualValues(t, 9, answer(t, s.DSN, "dead", "replay", "--all", "--dry-run")["matching"])
		require.Equal(t, 9, s.count(t, outbox.StatusDead), "a dry run changes nothing")
		require.Contains(t, fails(t, 2, s.DSN, "dead", "replay", "--all"), "--yes")
		require.Contains(t, fails(t, 2, s.DSN, "dead", "replay"), "must be one of")
		require.Contains(t, fails(t, 2, s.DSN, "dead", "replay", "d000001", "--all"), "must be one of")
		require.Contains(t, fails(t, 2, s.DSN, "dead", "replay", "--event-type", ""), "--event-type is empty")
		require.Equal(t, 9, s.count(t, outbox.StatusDead))

		require.Contains(t, ok(t, s.DSN, "dead", "replay", "d000000"), "replayed 1 dead letter\n")
		require.Contains(t, fails(t, 3, s.DSN, "dead", "replay", "d000001", "d000000", "--yes"), "1 of the 2 event ids")
		require.EqualValues(t, 0, answer(t, s.DSN, "dead", "replay", "--event-type", "Other", "--yes")["replayed"])
		require.EqualValues(t, 7, answer(t, s.DSN, "dead", "replay", "--event-type", "OrderPlaced", "--batch", "3", "--yes")["replayed"])
		require.Equal(t, 9, s.count(t, outbox.StatusNew))

		s.kill(t, "x", "d000000", "d000001", "d000002")
		require.Contains(t, ok(t, s.DSN, "dead", "delete", "d000000"), "deleted 1")
		deleted := answer(t, s.DSN, "dead", "delete", "--all", "--yes")
		require.EqualValues(t, 2, deleted["deleted"])
		id := deleted["deletion_id"].(string)
		require.Len(t, answer(t, s.DSN, "events", "list", "--deletion", id)["events"], 2)
		require.Contains(t, fails(t, 2, s.DSN, "events", "list", "--deletion", "x"), "is no id of a deletion")
		shown := ok(t, s.DSN, "events", "show", "d000002")
		require.Contains(t, shown, "DELETED")
		require.Regexp(t, `was deleted by \S+ at .*; it can be restored until a purge deletes the row`, shown)
		require.Contains(t, ok(t, s.DSN, "audit"), id)
		require.EqualValues(t, 2, answer(t, s.DSN, "dead", "restore", id, "--dry-run")["matching"])
		require.Contains(t, fails(t, 2, s.DSN, "dead", "restore", id), "--yes")
		require.Contains(t, ok(t, s.DSN, "dead", "restore", id, "--yes"), "restored 2 dead letters")
		require.Contains(t, fails(t, 3, s.DSN, "dead", "restore", id, "--yes"), "no dead letter of this deletion can be restored")
		require.Contains(t, fails(t, 3, s.DSN, "dead", "restore", "x", "--yes"), "no dead letter of this deletion can be restored")
		require.Contains(t, fails(t, 3, s.DSN, "dead", "delete", "d000002", "none", "--yes"), "1 of the 2 event ids")
		final := answer(t, s.DSN, "dead", "delete", "--all", "--final", "--yes")
		require.EqualValues(t, 1, final["deleted"])
		require.NotContains(t, final, "deletion_id")
		require.Zero(t, s.count(t, outbox.StatusDead))
		require.Equal(t, 6, s.count(t, outbox.StatusNew))
	})
}

// keyTaken gives dead letters the unique key of a pending event.
func (s *shop) keyTaken(t *testing.T, letters ...string) {
	t.Helper()
	ok(t, s.DSN, "schema", "create", "--index", "unique", "--yes")
	s.insert(t, envelope("pending"))
	for _, id := range append(letters, "pending") {
		_, err := s.ExecContext(t.Context(), "UPDATE outbox_event SET unique_key = 'k' WHERE event_id = '"+id+"'")
		require.NoError(t, err)
	}
}

func TestALetterWhoseKeyIsTakenStaysDead(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.dead(t, "x", 6)
		s.keyTaken(t, "d000001", "d000003")
		failed := fails(t, 1, s.DSN, "dead", "replay", "d000001", "d000002", "d000003", "--yes")
		require.Contains(t, failed, "after it replayed 1 of 3 dead letters: 2 dead letters stay dead, d000001 first: a pending event has their unique key")
		failed = fails(t, 1, s.DSN, "dead", "replay", "--all", "--batch", "2", "--yes")
		require.Contains(t, failed, "after it replayed 3 of 5 dead letters")
		require.Contains(t, failed, "2 dead letters stay dead, d000001 first")
		require.Equal(t, 2, s.count(t, outbox.StatusDead))
		s.kill(t, "x", "pending")
		require.Contains(t, ok(t, s.DSN, "dead", "replay", "d000003"), "replayed 1 dead letter")
		require.Contains(t, ok(t, s.DSN, "dead", "delete", "d000001"), "deleted 1")
	})
}

func TestAGroupIsFoundAndReplayed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		for i := range 5 {
			s.insert(t, envelope(fmt.Sprint("e", i)))
			s.kill(t, fmt.Sprintf("dial 10.0.0.%d:25: connection refused", i), fmt.Sprint("e", i))
		}
		s.insert(t, envelope("other"))
		s.kill(t, "no such customer", "other")
		groups := answer(t, s.DSN, "dead", "groups")["groups"].([]any)
		require.Len(t, groups, 2)
		largest := groups[0].(map[string]any)
		require.EqualValues(t, 5, largest["count"])
		id := largest["group"].(string)
		require.Contains(t, ok(t, s.DSN, "dead", "groups"), id)
		require.Len(t, answer(t, s.DSN, "dead", "list", "--group", id)["dead_letters"], 5)
		require.EqualValues(t, 5, answer(t, s.DSN, "dead", "replay", "--group", id, "--dry-run")["matching"])
		require.EqualValues(t, 5, answer(t, s.DSN, "dead", "replay", "--group", id, "--yes")["replayed"])
		require.Equal(t, 1, s.count(t, outbox.StatusDead))
	})
}

func TestTheReasonOfAGroupIsShownWhole(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	reason := "charging the customer: calling the payment service: no answer within the time: context deadline exceeded"
	s.insert(t, envelope("e1"))
	s.kill(t, reason, "e1")
	require.Contains(t, ok(t, s.DSN, "dead", "groups"), "  "+reason+"\n")
	require.Equal(t, reason, answer(t, s.DSN, "dead", "groups")["groups"].([]any)[0].(map[string]any)["reason"])
}

func TestAPageOfAGroupBehindManyOthersSaysWhereToGoOn(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	s.insert(t, envelope("e0"), envelope("e1"))
	s.kill(t, "second", "e0")
	id := answer(t, s.DSN, "dead", "groups")["groups"].([]any)[0].(map[string]any)["group"].(string)
	ok(t, s.DSN, "dead", "delete", "e0", "--yes")
	s.dead(t, "first", outbox.GroupLimit+100)
	s.kill(t, "second", "e1")
	page := answer(t, s.DSN, "dead", "list", "--group", id)
	require.Empty(t, page["dead_letters"])
	require.Equal(t, true, page["more"])
	page = answer(t, s.DSN, "dead", "list", "--group", id, "--after", page["next"].(string))
	require.Len(t, page["dead_letters"], 1)
	require.Equal(t, false, page["more"])
}

func TestReplayingInATableOrderedByKeyMakesRetries(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		s := open(t, db, "--index", "key")
		s.dead(t, "x", 2)
		ok(t, s.DSN, "dead", "replay", "--all", "--yes")
		require.Equal(t, 2, s.count(t, outbox.StatusRetry))
	})
}

func TestATypeIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		require.Contains(t, ok(t, s.DSN, "pause", "OrderPlaced", "--aggregate-type", "Order", "--dry-run"), "would pause Order/OrderPlaced")
		require.Empty(t, answer(t, s.DSN, "paused")["pauses"])
		require.Equal(t, true, answer(t, s.DSN, "pause", "OrderPlaced", "--aggregate-type", "Order")["changed"])
		require.Contains(t, ok(t, s.DSN, "paused"), "OrderPlaced")
		require.Contains(t, ok(t, s.DSN, "stats"), "Order/OrderPlaced")
		began := time.Now()
		require.Contains(t, ok(t, s.DSN, "pause", "OrderPlaced", "--aggregate-type", "Order", "--for", "1h30m", "--reason", "provider down"),
			"paused Order/OrderPlaced, in place of the pause that it has")
		require.Contains(t, ok(t, s.DSN, "paused"), "provider down")
		require.Regexp(t, `Order/OrderPlaced since .* until 20`, ok(t, s.DSN, "stats"))
		paused := answer(t, s.DSN, "paused")["pauses"].([]any)[0].(map[string]any)
		require.Equal(t, "provider down", paused["reason"])
		until, err := time.Parse(time.RFC3339Nano, paused["until"].(string))
		require.NoError(t, err)
		require.WithinDuration(t, began.Add(90*time.Minute), until, time.Minute)
		require.Contains(t, ok(t, s.DSN, "resume", "OrderPlaced"), "is not paused", "that is another aggregate type")
		require.Contains(t, ok(t, s.DSN, "resume", "OrderPlaced", "--aggregate-type", "Order"), "resumed Order/OrderPlaced")
		require.Empty(t, answer(t, s.DSN, "paused")["pauses"])
	})
}

func TestAKeyIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		key := []string{"OrderPlaced", "--aggregate-type", "Order", "--aggregate-id", "o-1"}
		require.Contains(t, fails(t, 2, s.DSN, append([]string{"pause"}, key...)...), "--for")
		require.Contains(t, ok(t, s.DSN, append([]string{"pause", "--for", "1h"}, key...)...), "paused Order/OrderPlaced of o-1")
		paused := answer(t, s.DSN, "paused")["pauses"].([]any)
		require.Len(t, paused, 1)
		require.Equal(t, "o-1", paused[0].(map[string]any)["aggregate_id"])
		require.Regexp(t, `Order +OrderPlaced +o-1 `, ok(t, s.DSN, "paused"))
		require.Contains(t, ok(t, s.DSN, "resume", "OrderPlaced", "--aggregate-type", "Order"), "is not paused", "only the key is paused")
		require.Contains(t, ok(t, s.DSN, append([]string{"resume"}, key...)...), "resumed Order/OrderPlaced of o-1")
		require.Empty(t, answer(t, s.DSN, "paused")["pauses"])
	})
}

func TestOldEventsArePurgedAndOthersStay(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.dead(t, "x", 4)
		s.insert(t, envelope("done"), envelope("new"))
		_, err := s.store.Mark(t.Context(), s.DB, outbox.OutcomeDone, []outbox.Mark{{EventID: "done"}})
		require.NoError(t, err)
		require.EqualValues(t, 0, answer(t, s.DSN, "purge", "--yes")["purged"], "the default retention keeps them")
		require.EqualValues(t, 5, answer(t, s.DSN, "purge", "--retention", "0s", "--dry-run")["matching"])
		require.Contains(t, fails(t, 2, s.DSN, "purge", "--retention", "0s"), "--yes")
		require.EqualValues(t, 5, answer(t, s.DSN, "purge", "--retention", "0s", "--batch", "2", "--yes")["purged"])
		require.Equal(t, 1, s.count(t, outbox.StatusNew))
	})
}

func TestTheAuditLogIsShown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.dead(t, "x", 2)
		ok(t, s.DSN, "dead", "replay", "d000000")
		ok(t, s.DSN, "pause", "OrderPlaced", "--reason", "provider down")
		require.Regexp(t, `outbox on .+ +pause +0 +no +__GLOBAL__/OrderPlaced +provider down +-\n.*replay +1 +no +event_id=d000000`, ok(t, s.DSN, "audit"))
		page := answer(t, s.DSN, "audit", "--limit", "1")
		require.Equal(t, "pause", page["entries"].([]any)[0].(map[string]any)["action"])
		page = answer(t, s.DSN, "audit", "--after", page["next"].(string))
		require.Len(t, page["entries"], 1)
		require.NotContains(t, page, "next")
		ok(t, s.DSN, "purge", "--retention", "0s", "--yes")
		require.Regexp(t, `purge +1 +no +old rows, retention 0s`, ok(t, s.DSN, "audit", "--limit", "1"))
	})
}

// An export has all entries, more than a page, and those since a time.
func TestTheAuditLogIsExported(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		ob, err := outbox.New(outbox.Config{DB: s.DB.DB, Store: s.store, Mode: outbox.WriterOnly{}})
		require.NoError(t, err)
		ctx := outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna"})
		const many = outbox.MaxAuditLimit + 3
		for i := range many {
			require.NoError(t, ob.RecordChange(ctx, outbox.AuditEntry{Action: "replay", Target: fmt.Sprintf("event_id=%04d", i)}))
		}
		page := answer(t, s.DSN, "audit", "--limit", "10000")
		require.Len(t, page["entries"], many)
		require.NotContains(t, page, "next")
		targets := map[any]bool{}
		for _, entry := range page["entries"].([]any) {
			targets[entry.(map[string]any)["target"]] = true
		}
		require.Len(t, targets, many, "each once")
		page = answer(t, s.DSN, "audit", "--limit", fmt.Sprint(many-1))
		require.Len(t, page["entries"], many-1)
		require.Len(t, answer(t, s.DSN, "audit", "--after", page["next"].(string))["entries"], 1)
		require.Len(t, answer(t, s.DSN, "audit", "--since", "1h", "--limit", "10000")["entries"], many)
		require.Empty(t, answer(t, s.DSN, "audit", "--since", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))["entries"])
		require.Contains(t, fails(t, 2, s.DSN, "audit", "--since", "soon"), "--since is a text of 4 bytes")
		require.Contains(t, fails(t, 2, s.DSN, "audit", "--limit", "10001"), "from 1 to 10000")
	})
}

func TestAChangeThatIsNotRecordedIsAWarning(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	_, err := s.ExecContext(t.Context(), `CREATE TRIGGER full BEFORE INSERT ON outbox_event_control WHEN NEW.kind = 'audit' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
	require.NoError(t, err)
	s.dead(t, "x", 5)
	for _, test := range []struct {
		want string
		args []string
	}{
		{"replayed 2 dead letters", []string{"dead", "replay", "d000000", "d000001", "--yes"}},
		{"deleted 1 dead letter", []string{"dead", "delete", "d000002", "--yes"}},
		{"paused ", []string{"pause", "OrderPlaced"}},
		{"purged 3 done, dead and deleted events", []string{"purge", "--retention", "0s", "--yes"}},
	} {
		r := run(t, s.DSN, test.args...)
		require.Equal(t, 0, r.code, r.err)
		require.Contains(t, r.out, test.want)
		require.Contains(t, r.err, "Warning: the change is done, but it is not recorded in the audit log: ")
		require.Equal(t, 1, strings.Count(r.err, "Warning: the change is done"))
	}
}

func TestSharesAreShown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		require.JSONEq(t, `{"kinds":[]}`, ok(t, s.DSN, "shares", "--json"))
		until := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
		value := fmt.Sprintf(`{"of":"Order/OrderPlaced","k":["Order","OrderPlaced"],"l":{"c":8,"r":2.5,"b":10},"m":[{"n":"node-1/ABCDEFGH","p":3,"o":8,"w":true,"t":%d},{"n":"node-2/ABCDEFGH","o":8,"w":true,"t":%d}]}`, until.UnixMicro(), until.UnixMicro())
		set, err := s.store.SetShares(t.Context(), s.DB, outbox.EventKind{AggregateType: "Order", EventType: "OrderPlaced"}, "", outbox.Shares{Version: "v", Value: value})
		require.NoError(t, err)
		require.True(t, set)
		out := ok(t, s.DSN, "shares")
		require.Regexp(t, `Order +OrderPlaced +8 at once; 2.5 a second, burst 10 +node-1 +3 of 8 +20`, out)
		require.Regexp(t, `node-2 +waits +20`, out)
		kinds := answer(t, s.DSN, "shares")["kinds"].([]any)
		require.Equal(t, map[string]any{
			"event_type": "OrderPlaced", "aggregate_type": "Order", "concurrency": 8.0, "rate": 2.5, "burst": 10.0, "parts": 8.0, "shares": []any{
				map[string]any{"owner": "node-1", "parts": 3.0, "of": 8.0, "until": until.Format(time.RFC3339Nano), "waits": false},
				map[string]any{"owner": "node-2", "parts": 0.0, "of": 8.0, "until": until.Format(time.RFC3339Nano), "waits": true},
			},
		}, kinds[0])
	})
}

func TestNodesAndCountsAreShown(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.insert(t, envelope("e1"))
		require.NoError(t, s.store.Announce(t.Context(), s.DB, outbox.Node{
			Owner: "here", Mode: "multi-node", Version: "v1.2.3", Started: time.Now(), ColdDepth: 3,
			Kinds: []outbox.EventKind{{AggregateType: "Order", EventType: "Placed"}}, Unheard: []outbox.EventKind{{AggregateType: "Order", EventType: "Lost"}},
		}, time.Minute))
		require.NoError(t, s.store.Announce(t.Context(), s.DB, outbox.Node{Owner: "gone", Mode: "multi-node", Started: time.Now(), Log: &outbox.LogLag{Behind: 1 << 53, Kept: 0, Left: -1}}, -time.Second))
		out := ok(t, s.DSN, "nodes")
		require.Regexp(t, `here +v1\.2\.3 +multi-node +live`, out)
		require.Regexp(t, `gone +- +multi-node +dead`, out)
		require.Contains(t, out, "Order/Lost")
		nodes := answer(t, s.DSN, "nodes")["nodes"].([]any)
		require.Len(t, nodes, 2)
		require.Equal(t, []any{map[string]any{"event_type": "Lost", "aggregate_type": "Order"}}, nodes[1].(map[string]any)["unheard"])
		require.NotContains(t, nodes[0], "kinds", "not known")
		require.NotContains(t, nodes[0], "version", "not reported")
		require.Equal(t, map[string]any{"behind_bytes": float64(1 << 53), "kept_bytes": 0.0, "left_bytes": -1.0}, nodes[0].(map[string]any)["log"])
		require.NotContains(t, nodes[1], "log")
		require.Equal(t, "v1.2.3", nodes[1].(map[string]any)["version"])
		_, err := s.ExecContext(t.Context(), "UPDATE outbox_event_control SET value = '{' WHERE name = 'gone'")
		require.NoError(t, err)
		require.Contains(t, ok(t, s.DSN, "nodes"), "delete the row")
		require.Contains(t, run(t, s.DSN, "doctor").out, "the report of gone cannot be read")
		stats := answer(t, s.DSN, "stats")
		require.EqualValues(t, 1, stats["due"])
		require.Greater(t, stats["oldest_due_seconds"], 50.0)
		said := stats["verdict"].(map[string]any)
		require.Equal(t, "attention", said["level"])
		require.True(t, strings.HasPrefix(ok(t, s.DSN, "stats"), "In time, but look: Order/Lost without a listener in any process."), "of the report that can be read")
	})
}

// The command line has no rules: a process that delivers reports them.
func TestAKindIsLateByTheLimitThatAProcessReported(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		e := envelope("e1") // a minute old
		s.insert(t, e)
		kind := outbox.EventKind{AggregateType: e.AggregateType, EventType: e.EventType}
		announce := func(limit time.Duration) {
			t.Helper()
			require.NoError(t, s.store.Announce(t.Context(), s.DB, outbox.Node{
				Owner: "here", Mode: "multi-node", Started: time.Now(), LastPoll: time.Now(), Kinds: []outbox.EventKind{kind}, MaxDueAges: []outbox.KindAge{{Kind: kind, MaxDueAge: limit}},
			}, time.Minute))
		}
		announce(24 * time.Hour)
		stats := answer(t, s.DSN, "stats")
		require.Equal(t, "well", stats["verdict"].(map[string]any)["level"])
		require.Empty(t, stats["late"])
		require.Zero(t, stats["oldest_due_seconds"])
		announce(5 * time.Second)
		stats = answer(t, s.DSN, "stats")
		require.Regexp(t, `^Late by .+: 1 event of `+kind.String()+` due for more than 5 s\.$`, stats["verdict"].(map[string]any)["summary"])
		late := stats["late"].([]any)[0].(map[string]any)
		require.Greater(t, late["oldest_due_seconds"], 50.0)
		require.EqualValues(t, 5, late["max_due_age_seconds"])
		require.EqualValues(t, 1, late["events"])
		require.Regexp(t, `late: +.*1 events, the oldest due for .*, may be due for 5s`, ok(t, s.DSN, "stats"))
		require.Contains(t, run(t, s.DSN, "doctor").out, "1 events of "+kind.String()+" are late: the oldest has been due for ")
		require.NoError(t, s.store.Pause(t.Context(), s.DB, outbox.Pause{Kind: kind, Since: time.Now().UTC()}))
		stats = answer(t, s.DSN, "stats")
		require.Empty(t, stats["late"])
		require.EqualValues(t, 1, stats["due_paused"])
		require.Contains(t, ok(t, s.DSN, "stats"), "In time, but look: "+kind.String()+" paused (1 event due).")
		require.Regexp(t, `due and paused: +1\n`, ok(t, s.DSN, "stats"))
	})
}

// durable is the address without the setting that makes tests fast and that the doctor warns of.
func durable(dsn string) string {
	return strings.Replace(dsn, "synchronous(OFF)", "synchronous(NORMAL)", 1)
}

func TestDoctorEndsWithTheCodeOfTheWorstFinding(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	s.DSN = durable(s.DSN)
	var healthy struct {
		Verdict  struct{ Level, Summary string }
		Worst    string
		Findings []struct{ Check, Level, Seen string }
	}
	require.NoError(t, json.Unmarshal([]byte(ok(t, s.DSN, "doctor", "--json")), &healthy))
	require.Equal(t, "note", healthy.Worst, "nothing delivers")
	require.Equal(t, "Well: no event is due.", healthy.Verdict.Summary)
	require.NotEmpty(t, healthy.Findings)
	late := envelope("late")
	late.OccurredAt = late.OccurredAt.Add(-time.Hour)
	late.AvailableAt = late.OccurredAt
	s.insert(t, late)
	r := run(t, s.DSN, "doctor")
	require.Equal(t, 4, r.code)
	require.Regexp(t, `^Late by 1 h \d+ min: no process delivers\.\n`, r.out)
	_, err := s.ExecContext(t.Context(), "DROP INDEX idx_outbox_event_due")
	require.NoError(t, err)
	r = run(t, s.DSN, "doctor")
	require.Equal(t, 5, r.code)
	require.Contains(t, r.out, "→ CREATE INDEX")
}

// A pipeline may read either: the text, the JSON and the exit code have the same findings.
func TestDoctorSaysTheSameInTextAndJSON(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.DSN = durable(s.DSN)
		for _, test := range []struct {
			statement string
			worst     string
			code      int
			verdict   bool
		}{
			{"ALTER TABLE outbox_event RENAME TO elsewhere", "failure", 5, false},
			{"ALTER TABLE elsewhere RENAME TO outbox_event", "", 0, true},
			{"DROP INDEX idx_outbox_event_done", "warning", 4, true},
		} {
			if s.Kind == testdb.MySQL && strings.HasPrefix(test.statement, "DROP INDEX") {
				test.statement += " ON outbox_event"
			}
			_, err := s.ExecContext(t.Context(), test.statement)
			require.NoError(t, err)
			r := run(t, s.DSN, "doctor", "--json")
			require.Empty(t, r.err)
			var found struct {
				Verdict  *struct{ Summary string }
				Worst    string
				Findings []struct {
					Check, Level, Seen, Page string
					WayOut                   string `json:"way_out"`
				}
			}
			require.NoError(t, json.Unmarshal([]byte(r.out), &found), r.out)
			require.Equal(t, test.verdict, found.Verdict != nil)
			if s.Kind != testdb.Postgres || test.worst == "failure" { // the test's server has autovacuum off
				require.Equal(t, test.code, r.code)
			}
			if test.worst != "" && (s.Kind != testdb.Postgres || test.worst == "failure") {
				require.Equal(t, test.worst, found.Worst)
			}
			text := run(t, s.DSN, "doctor")
			require.Equal(t, r.code, text.code)
			require.Contains(t, text.out, "the worst finding is: "+found.Worst+"\n")
			require.Contains(t, text.out, "each check is explained in https://github.com/outboxkit/outbox-go/blob/main/docs/reference/doctor.md\n")
			for _, f := range found.Findings {
				require.Regexp(t, "(?m)^"+f.Level+" +"+f.Check+" ", text.out)
				require.True(t, strings.HasPrefix(f.Page, "docs/reference/doctor.md#"))
				if f.WayOut != "" {
					require.Contains(t, text.out, "→ "+f.WayOut+"\n")
				}
			}
		}
	})
}

func TestDoctorWithoutADatabaseFails(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://127.0.0.1:1/nowhere", "mysql://root@127.0.0.1:1/nowhere"} {
		r := run(t, dsn, "doctor", "--json")
		require.Equal(t, 1, r.code)
		require.Empty(t, r.out)
		var failed struct {
			Error    string
			ExitCode int `json:"exit_code"`
		}
		require.NoError(t, json.Unmarshal([]byte(r.err), &failed), r.err)
		require.Equal(t, 1, failed.ExitCode)
		require.Contains(t, failed.Error, "no connection to the database")
	}
}

func TestDoctorEndsWhenTheTableIsLocked(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[0]))
	tx, err := s.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE outbox_event IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	r := run(t, s.DSN, "doctor")
	require.Equal(t, 5, r.code)
	require.Regexp(t, `failure +table +the database did not answer within 15s\n +→ look for locks`, r.out)
}

func TestDoctorWatches(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	require.Contains(t, fails(t, 2, s.DSN, "doctor", "--watch", "--interval", "1ms"), "--interval is 1ms; the least is 1s")
	lines := func(args ...string) *bufio.Scanner {
		cmd, _, errOut := command(context.Background(), s.DSN, append([]string{"doctor", "--watch", "--interval", "1s"}, args...)...)
		cmd.Stdout = nil
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			_, _ = io.Copy(io.Discard, out)
			require.NoError(t, cmd.Wait(), errOut)
		})
		return bufio.NewScanner(out)
	}
	text, looks := lines(), lines("--json")
	await := func(what string) {
		t.Helper()
		for text.Scan() {
			require.NotRegexp(t, `^ok `, text.Text())
			if strings.Contains(text.Text(), what) {
				return
			}
		}
		require.Fail(t, "the watch ended", what)
	}
	await("Z  Well: no event is due.")
	late := envelope("late")
	late.OccurredAt = late.OccurredAt.Add(-time.Hour)
	late.AvailableAt = late.OccurredAt
	s.insert(t, late)
	await("Z  Late by 1 h")
	_, err := s.ExecContext(t.Context(), "DROP INDEX idx_outbox_event_due")
	require.NoError(t, err)
	await("→ CREATE INDEX")
	worst := ""
	for worst != "failure" && looks.Scan() {
		var look struct {
			At    time.Time
			Worst string
		}
		require.NoError(t, json.Unmarshal(looks.Bytes(), &look), looks.Text())
		require.NotZero(t, look.At)
		worst = look.Worst
	}
	require.Equal(t, "failure", worst)
}

func TestBenchMeasuresAndLeavesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		require.Contains(t, ok(t, s.DSN, "bench", "--dry-run"), "would create the table outbox_bench_")
		require.Contains(t, fails(t, 2, s.DSN, "bench"), "--yes")
		rates := answer(t, s.DSN, "bench", "--events", "60", "--yes")["rates"].([]any)
		require.Len(t, rates, 3)
		for _, r := range rates {
			require.Positive(t, r.(map[string]any)["events_per_second"])
		}
		tables := map[testdb.Kind]string{
			testdb.Postgres: "SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'outbox_bench%'",
			testdb.MySQL:    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'outbox_bench%'",
			testdb.SQLite:   "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'outbox_bench%'",
		}
		var n int
		require.NoError(t, s.QueryRowContext(t.Context(), tables[s.Kind]).Scan(&n))
		require.Zero(t, n)
	})
}

func TestAFileOfSQLiteIsCreatedOnlyWithItsTable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a file? #1.db")
	require.Contains(t, fails(t, 1, "sqlite:"+path, "stats"), "outbox schema create")
	require.NoFileExists(t, path)
	ok(t, "sqlite:"+path, "schema", "create")
	require.FileExists(t, path)
	ok(t, path, "stats")
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestOtherTablesAndFormsOfTheAddress(t *testing.T) {
	t.Parallel()
	postgres := testdb.Open(t, testdb.Main()[0])
	ok(t, "", "schema", "create", "--dsn", postgres.DSN, "--table", "orders_outbox")
	ok(t, postgres.DSN, "stats", "--table", "orders_outbox")
	require.Contains(t, fails(t, 1, postgres.DSN, "stats"), "outbox_event does not exist")
	mysql := testdb.Open(t, testdb.Main()[1])
	server, name, _ := strings.Cut(mysql.DSN, ")/")
	user, host, _ := strings.Cut(server, "@tcp(")
	ok(t, "mysql://"+user+"@"+host+"/"+strings.Split(name, "?")[0], "schema", "create")
	ok(t, "mariadb://"+user+"@"+host+"/"+strings.Split(name, "?")[0], "schema", "check")
	ok(t, mysql.DSN, "schema", "check")
}
