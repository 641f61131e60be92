package doctor_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// broken is a set-up with which something fails or gets lost.
type broken struct {
	name       string
	kinds      string // of databases
	statements []string
	check      string
	level      doctor.Level
	seen, way  string
}

var brokenSetups = []broken{
	{"an own column that must not be NULL", "postgres sqlite", []string{"ALTER TABLE outbox_event ADD must INTEGER NOT NULL DEFAULT 0", "ALTER TABLE outbox_event ALTER must DROP DEFAULT"}, "rehearsal", doctor.Failure, "cannot write an event", "DEFAULT"},
	{"an own column that must not be NULL", "mysql", []string{"ALTER TABLE outbox_event ADD must INT NOT NULL"}, "table", doctor.Failure, "doesn't have a default value", "DEFAULT"},
	{"a trigger that fails", "postgres", []string{"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'", "CREATE TRIGGER t BEFORE UPDATE ON outbox_event FOR EACH ROW EXECUTE FUNCTION refuse()"}, "rehearsal", doctor.Failure, "cannot claim it", "triggers"},
	{"a trigger that drops rows", "postgres", []string{"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'", "CREATE TRIGGER t BEFORE INSERT ON outbox_event FOR EACH ROW EXECUTE FUNCTION refuse()"}, "rehearsal", doctor.Failure, "the row that was just written is not there", "triggers"},
	{"a trigger that skips updates", "postgres", []string{"CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'", "CREATE TRIGGER t BEFORE UPDATE ON outbox_event FOR EACH ROW EXECUTE FUNCTION skip()"}, "rehearsal", doctor.Failure, "cannot claim it", "triggers"},
	{"a trigger that skips deliveries", "postgres", []string{"CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'", "CREATE TRIGGER t BEFORE UPDATE ON outbox_event FOR EACH ROW WHEN (NEW.status = 1) EXECUTE FUNCTION skip()"}, "rehearsal", doctor.Failure, "cannot store that it was delivered", "triggers"},
	{"a rule that skips updates", "postgres", []string{"CREATE RULE skip AS ON UPDATE TO outbox_event WHERE NEW.status = 2 DO INSTEAD NOTHING"}, "rehearsal", doctor.Failure, "cannot", "triggers"},
	{"a trigger that skips deliveries", "mysql", []string{"CREATE TRIGGER t BEFORE UPDATE ON outbox_event FOR EACH ROW IF NEW.status = 1 THEN SET NEW.status = OLD.status, NEW.done_at = OLD.done_at, NEW.locked_by = OLD.locked_by, NEW.locked_at = OLD.locked_at; END IF"}, "rehearsal", doctor.Failure, "cannot store that it was delivered", "triggers"},
	{"a trigger that skips deliveries", "sqlite", []string{"CREATE TRIGGER t BEFORE UPDATE ON outbox_event WHEN NEW.status = 1 BEGIN SELECT RAISE(IGNORE); END"}, "rehearsal", doctor.Failure, "cannot store that it was delivered", "triggers"},
	{"a trigger that fails", "mysql", []string{"CREATE TRIGGER t BEFORE UPDATE ON outbox_event FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'"}, "rehearsal", doctor.Failure, "cannot store that its delivery failed", "triggers"},
	{"a trigger that fails", "sqlite", []string{"CREATE TRIGGER t BEFORE DELETE ON outbox_event BEGIN SELECT RAISE(ABORT, 'no'); END"}, "rehearsal", doctor.Failure, "cannot delete it", "triggers"},
	{"a short column", "postgres", []string{"ALTER TABLE outbox_event ALTER aggregate_id TYPE varchar(20)"}, "rehearsal", doctor.Failure, "cannot write an event", "schema print"},
	{"a short column", "mysql", []string{"ALTER TABLE outbox_event MODIFY last_error VARCHAR(50)"}, "rehearsal", doctor.Failure, "cannot store that its delivery failed", "schema print"},
	{"a short payload", "mysql", []string{"ALTER TABLE outbox_event MODIFY payload VARCHAR(200) NOT NULL"}, "rehearsal", doctor.Failure, "cannot write an event", "schema print"},
	{"a narrow character set", "mysql", []string{"ALTER TABLE outbox_event MODIFY last_error TEXT CHARACTER SET latin1"}, "rehearsal", doctor.Failure, "cannot store that its delivery failed", "utf8mb4"},
	{"a control table that is full of checks", "postgres", []string{"ALTER TABLE outbox_event_control ADD CONSTRAINT no CHECK (kind <> 'node')"}, "rehearsal", doctor.Failure, "cannot report a process", "constraints"},
	{"times without a zone", "postgres", []string{"ALTER TABLE outbox_event ALTER available_at TYPE timestamp"}, "columns", doctor.Failure, "available_at of outbox_event is timestamp without time zone", "timestamptz"},
	{"times without fractions", "mysql", []string{"ALTER TABLE outbox_event MODIFY created_at DATETIME NOT NULL"}, "columns", doctor.Warning, "created_at of outbox_event is datetime", "DATETIME(6)"},
	{"a table that a crash empties", "postgres", []string{"ALTER TABLE outbox_event SET UNLOGGED"}, "storage", doctor.Failure, "UNLOGGED", "SET LOGGED"},
	{"full pages", "postgres", []string{"ALTER TABLE outbox_event SET (fillfactor = 100)"}, "storage", doctor.Note, "fillfactor is 100", "fillfactor = 50"},
	{"an index on other columns", "postgres", []string{"DROP INDEX idx_outbox_event_due", "CREATE INDEX idx_outbox_event_due ON outbox_event (available_at)"}, "indexes", doctor.Failure, "is on other columns", "CREATE INDEX"},
	{"an index on other columns", "mysql", []string{"ALTER TABLE outbox_event DROP KEY idx_outbox_event_due, ADD KEY idx_outbox_event_due (available_at)"}, "indexes", doctor.Failure, "is on other columns", "ADD KEY"},
	{"an index on other columns", "sqlite", []string{"DROP INDEX idx_outbox_event_due", "CREATE INDEX idx_outbox_event_due ON outbox_event (available_at)"}, "indexes", doctor.Failure, "is on other columns", "CREATE INDEX"},
}

