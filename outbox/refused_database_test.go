package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// choosyDatabases refuse a text of the listener below, or an outcome with any text. An
// outcome that each form of is refused is one of an event "never".
var choosyDatabases = []struct {
	name   string
	kind   testdb.Kind
	params []testdb.Option
	setUp  []string
	want   string // the text that is stored in the end
}{
	{"connection without four-byte characters", testdb.MySQL, []testdb.Option{testdb.Param("charset", "utf8")}, nil, escapedFailure},
	{"narrower column", testdb.MySQL, nil, []string{"ALTER TABLE outbox_event MODIFY last_error VARCHAR(10)"}, ""},
	{"narrower column", testdb.Postgres, nil, []string{"ALTER TABLE outbox_event ALTER last_error TYPE VARCHAR(10)"}, ""},
	{"check of the text", testdb.MySQL, nil, []string{"ALTER TABLE outbox_event ADD CHECK (last_error NOT LIKE '%failed%')"}, ""},
	{"check of the text", testdb.Postgres, nil, []string{"ALTER TABLE outbox_event ADD CHECK (last_error NOT LIKE '%failed%')"}, ""},
	{"trigger against the text", testdb.SQLite, nil, []string{
		"CREATE TRIGGER no_texts BEFORE UPDATE ON outbox_event WHEN NEW.last_error LIKE '%failed%' BEGIN SELECT RAISE(ABORT, 'no texts'); END",
	}, ""},
	{"trigger against the text", testdb.MySQL, nil, []string{
		"CREATE TRIGGER no_texts BEFORE UPDATE ON outbox_event FOR EACH ROW IF NEW.last_error LIKE '%failed%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no texts'; END IF",
	}, ""},
	{"trigger against the text", testdb.Postgres, nil, []string{
		"CREATE FUNCTION no_texts() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN IF NEW.last_error LIKE '%failed%' THEN RAISE 'no texts'; END IF; RETURN NEW; END $$",
		"CREATE TRIGGER no_texts BEFORE UPDATE ON outbox_event FOR EACH ROW EXECUTE FUNCTION no_texts()",
	}, ""},
}

// neverEnds keeps the events "never" from each end.
var neverEnds = map[testdb.Kind][]string{
	testdb.Postgres: {"ALTER TABLE outbox_event ADD CHECK (event_id NOT LIKE 'never%' OR status = 0)"},
	testdb.MySQL:    {"ALTER TABLE outbox_event ADD CHECK (event_id NOT LIKE 'never%' OR status = 0)"},
	testdb.SQLite: {
		"CREATE TRIGGER never BEFORE UPDATE ON outbox_event WHEN NEW.event_id LIKE 'never%' AND NEW.status <> 0 BEGIN SELECT RAISE(ABORT, 'never'); END",
	},
}

const (
	failure        = "it failed, the receiver says: \U0001F600, 今天不行"
	escapedFailure = `it failed, the receiver says: \U0001f600, \u4eca\u5929\u4e0d\u884c`
)

// onChoosy has events of all outcomes delivered: with a text that the database refuses,
// and with outcomes that it refuses in any form, which hold up nothing and are not
// delivered again.
func onChoosy(t *testing.T, db *testdb.DB, setUp []string, want string) {
	e := onDatabase(t, db, outbox.Config{Mode: outbox.MultiNode{
		Dispatch: outbox.DispatchOptions{MaxAttempts: 3},
		Poll:     outbox.PollOptions{Interval: 50 * time.Millisecond},
	}, RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond)}, func(env outbox.Envelope) error {
		if strings.HasPrefix(env.EventID, "bad") {
			return errors.New(failure)
		}
		return nil
	})
	for _, statement := range append(setUp, neverEnds[db.Kind]...) {
		e.exec(statement)
	}
	require.NoError(t, e.Start(t.Context()))
	const n = 30
	for i := range n {
		e.write(said(fmt.Sprint("bad-", i)), said(fmt.Sprint("never-", i)), said(fmt.Sprint("good-", i)))
	}
	for i := range n {
		e.eventually(func() bool { return e.event(fmt.Sprint("good-", i)).Status == outbox.StatusDone }, "a good event is held up")
		e.eventually(func() bool { return e.event(fmt.Sprint("bad-", i)).Status == outbox.StatusDead }, "an event without text is not dead")
		bad := e.event(fmt.Sprint("bad-", i))
		require.Equal(t, want, bad.LastError)
		require.Equal(t, 3, bad.Attempts)
		require.Equal(t, outbox.StatusNew, e.event(fmt.Sprint("never-", i)).Status)
		require.Equal(t, 1, e.got.of(fmt.Sprint("never-", i)))
	}
	require.ErrorContains(t, e.Close(context.Background()), fmt.Sprintf("%d outcomes could not be stored", n))
}

