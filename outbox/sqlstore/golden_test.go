package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

const golden = "testdata/statements.golden"

var errRecorded = errors.New("only recorded")

// recorder records statements instead of running them.
type recorder struct{ text strings.Builder }

func (r *recorder) note(q string, args []any) error {
	fmt.Fprintf(&r.text, "%s\n  -- %d parameters\n", q, len(args))
	return errRecorded
}

func (r *recorder) ExecContext(_ context.Context, q string, args ...any) (sql.Result, error) {
	return nil, r.note(q, args)
}

func (r *recorder) QueryContext(_ context.Context, q string, args ...any) (*sql.Rows, error) {
	return nil, r.note(q, args)
}

func (r *recorder) BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error) {
	return nil, r.note("BEGIN", nil)
}

// idle records statements; none changes a row.
type idle struct{ *recorder }

func (r idle) ExecContext(_ context.Context, q string, args ...any) (sql.Result, error) {
	_ = r.note(q, args)
	return driver.RowsAffected(0), nil
}

// passing records statements whose INSERT is refused as a duplicate.
type passing struct{ *recorder }

func (p passing) ExecContext(_ context.Context, q string, args ...any) (sql.Result, error) {
	_ = p.note(q, args)
	if strings.HasPrefix(q, "INSERT") && !strings.Contains(q, "ON CONFLICT") {
		return nil, &mysql.MySQLError{Number: 1062}
	}
	return driver.RowsAffected(0), nil
}

// inTx is a transaction: it is no pool.
type inTx struct{ querier }