func TestABrokenSetupIsFoundWithItsWayOut(t *testing.T) {
	t.Parallel()
	for _, b := range brokenSetups {
		for _, target := range testdb.Main() {
			if !strings.Contains(b.kinds, string(target.Kind)) {
				continue
			}
			t.Run(b.name+"/"+target.Name, func(t *testing.T) {
				t.Parallel()
				w := admit(t, testdb.Open(t, target))
				statements := b.statements
				if target.Kind == testdb.SQLite && strings.HasPrefix(statements[0], "ALTER TABLE outbox_event ADD must") { // it cannot drop a default
					statements = []string{"CREATE TRIGGER must BEFORE INSERT ON outbox_event BEGIN SELECT RAISE(ABORT, 'NOT NULL constraint failed: outbox_event.must'); END"}
				}
				w.run(t, statements...)
				if b.check == "table" && !w.IsMariaDB(t) { // MySQL refuses a row, not a statement without rows
					b.check = "rehearsal"
				}
				found := w.requireFinding(t, b.check, b.level, b.seen)
				require.Contains(t, found.WayOut, b.way)
				var rows int
				require.NoError(t, w.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event").Scan(&rows))
				require.Zero(t, rows, "what the rehearsal wrote is rolled back")
			})
		}
	}
}

// As a user who may only read, or within limits or a policy of its own.
func TestAUserWithoutRightsIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		grants []string
		check  string
		seen   string
		way    string
	}{
		"no insert": {[]string{"GRANT SELECT ON outbox_event, outbox_event_control TO %s"}, "table", "permission denied", "GRANT"},
		"no update": {[]string{"GRANT SELECT, INSERT, DELETE ON outbox_event, outbox_event_control TO %s"}, "rehearsal", "cannot claim it", "GRANT"},
		"no delete": {[]string{"GRANT SELECT, INSERT, UPDATE ON outbox_event, outbox_event_control TO %s"}, "rehearsal", "cannot delete it", "GRANT"},
		"no policy": {[]string{"GRANT ALL ON outbox_event, outbox_event_control TO %s", "ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY"}, "rehearsal", "row-level security", "policy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := admit(t, testdb.Open(t, testdb.Main()[0]))
			role := fmt.Sprintf("doctor_%s_%d", strings.ReplaceAll(name, " ", "_"), time.Now().UnixNano())
			var schema string
			require.NoError(t, w.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
			w.run(t, "CREATE ROLE "+role, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
			t.Cleanup(func() {
				for _, s := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
					_, err := w.Exec(s) //nolint:noctx // the test's context has ended.
					require.NoError(t, err)
				}
			})
			for _, grant := range test.grants {
				w.run(t, strings.ReplaceAll(grant, "%s", role))
			}
			w.over(t, w.Reopen(t, testdb.Param("role", role)).DB)
			found := w.requireFinding(t, test.check, doctor.Failure, test.seen)
			require.Contains(t, found.WayOut, test.way)
		})
	}
}

func TestAReadOnlySessionIsFound(t *testing.T) {
	t.Parallel()
	for i, key := range []string{"default_transaction_read_only", "transaction_read_only"} {
		w := admit(t, testdb.Open(t, testdb.Main()[i]))
		if w.IsMariaDB(t) {
			key = "tx_read_only" // its name before 11.1
		}
		w.over(t, w.Reopen(t, testdb.Param(key, "1")).DB)
		require.Contains(t, w.requireFinding(t, "table", doctor.Failure, "checking the database").WayOut, "primary")
	}
}

func TestAReadOnlyFileIsFound(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[2]))
	var file string
	require.NoError(t, w.QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file))
	pool, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	w.over(t, pool)
	require.Contains(t, w.requireFinding(t, "table", doctor.Failure, "readonly database").WayOut, "read-only")
}

// max_page_count stands for a disk that is full: SQLite answers both with the same error.
func TestAFullDiskIsFound(t *testing.T) {
	t.Parallel()
	w := admit(t, testdb.Open(t, testdb.Main()[2]))
	w.SetMaxOpenConns(1)
	var pages int
	require.NoError(t, w.QueryRowContext(t.Context(), "PRAGMA max_page_count = 1").Scan(&pages)) // no less than there are
	require.Contains(t, w.requireFinding(t, "rehearsal", doctor.Failure, "is full").WayOut, "free space")
}

func TestShortTimeLimitsAreFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		target     testdb.Target
		key, value string
		seen       string
	}{
		{testdb.Main()[0], "lock_timeout", "1", "lock_timeout is 1ms"},
		{testdb.Main()[0], "statement_timeout", "900", "statement_timeout is 900ms"},
		{testdb.Main()[1], "max_execution_time", "900", "max_execution_time is 900ms"},
	} {
		w := admit(t, testdb.Open(t, test.target))
		if w.IsMariaDB(t) {
			test.key, test.value, test.seen = "max_statement_time", "1", "max_statement_time is 1s"
		}
		w.over(t, w.Reopen(t, testdb.Param(test.key, test.value)).DB)
		require.Contains(t, w.requireFinding(t, "timeouts", doctor.Warning, test.seen).WayOut, "or more")
	}
}