func TestOutcomesThatADatabaseRefusesAreStoredWithoutWhatItRefuses(t *testing.T) {
	t.Parallel()
	for _, target := range adaptertest.Main() {
		for _, tc := range choosyDatabases {
			if tc.kind != testdb.Kind(strings.Split(target.Name, "/")[0]) {
				continue
			}
			t.Run(target.Name+" "+tc.name, func(t *testing.T) {
				t.Parallel()
				onChoosy(t, testdb.Open(t, target, tc.params...), tc.setUp, tc.want)
			})
		}
	}
}

// A database in LATIN1, whose server refuses what it cannot convert.
func TestOutcomesWithTextsThatLATIN1Lacks(t *testing.T) {
	t.Parallel()
	drivers := testdb.Via(sqltx.Open, testdb.Drivers())
	pq := slices.IndexFunc(drivers, func(target testdb.Target) bool { return target.Name == "postgres/pq" })
	db := testdb.Open(t, drivers[pq])
	address, err := url.Parse(db.DSN)
	require.NoError(t, err)
	params := address.Query()
	name := params.Get("search_path") + "_latin1"
	params.Del("search_path")
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name+" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") })
	latin1 := *db
	address.Path, address.RawQuery = "/"+name, params.Encode()
	latin1.DSN = address.String()
	onChoosy(t, latin1.Reopen(t), nil, escapedFailure)
}

// updatesSkipped are triggers that make nothing of the updates of an event "never".
var updatesSkipped = map[testdb.Kind][]string{
	testdb.Postgres: {
		"CREATE FUNCTION skip() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
		"CREATE TRIGGER skip BEFORE UPDATE ON outbox_event FOR EACH ROW WHEN (NEW.event_id LIKE 'never%' AND NEW.status > 0) EXECUTE FUNCTION skip()",
	},
	testdb.MySQL: {
		"CREATE TRIGGER skip BEFORE UPDATE ON outbox_event FOR EACH ROW IF NEW.event_id LIKE 'never%' AND NEW.status > 0 THEN" +
			" SET NEW.status = OLD.status, NEW.done_at = OLD.done_at, NEW.attempts = OLD.attempts, NEW.available_at = OLD.available_at," +
			" NEW.last_error = OLD.last_error, NEW.locked_by = OLD.locked_by, NEW.locked_at = OLD.locked_at; END IF",
	},
	testdb.SQLite: {
		"CREATE TRIGGER skip BEFORE UPDATE ON outbox_event WHEN NEW.event_id LIKE 'never%' AND NEW.status > 0 BEGIN SELECT RAISE(IGNORE); END",
	},
}

func (e *databaseEngine) stats() outbox.Stats {
	e.t.Helper()
	stats, err := e.Stats(e.t.Context())
	require.NoError(e.t, err)
	return stats
}

// A trigger that skips an update raises no error: the event is not delivered at each poll.
func TestOutcomesThatATriggerSkipsAreNotDeliveredAtEachPoll(t *testing.T) {
	t.Parallel()
	for _, target := range adaptertest.Main() {
		for name, mode := range map[string]outbox.Mode{
			"single node": outbox.SingleNode{Poll: outbox.PollOptions{Interval: 10 * time.Millisecond}},
			"multi node":  outbox.MultiNode{Poll: outbox.PollOptions{Interval: 10 * time.Millisecond}},
		} {
			t.Run(target.Name+" "+name, func(t *testing.T) {
				t.Parallel()
				e := onDatabase(t, testdb.Open(t, target), outbox.Config{Mode: mode}, func(env outbox.Envelope) error {
					if env.EventID == "never-failed" {
						return errors.New(failure)
					}
					return nil
				})
				for _, statement := range updatesSkipped[e.db.Kind] {
					e.exec(statement)
				}
				require.NoError(t, e.Start(t.Context()))
				e.write(said("never-done"), said("never-failed"))
				for i := range 20 {
					e.write(said(fmt.Sprint("good-", i)))
					e.eventually(func() bool { return e.event(fmt.Sprint("good-", i)).Status == outbox.StatusDone }, "a good event is held up")
					polled := e.stats().LastPoll
					e.eventually(func() bool { return e.stats().LastPoll.After(polled) }, "the poller does not poll")
				}
				for _, id := range []string{"never-done", "never-failed"} {
					require.Equal(t, outbox.StatusNew, e.event(id).Status)
					require.Equal(t, 1, e.got.of(id))
				}
				require.ErrorContains(t, e.Close(context.Background()), "2 outcomes could not be stored")
			})
		}
	}
}