type querier interface {
	outbox.Execer
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func uniqueFor(kind testdb.Kind) *sqlstore.Store { return storeFor(kind, sqlstore.WithUniqueIndex()) }

// The text of every statement, so that a change to one is seen in review. Run with
// UPDATE_GOLDEN=1 to accept it. It omits what MySQL does in its own transactions.
func TestStatementsAreAsReviewed(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, kind := range []testdb.Kind{testdb.Postgres, testdb.MySQL, testdb.SQLite} {
		fmt.Fprintf(&got, "==== %s\n\n%s\n", kind, statementsOf(t, kind))
	}
	fmt.Fprintf(&got, "==== MySQL itself\n\n%s\n", statementsOfMySQL(t))
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// statementsOfMySQL are some of those that differ on a server that is known to be MySQL.
func statementsOfMySQL(t *testing.T) string {
	t.Helper()
	ctx, store, rec := t.Context(), sqlstore.MySQLItself(), &recorder{}
	for _, outcome := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeDelete} {
		fmt.Fprintf(&rec.text, "-- mark %s, several DueAt\n", outcome)
		_, err := store.Mark(ctx, rec, outcome, []outbox.Mark{{EventID: "a", DueAt: someTime}, {EventID: "b", DueAt: someTime.Add(time.Second)}})
		require.ErrorIs(t, err, errRecorded)
	}
	for _, leases := range [][]string{{"", ""}, {"node/1", "node/1"}, {"node/1", "node/2"}} {
		for _, outcome := range []outbox.Outcome{outbox.OutcomeDone, outbox.OutcomeDelete, outbox.OutcomeRetry} {
			fmt.Fprintf(&rec.text, "-- mark %s, leases %q\n", outcome, leases)
			_, err := store.Mark(ctx, rec, outcome, []outbox.Mark{
				{EventID: "a", Lease: leases[0], AvailableAt: someTime}, {EventID: "b", Lease: leases[1], AvailableAt: someTime},
			})
			require.ErrorIs(t, err, errRecorded)
		}
	}
	fmt.Fprintf(&rec.text, "-- renew\n")
	require.ErrorIs(t, store.Renew(ctx, rec, []outbox.Lease{{EventID: "a", Name: "node/1"}}), errRecorded)
	return rec.text.String()
}

func statementsOf(t *testing.T, kind testdb.Kind) string {
	t.Helper()
	ctx, store, rec := t.Context(), storeFor(kind), &recorder{}
	marks := []outbox.Mark{{EventID: "a", AvailableAt: someTime}, {EventID: "b", AvailableAt: someTime}, {EventID: "c", AvailableAt: someTime}}
	run := func(name string, err error) { require.ErrorIs(t, err, errRecorded, name) }
	section := func(name string) { fmt.Fprintf(&rec.text, "-- %s\n", name) }
	section("insert")
	run("insert", store.Insert(ctx, rec, events("e", 1), "", time.Time{}))
	section("insert two, leased")
	run("insert", store.Insert(ctx, rec, events("e", 2), "node/1", time.Now().Add(time.Hour)))
	section("insert two that differ")
	differ := events("e", 2)
	differ[1].AggregateID, differ[1].Headers = "o-2", map[string]string{"k": "v"}
	run("insert", store.Insert(ctx, rec, differ, "", time.Time{}))
	section("insert once")
	_, err := uniqueFor(kind).InsertOnce(ctx, rec, events("e", 1), "", time.Time{})
	run("insert once", err)
	section("insert once two, leased: the savepoint comes first")
	_, err = store.InsertOnce(ctx, passing{rec}, events("e", 2), "node/1", time.Now().Add(time.Hour))
	require.ErrorContains(t, err, "looking for events", "as no row was inserted")
	section("insert once with a unique key that is taken")
	keyed := events("e", 1)
	keyed[0].UniqueKey = "k"
	_, err = uniqueFor(kind).InsertOnce(ctx, passing{rec}, keyed, "node/1", time.Now().Add(time.Hour))
	require.ErrorContains(t, err, "looking for the event with a unique key")
	section("insert once the latest state of a unique key: the savepoint comes first")
	keyed[0].KeepLatest = true
	_, err = uniqueFor(kind).InsertOnce(ctx, inTx{passing{rec}}, keyed, "", time.Time{})
	require.ErrorContains(t, err, "replacing the event with a unique key")
	section("poll")
	_, err = store.Poll(ctx, rec, outbox.PollQuery{Now: someTime, Limit: 10})
	run("poll", err)
	section("poll behind a cursor, without recent rows")
	_, err = store.Poll(ctx, rec, outbox.PollQuery{
		Now: someTime, Limit: 10, CreatedBefore: someTime,
		After: outbox.Cursor{AvailableAt: someTime, CreatedAt: someTime, EventID: "a"},
	})
	run("poll", err)
	between := outbox.PollQuery{
		Now: someTime, Limit: 10, LeaseDuration: time.Minute,
		After: outbox.Cursor{AvailableAt: someTime, CreatedAt: someTime, EventID: "a"},
		Upto:  outbox.Cursor{AvailableAt: someTime, CreatedAt: someTime, EventID: "b"},
	}
	section("reach between two cursors")
	_, err = store.Reach(ctx, rec, between)
	run("reach", err)
	section("poll of fresh rows between two cursors")
	between.FreshOnly = true
	_, err = store.Poll(ctx, rec, between)
	run("poll", err)
	except := []outbox.EventKind{{AggregateType: "A", EventType: "T"}, {AggregateType: outbox.Global, EventType: "T"}}
	section("poll without some kinds")
	_, err = store.Poll(ctx, rec, outbox.PollQuery{Now: someTime, Limit: 10, Except: except})
	run("poll", err)
	section("claim")
	_, err = store.Claim(ctx, rec, outbox.ClaimQuery{Now: someTime, Limit: 10, Lease: "node/1", LeaseDuration: time.Minute})
	run("claim", err)
	section("claim behind a cursor")
	_, err = store.Claim(ctx, rec, outbox.ClaimQuery{
		Now: someTime, Limit: 10, Lease: "node/1", LeaseDuration: time.Minute, FreshOnly: true,
		After: outbox.Cursor{AvailableAt: someTime, CreatedAt: someTime, EventID: "a"},
	})
	run("claim", err)
	section("claim of fresh rows")
	_, err = store.Claim(ctx, rec, outbox.ClaimQuery{Now: someTime, Limit: 10, Lease: "node/1", LeaseDuration: time.Minute, FreshOnly: true})
	run("claim", err)
	section("claim without some kinds")
	_, err = store.Claim(ctx, rec, outbox.ClaimQuery{Now: someTime, Limit: 10, Lease: "node/1", LeaseDuration: time.Minute, FreshOnly: true, Except: except})
	run("claim", err)
	section("claim of rows between two cursors whose lease expired")
	_, err = store.Claim(ctx, rec, outbox.ClaimQuery{
		Now: someTime, Limit: 10, Lease: "node/1", LeaseDuration: time.Minute, After: between.After, Upto: between.Upto, ExpiredOnly: true,
	})
	run("claim", err)
	section("claim of rows that move")
	_, err = store.Claim(ctx, rec, outbox.ClaimQuery{Now: someTime, Limit: 10, Lease: "node/1", LeaseDuration: time.Minute, FreshOnly: true, Move: true})
	run("claim", err)
	section("runs")
	_, err = store.ReadRuns(ctx, rec, outbox.RunQuery{Now: someTime, LeaseDuration: time.Minute, Length: 5, Limit: 10})
	run("runs", err)
	section("takeovers of runs, skipping dead rows, without some kinds")
	_, err = store.ReadRuns(ctx, rec, outbox.RunQuery{
		Now: someTime, CreatedBefore: someTime, LeaseDuration: time.Minute, Length: 5, Limit: 10, Takeovers: true, SkipDead: true, Except: except,
		After: outbox.EventKey{AggregateType: "A", ID: "1"},
	})
	run("runs", err)
	section("events that begin their keys")
	_, err = store.BeginKeys(ctx, rec, []string{"a", "b"})
	run("begin", err)
	section("events of tenants")
	_, err = store.ReadTenants(ctx, rec, outbox.TenantQuery{Now: someTime, Length: 5, Limit: 10, After: "t", Except: except})
	run("tenants", err)
	section("is the key index there?")
	run("check", store.CheckRuns(ctx, rec))
	section("next due")
	_, err = store.NextDue(ctx, rec, someTime)
	run("next due", err)
	section("claim of some events")
	_, err = store.Claim(ctx, rec, outbox.ClaimQuery{Now: someTime, Limit: 2, Lease: "me/3", LeaseDuration: time.Minute, EventIDs: []string{"a", "b"}})
	run("claim", err)
	under := func(leases ...string) []outbox.Mark {
		for i := range marks {
			marks[i].Lease = leases[i]
		}
		return marks
	}
	for outcome := outbox.OutcomeDone; outcome <= outbox.OutcomeReleased; outcome++ {
		section("mark " + outcome.String())
		_, err = store.Mark(ctx, rec, outcome, under("", "", ""))
		run("mark", err)
		section("mark " + outcome.String() + ", one lease")
		_, err = store.Mark(ctx, rec, outcome, under("node/1", "node/1", "node/1"))
		run("mark", err)
		section("mark " + outcome.String() + ", several leases")
		_, err = store.Mark(ctx, rec, outcome, under("node/1", "node/2", "node/1"))
		run("mark", err)
		for _, name := range []string{"the same", "several"} {
			apart := map[string]time.Duration{"several": time.Second}[name]
			due := []outbox.Mark{{EventID: "a", AvailableAt: someTime, DueAt: someTime}, {EventID: "b", AvailableAt: someTime, DueAt: someTime.Add(apart)}}
			section("mark " + outcome.String() + ", " + name + " DueAt")
			_, err = store.Mark(ctx, rec, outcome, due)
			run("mark", err)
		}
	}
	for n := range marks {
		marks[n].Attempts = 1
	}
	section("mark retry, all for the first time")
	_, err = store.Mark(ctx, rec, outbox.OutcomeRetry, marks)
	run("mark", err)
	marks[1].Attempts = 2
	section("mark retry, some for the second time")
	_, err = store.Mark(ctx, rec, outbox.OutcomeRetry, marks)
	run("mark", err)
	section("split")
	rows := events("s", 2) // of one time, as the rows of an event are
	_, err = store.Split(ctx, recordedDB(t, rec), outbox.OutcomeDone, []outbox.Split{{Mark: marks[0], Rows: []outbox.ListenerRow{
		{Envelope: rows[0], Outcome: outbox.OutcomeRetry, Mark: marks[1]}, {Envelope: rows[1], Outcome: outbox.OutcomeDead, Mark: marks[2]},
	}}})
	require.NoError(t, err)
	section("mark that leaves rows alone")
	_, err = store.Mark(ctx, idle{rec}, outbox.OutcomeDone, marks)
	run("states", err)
	section("complete with DueAt")
	_, err = store.Complete(ctx, rec, outbox.OutcomeDone, outbox.Mark{EventID: "a", DueAt: someTime})
	run("complete", err)
	section("rows under leases")
	_, err = store.Leased(ctx, rec, []string{"node/1", "node/2"})
	run("leased", err)
	section("renew, one lease")
	run("renew", store.Renew(ctx, rec, []outbox.Lease{{EventID: "a", Name: "node/1"}, {EventID: "b", Name: "node/1"}}))
	section("renew, several leases")
	run("renew", store.Renew(ctx, rec, []outbox.Lease{{EventID: "a", Name: "node/1"}, {EventID: "b", Name: "node/2"}}))
	section("ranges")
	_, err = store.Ranges(ctx, rec)
	run("ranges", err)
	section("set the ranges of a table that has none")
	_, err = store.SetRanges(ctx, idle{rec}, "", someTime, outbox.Ranges{Version: "node/1"})
	require.NoError(t, err)
	section("set the ranges")
	_, err = store.SetRanges(ctx, rec, "node/1", someTime, outbox.Ranges{Version: "node/2"})
	run("set ranges", err)
	section("set the hold of the table, which waits for the log")
	_, err = store.SetRanges(ctx, rec, "node/2", someTime, outbox.Ranges{Version: "node/3", Ranges: []outbox.Range{{Name: "node", Until: someTime}}})
	run("set the hold", err)
	shared := outbox.EventKind{AggregateType: "A", EventType: "T"}
	section("shares of a kind")
	_, err = store.Shares(ctx, rec, shared)
	run("shares", err)
	section("shares of all kinds")
	_, err = store.AllShares(ctx, rec)
	run("shares of all kinds", err)
	section("set the shares of a kind that has none")
	_, err = store.SetShares(ctx, idle{rec}, shared, "", outbox.Shares{Version: "node/1"})
	require.NoError(t, err)
	section("set the shares of a kind")
	_, err = store.SetShares(ctx, rec, shared, "node/1", outbox.Shares{Version: "node/2"})
	run("set shares", err)
	section("record a change in the audit log")
	run("record a change", store.RecordChange(ctx, rec, outbox.AuditEntry{ID: "01", At: someTime}, time.Hour))
	section("forget entries of the audit log")
	_, err = store.ForgetChanges(ctx, rec, 10_000, 500)
	run("forget entries", err)
	section("the audit log")
	_, err = store.Audit(ctx, rec, "", 10)
	run("the audit log", err)
	_, err = store.Audit(ctx, rec, "01", 10)
	run("the audit log", err)
	section("replays of delivered events")
	_, err = store.Replays(ctx, rec)
	run("replays", err)
	section("a replay starts")
	_, err = store.SetReplay(ctx, recordedDB(t, rec), "", outbox.ReplayRow{Name: "r", Version: "1", Value: "{}"}, nil)
	require.NoError(t, err)
	section("a step of a replay")
	_, err = store.SetReplay(ctx, recordedDB(t, rec), "1", outbox.ReplayRow{Name: "r", Version: "2", Value: "{}"}, events("r", 2))
	require.NoError(t, err)
	section("a replay is deleted")
	_, err = store.SetReplay(ctx, rec, "2", outbox.ReplayRow{Name: "r", Version: "3"}, nil)
	run("deletion of a replay", err)
	section("delivered events")
	q := outbox.DeliveredQuery{AggregateType: "A", EventTypes: []outbox.EventType{"T", "U"}, AggregateID: "1", TenantID: "t", AfterDoneAt: someTime, Until: someTime, Look: 10, Limit: 10}
	_, err = store.Delivered(ctx, rec, q)
	run("delivered", err)
	section("delivered events behind a place")
	q.AfterEventID = "a"
	_, err = store.Delivered(ctx, rec, q)
	run("delivered", err)
	section("events that a replay added")
	_, err = store.Added(ctx, rec, []string{"a", "b"})
	run("added", err)
	section("notify")
	run("notify", store.Notify(ctx, rec, "outbox_event"))
	section("listen")
	run("listen", store.Listen(ctx, rec, "outbox_event", nil))
	pair := outbox.EventKind{AggregateType: "A", EventType: "T"}
	section("pause")
	run("pause", store.Pause(ctx, rec, outbox.Pause{Kind: pair, Since: someTime}))
	section("pause until a time")
	run("pause", store.Pause(ctx, rec, outbox.Pause{Kind: pair, Since: someTime, Until: someTime}))
	section("pause because a listener asks")
	require.NoError(t, store.Pause(ctx, idle{rec}, outbox.Pause{Kind: pair, Since: someTime, Until: someTime, Automatic: true}))
	section("resume")
	run("resume", store.Resume(ctx, rec, pair, ""))
	section("pause of a key")
	require.NoError(t, store.Pause(ctx, idle{rec}, outbox.Pause{Kind: pair, AggregateID: "1", Since: someTime, Until: someTime, Automatic: true}))
	section("resume a key")
	run("resume", store.Resume(ctx, rec, pair, "1"))
	section("paused")
	_, err = store.Paused(ctx, rec)
	run("paused", err)
	section("purge")
	_, err = store.Purge(ctx, idle{rec}, outbox.PurgeQuery{Before: someTime, Limit: 10})
	if kind != testdb.MySQL {
		require.NoError(t, err)
	}
	section("purge by age")
	_, err = store.Purge(ctx, rec, outbox.PurgeQuery{Before: someTime, Limit: 10, ByAge: true})
	run("purge", err)
	kinds := []outbox.EventKind{{AggregateType: "A", EventType: "T"}, {AggregateType: outbox.Global, EventType: "U"}}
	section("purge of some kinds")
	_, err = store.Purge(ctx, rec, outbox.PurgeQuery{Before: someTime, Limit: 10, Status: outbox.StatusDone, Only: kinds, Since: someTime})
	run("purge", err)
	section("purge by age of all but some kinds")
	_, err = store.Purge(ctx, rec, outbox.PurgeQuery{Before: someTime, Limit: 10, ByAge: true, Except: kinds})
	run("purge", err)
	section("stats")
	_, err = store.Stats(ctx, rec, someTime, nil)
	run("stats", err)
	section("stats while kinds are paused")
	_, err = store.Stats(ctx, rec, someTime, kinds)
	run("stats", err)
	section("due events by kind")
	_, err = store.DueKinds(ctx, rec, outbox.DueKindsQuery{Now: someTime})
	run("due kinds", err)
	section("due events by kind, with limits")
	_, err = store.DueKinds(ctx, rec, outbox.DueKindsQuery{Now: someTime, Except: kinds[:1], Limits: []outbox.DueLimit{{Kind: kinds[0], Before: someTime}, {Kind: kinds[1], Before: someTime}}})
	run("due kinds", err)
	section("dead letters")
	_, err = store.QueryDead(ctx, rec, outbox.DeadRowsQuery{
		DeadFilter: outbox.DeadFilter{EventType: "T", AggregateType: "A", Since: someTime, Until: someTime},
		Limit:      10, AfterDiedAt: someTime, AfterEventID: "a", Listed: true,
	})
	run("dead letters", err)
	section("dead letters of some ids")
	_, err = store.QueryDead(ctx, rec, outbox.DeadRowsQuery{
		DeadFilter: outbox.DeadFilter{EventIDs: []string{"a", "b"}, AggregateID: "1", TenantID: "t"}, Limit: 10,
	})
	run("dead letters", err)
	section("dead letter")
	_, err = store.GetDead(ctx, rec, "a")
	run("dead letter", err)
	section("count dead letters")
	_, err = store.CountDead(ctx, rec, outbox.DeadFilter{})
	run("count", err)
	takeBacks(t, kind, rec)
	section("replay")
	_, err = store.ReplayDead(ctx, rec, []string{"a"}, someTime, outbox.StatusNew)
	run("replay", err)
	section("delete dead letters")
	_, err = store.DeleteDead(ctx, rec, []string{"a"}, outbox.DeletedBy+"1", someTime)
	run("delete", err)
	section("delete dead letters for good")
	_, err = store.DeleteDead(ctx, rec, []string{"a"}, "", time.Time{})
	run("delete", err)
	section("restore dead letters")
	deleted := outbox.DeletedQuery{By: outbox.DeletedBy + "1", Since: someTime, Until: someTime.Add(time.Millisecond), Limit: 10}
	_, err = store.RestoreDead(ctx, rec, deleted)
	run("restore", err)
	section("count deleted dead letters")
	_, err = store.CountDeleted(ctx, rec, deleted)
	run("count", err)
	statementsForOperators(t, kind, rec)
	return rec.text.String()
}

// takeBacks are the statements that change events that wait. Without a table only the first statement of
// each is recorded.
func takeBacks(t *testing.T, kind testdb.Kind, rec *recorder) {
	t.Helper()
	byKey := outbox.Waiting{Kind: outbox.EventKind{AggregateType: "A", EventType: "T"}, AggregateID: "1", DueAfter: someTime, DueBefore: someTime}
	content := outbox.Envelope{Payload: outbox.RawJSON("{}"), Headers: map[string]string{"k": "v"}}
	for _, c := range []struct {
		name   string
		which  outbox.Waiting
		change outbox.Change
		tx     outbox.Execer
	}{
		{"cancel events that wait", outbox.Waiting{EventIDs: []string{"a", "b"}}, outbox.Change{Cancel: true}, inTx{rec}},
		{"reschedule events that wait", outbox.Waiting{EventIDs: []string{"a"}}, outbox.Change{AvailableAt: someTime}, inTx{rec}},
		{"replace an event that waits", outbox.Waiting{EventIDs: []string{"a"}}, outbox.Change{Content: &content}, inTx{rec}},
		{"cancel events of a kind and an aggregate id", byKey, outbox.Change{Cancel: true}, inTx{rec}},
		{"in the pool, reschedule events of a kind and an aggregate id", byKey, outbox.Change{AvailableAt: someTime}, rec},
	} {
		fmt.Fprintf(&rec.text, "-- %s\n", c.name)
		_, err := storeFor(kind, sqlstore.WithKeyIndex()).TakeBack(t.Context(), c.tx, c.which, c.change)
		require.ErrorIs(t, err, errRecorded)
	}
}

func statementsForOperators(t *testing.T, kind testdb.Kind, rec *recorder) {
	t.Helper()
	ctx, store := t.Context(), storeFor(kind, sqlstore.WithSearchIndex())
	place := outbox.Cursor{AvailableAt: someTime, CreatedAt: someTime, EventID: "a"}
	narrow := outbox.EventFilter{EventType: "T", AggregateType: "A", TenantID: "t", Since: someTime, Until: someTime}
	for _, statuses := range [][]outbox.Status{nil, {outbox.StatusNew, outbox.StatusRetry}, {outbox.StatusDone}, {outbox.StatusDead}} {
		f := outbox.EventFilter{Statuses: statuses}
		fmt.Fprintf(&rec.text, "-- find events %v\n", statuses)
		_, err := store.FindEvents(ctx, rec, outbox.EventQuery{EventFilter: f, Limit: 10})
		require.ErrorIs(t, err, errRecorded)
		fmt.Fprintf(&rec.text, "-- find events %v behind a place, with all filters\n", statuses)
		after := f.Order().Next(place)
		f = narrow
		f.Statuses = statuses
		_, err = store.FindEvents(ctx, rec, outbox.EventQuery{EventFilter: f, Limit: 10, After: after})
		require.ErrorIs(t, err, errRecorded)
	}
	section := func(name string) { fmt.Fprintf(&rec.text, "-- %s\n", name) }
	section("find events of an aggregate id")
	f := outbox.EventFilter{AggregateID: "1", Statuses: []outbox.Status{outbox.StatusDone}}
	_, err := store.FindEvents(ctx, rec, outbox.EventQuery{EventFilter: f, Limit: 10, After: outbox.ByEventID.Next(place)})
	require.ErrorIs(t, err, errRecorded)
	section("find leased events by their due time and error")
	f = outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusNew, outbox.StatusRetry}, ErrorText: "e", Leased: true, DueAfter: someTime, DueBefore: someTime}
	_, err = store.FindEvents(ctx, rec, outbox.EventQuery{EventFilter: f, Limit: 10})
	require.ErrorIs(t, err, errRecorded)
	section("find events by the beginning of the id: first the collation, where it matters")
	_, err = store.FindEvents(ctx, rec, outbox.EventQuery{EventFilter: outbox.EventFilter{IDPrefix: "a"}, Limit: 10, After: outbox.ByEventID.Next(place)})
	require.ErrorIs(t, err, errRecorded)
	section("event")
	_, err = store.FindEvent(ctx, rec, "a")
	require.ErrorIs(t, err, errRecorded)
	section("throughput")
	_, err = store.Throughput(ctx, rec, someTime)
	require.ErrorIs(t, err, errRecorded)
	section("report a node")
	require.ErrorIs(t, store.Announce(ctx, rec, outbox.Node{Owner: "node"}, time.Minute), errRecorded)
	section("nodes that died")
	require.ErrorIs(t, store.Announce(ctx, idle{rec}, outbox.Node{Owner: "node"}, time.Minute), errRecorded)
	section("withdraw a node")
	require.ErrorIs(t, store.Withdraw(ctx, rec, "node"), errRecorded)
	section("nodes")
	_, err = store.Nodes(ctx, rec)
	require.ErrorIs(t, err, errRecorded)
}
