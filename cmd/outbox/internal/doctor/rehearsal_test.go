package doctor_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// broken is a set-up with which something fails or gets lost.
type broken struct {
	name       string
	kinds      string    // of databases; mariadb or oracle is one of the two servers of the kind mysql
	statements []string  // that break it
	remade     [2]string // in the place of statements: a text of SQLite's schema, and the other text
	check      string
	level      doctor.Level
	seen, way  string
	repair     []string // as the words of the way out say; empty: the statements of the way out
}

var (
	dropT      = []string{"DROP TRIGGER t"}
	dropTOnOwn = []string{"DROP TRIGGER t ON outbox_event"}
)

const (
	fn         = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN %s; END'"
	trigger    = "CREATE TRIGGER t %s ON outbox_event FOR EACH ROW EXECUTE FUNCTION f()"
	spoil      = "UPDATE outbox_event_control SET value = '%s' WHERE kind = 'schema'"
	healthyRow = `{"version":3,"min_version":1}`
)

// pgTrigger breaks a table of PostgreSQL with a trigger.
func pgTrigger(when, body string) []string {
	return []string{fmt.Sprintf(fn, body), fmt.Sprintf(trigger, when)}
}

var brokenSetups = []broken{
	{name: "an own column that must not be NULL", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event ADD must INTEGER NOT NULL"}, check: "rehearsal", level: doctor.Failure, seen: "cannot write an event", way: "DEFAULT", repair: []string{"ALTER TABLE outbox_event ALTER must SET DEFAULT 0"}},
	{name: "an own column that must not be NULL", kinds: "mariadb", statements: []string{"ALTER TABLE outbox_event ADD must INT NOT NULL"}, check: "table", level: doctor.Failure, seen: "doesn't have a default value", way: "DEFAULT", repair: []string{"ALTER TABLE outbox_event MODIFY must INT"}},
	{name: "an own column that must not be NULL", kinds: "oracle", statements: []string{"ALTER TABLE outbox_event ADD must INT NOT NULL"}, check: "rehearsal", level: doctor.Failure, seen: "doesn't have a default value", way: "DEFAULT", repair: []string{"ALTER TABLE outbox_event MODIFY must INT"}},
	{name: "an own column that must not be NULL", kinds: "sqlite", remade: [2]string{"locked_at      INTEGER", "locked_at INTEGER, must INTEGER NOT NULL"}, check: "rehearsal", level: doctor.Failure, seen: "NOT NULL constraint", way: "DEFAULT"},

	{name: "a trigger that fails", kinds: "postgres", statements: pgTrigger("BEFORE UPDATE", "RAISE EXCEPTION ''no''"), check: "rehearsal", level: doctor.Failure, seen: "cannot claim it", way: "triggers", repair: dropTOnOwn},
	{name: "a trigger that drops rows", kinds: "postgres", statements: pgTrigger("BEFORE INSERT", "RETURN NULL"), check: "rehearsal", level: doctor.Failure, seen: "the row that was just written is not there", way: "triggers", repair: dropTOnOwn},
	{name: "a trigger that skips updates", kinds: "postgres", statements: pgTrigger("BEFORE UPDATE", "RETURN NULL"), check: "rehearsal", level: doctor.Failure, seen: "cannot claim it", way: "triggers", repair: dropTOnOwn},
	{name: "a trigger that skips deliveries", kinds: "postgres", statements: pgTrigger("BEFORE UPDATE", "IF NEW.status = 1 THEN RETURN NULL; END IF; RETURN NEW"), check: "rehearsal", level: doctor.Failure, seen: "cannot store that it was delivered", way: "triggers", repair: dropTOnOwn},
	{name: "a trigger that changes rows", kinds: "postgres", statements: pgTrigger("BEFORE INSERT", "NEW.available_at = now(); RETURN NEW"), check: "rehearsal", level: doctor.Failure, seen: "available_at come back with another value", way: "triggers", repair: dropTOnOwn},
	{name: "a trigger that fails at the commit", kinds: "postgres", statements: []string{fmt.Sprintf(fn, "RAISE EXCEPTION ''no''"), "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON outbox_event DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION f()"}, check: "rehearsal", level: doctor.Failure, seen: "cannot commit", way: "triggers", repair: dropTOnOwn},
	{name: "a trigger of the control table", kinds: "postgres", statements: []string{fmt.Sprintf(fn, "RETURN NULL"), "CREATE TRIGGER t BEFORE INSERT ON outbox_event_control FOR EACH ROW EXECUTE FUNCTION f()"}, check: "rehearsal", level: doctor.Failure, seen: "cannot report a process", way: "triggers", repair: []string{"DROP TRIGGER t ON outbox_event_control"}},
	{name: "a trigger that skips deliveries", kinds: "mysql", statements: []string{"CREATE TRIGGER t BEFORE UPDATE ON outbox_event FOR EACH ROW IF NEW.status = 1 THEN SET NEW.status = OLD.status, NEW.done_at = OLD.done_at, NEW.locked_by = OLD.locked_by, NEW.locked_at = OLD.locked_at; END IF"}, check: "rehearsal", level: doctor.Failure, seen: "cannot store that it was delivered", way: "triggers", repair: dropT},
	{name: "a trigger that fails", kinds: "mysql", statements: []string{"CREATE TRIGGER t BEFORE UPDATE ON outbox_event FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'"}, check: "rehearsal", level: doctor.Failure, seen: "cannot store that its delivery failed", way: "triggers", repair: dropT},
	{name: "a trigger that changes rows", kinds: "mysql", statements: []string{"CREATE TRIGGER t BEFORE INSERT ON outbox_event FOR EACH ROW SET NEW.tenant_id = 'x'"}, check: "rehearsal", level: doctor.Failure, seen: "tenant_id come back with another value", way: "triggers", repair: dropT},
	{name: "a trigger of a user that is gone", kinds: "mysql", statements: []string{"CREATE DEFINER = 'nobody'@'nowhere' TRIGGER t BEFORE INSERT ON outbox_event FOR EACH ROW SET NEW.tenant_id = NEW.tenant_id"}, check: "rehearsal", level: doctor.Failure, seen: "definer", way: "DEFINER", repair: []string{"DROP TRIGGER t", "CREATE TRIGGER t BEFORE INSERT ON outbox_event FOR EACH ROW SET NEW.tenant_id = NEW.tenant_id"}},
	{name: "a trigger that skips deliveries", kinds: "sqlite", statements: []string{"CREATE TRIGGER t BEFORE UPDATE ON outbox_event WHEN NEW.status = 1 BEGIN SELECT RAISE(IGNORE); END"}, check: "rehearsal", level: doctor.Failure, seen: "cannot store that it was delivered", way: "triggers", repair: dropT},
	{name: "a trigger that fails", kinds: "sqlite", statements: []string{"CREATE TRIGGER t BEFORE DELETE ON outbox_event BEGIN SELECT RAISE(ABORT, 'no'); END"}, check: "rehearsal", level: doctor.Failure, seen: "cannot delete it", way: "triggers", repair: dropT},
	{name: "a trigger that deletes rows", kinds: "sqlite", statements: []string{"CREATE TRIGGER t AFTER INSERT ON outbox_event BEGIN DELETE FROM outbox_event; END"}, check: "rehearsal", level: doctor.Failure, seen: "is not there", way: "triggers", repair: dropT},
	{name: "a rule that skips updates", kinds: "postgres", statements: []string{"CREATE RULE skip AS ON UPDATE TO outbox_event WHERE NEW.status = 2 DO INSTEAD NOTHING"}, check: "rehearsal", level: doctor.Failure, seen: "cannot", way: "triggers", repair: []string{"DROP RULE skip ON outbox_event"}},
	{name: "a rule that skips deletes", kinds: "postgres", statements: []string{"CREATE RULE skip AS ON DELETE TO outbox_event DO INSTEAD NOTHING"}, check: "rehearsal", level: doctor.Failure, seen: "cannot delete it", way: "triggers", repair: []string{"DROP RULE skip ON outbox_event"}},

	{name: "a short column", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event ALTER aggregate_id TYPE varchar(20)"}, check: "rehearsal", level: doctor.Failure, seen: "cannot write an event", way: "schema print", repair: []string{"ALTER TABLE outbox_event ALTER aggregate_id TYPE varchar(128)"}},
	{name: "a short error", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event MODIFY last_error VARCHAR(50)"}, check: "rehearsal", level: doctor.Failure, seen: "cannot store that its delivery failed", way: "schema print", repair: []string{"ALTER TABLE outbox_event MODIFY last_error TEXT"}},
	{name: "a short payload", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event MODIFY payload VARCHAR(200) NOT NULL"}, check: "rehearsal", level: doctor.Failure, seen: "cannot write an event", way: "schema print", repair: []string{"ALTER TABLE outbox_event MODIFY payload LONGTEXT NOT NULL"}},
	{name: "a short node", kinds: "mysql postgres", statements: []string{"ALTER TABLE outbox_event_control ADD CONSTRAINT short CHECK (CHAR_LENGTH(name) < 20)"}, check: "rehearsal", level: doctor.Failure, seen: "cannot report a process", way: "constraints", repair: []string{"ALTER TABLE outbox_event_control DROP CONSTRAINT short"}},
	{name: "a narrow character set", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event MODIFY last_error TEXT CHARACTER SET latin1"}, check: "rehearsal", level: doctor.Failure, seen: "cannot store that its delivery failed", way: "utf8mb4", repair: []string{"ALTER TABLE outbox_event CONVERT TO CHARACTER SET utf8mb4%exact"}},
	{name: "the character set of old servers", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event CONVERT TO CHARACTER SET utf8mb3"}, check: "storage", level: doctor.Warning, seen: "whose character set cannot store every text"},
	{name: "a payload that is stored as an object", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event ALTER payload TYPE jsonb USING payload::jsonb"}, check: "rehearsal", level: doctor.Failure, seen: "payload come back with another value", way: "types", repair: []string{"ALTER TABLE outbox_event ALTER payload TYPE json USING payload::json"}},
	{name: "a payload that is stored as an object", kinds: "oracle", statements: []string{"ALTER TABLE outbox_event MODIFY payload JSON NOT NULL"}, check: "rehearsal", level: doctor.Failure, seen: "payload come back with another value", way: "types", repair: []string{"ALTER TABLE outbox_event MODIFY payload LONGTEXT NOT NULL"}},
	{name: "texts that become numbers", kinds: "sqlite", remade: [2]string{"aggregate_id   VARCHAR(128)", "aggregate_id INTEGER"}, check: "rehearsal", level: doctor.Failure, seen: "aggregate_id come back with another value", way: "types"},
	{name: "a generated column", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event DROP tenant_id, ADD tenant_id varchar(64) GENERATED ALWAYS AS ('x') STORED"}, check: "table", level: doctor.Failure, seen: "tenant_id", way: "plain columns", repair: []string{"ALTER TABLE outbox_event ALTER tenant_id DROP EXPRESSION"}},
	{name: "a generated column", kinds: "mariadb", statements: []string{"ALTER TABLE outbox_event DROP tenant_id, ADD tenant_id VARCHAR(64) GENERATED ALWAYS AS ('x') VIRTUAL"}, check: "rehearsal", level: doctor.Failure, seen: "tenant_id", way: "plain columns", repair: []string{"ALTER TABLE outbox_event DROP tenant_id, ADD tenant_id VARCHAR(64)%exact"}},
	{name: "a generated column", kinds: "oracle", statements: []string{"ALTER TABLE outbox_event DROP tenant_id, ADD tenant_id VARCHAR(64) GENERATED ALWAYS AS ('x') VIRTUAL"}, check: "table", level: doctor.Failure, seen: "tenant_id", way: "plain columns", repair: []string{"ALTER TABLE outbox_event DROP tenant_id, ADD tenant_id VARCHAR(64)%exact"}},
	{name: "times without a zone", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event ALTER available_at TYPE timestamp"}, check: "columns", level: doctor.Failure, seen: "available_at of outbox_event is timestamp without time zone", way: "timestamptz"},
	{name: "times without fractions", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event MODIFY created_at DATETIME NOT NULL"}, check: "columns", level: doctor.Warning, seen: "created_at of outbox_event is datetime", way: "DATETIME(6)"},
	{name: "times in the zone of the session", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event MODIFY locked_at TIMESTAMP(6) NULL"}, check: "columns", level: doctor.Warning, seen: "locked_at of outbox_event is timestamp(6)", way: "DATETIME(6)"},
	{name: "a control table with times without fractions", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event_control MODIFY expires_at DATETIME"}, check: "columns", level: doctor.Warning, seen: "expires_at of outbox_event_control is datetime", way: "DATETIME(6)"},

	{name: "a status that is refused", kinds: "postgres mysql", statements: []string{"ALTER TABLE outbox_event ADD CONSTRAINT no CHECK (status <> 3)"}, check: "rehearsal", level: doctor.Failure, seen: "cannot store that it is dead", way: "constraints", repair: []string{"ALTER TABLE outbox_event DROP CONSTRAINT no"}},
	{name: "one event of an aggregate", kinds: "postgres mysql", statements: []string{"ALTER TABLE outbox_event ADD CONSTRAINT one UNIQUE (aggregate_id)"}, check: "rehearsal", level: doctor.Failure, seen: "cannot write two events of the same aggregate", way: "drop the unique index", repair: []string{"ALTER TABLE outbox_event DROP CONSTRAINT one"}},
	{name: "one event of an aggregate", kinds: "sqlite", statements: []string{"CREATE UNIQUE INDEX one ON outbox_event (aggregate_type, aggregate_id)"}, check: "rehearsal", level: doctor.Failure, seen: "cannot write two events of the same aggregate", way: "drop the unique index", repair: []string{"DROP INDEX one"}},
	{name: "ids without case", kinds: "postgres", statements: []string{"CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)", "ALTER TABLE outbox_event ALTER event_id TYPE varchar(36) COLLATE ci"}, check: "rehearsal", level: doctor.Failure, seen: "cannot write two events", way: "case-sensitive collation", repair: []string{`ALTER TABLE outbox_event ALTER event_id TYPE varchar(36) COLLATE "default"`}},
	{name: "ids without case", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event MODIFY event_id VARCHAR(36) COLLATE utf8mb4_general_ci NOT NULL"}, check: "columns", level: doctor.Warning, seen: "the collation of event_id of outbox_event is utf8mb4_general_ci"},
	{name: "ids without case", kinds: "sqlite", remade: [2]string{"event_id       VARCHAR(36) PRIMARY KEY", "event_id VARCHAR(36) PRIMARY KEY COLLATE NOCASE"}, check: "rehearsal", level: doctor.Failure, seen: "cannot write two events", way: "case-sensitive collation"},
	{name: "a table without case", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"}, check: "storage", level: doctor.Warning, seen: "differ only in case"},
	{name: "a control table without case", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event_control CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"}, check: "storage", level: doctor.Warning, seen: "the collation of outbox_event_control is utf8mb4_general_ci"},
	{name: "ids without spaces", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"}, check: "storage", level: doctor.Warning, seen: "differ only in spaces"},
	{name: "a foreign key to what events are about", kinds: "postgres mysql", statements: []string{"CREATE TABLE tenants (id VARCHAR(64) PRIMARY KEY)%exact", "ALTER TABLE outbox_event ADD CONSTRAINT fk FOREIGN KEY (tenant_id) REFERENCES tenants (id)"}, check: "rehearsal", level: doctor.Failure, seen: "cannot write an event", way: "drop the foreign key", repair: []string{"ALTER TABLE outbox_event DROP CONSTRAINT fk"}},
	{name: "a foreign key to events", kinds: "postgres mysql", statements: []string{"CREATE TABLE log (id VARCHAR(36) NOT NULL)%exact", "ALTER TABLE log ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES outbox_event (event_id)"}, check: "indexes", level: doctor.Warning, seen: "the table log has a foreign key to outbox_event"},
	{name: "a foreign key to events", kinds: "sqlite", statements: []string{"CREATE TABLE log (id VARCHAR(36) REFERENCES outbox_event (event_id))"}, check: "indexes", level: doctor.Warning, seen: "the table log has a foreign key to outbox_event", way: "CASCADE", repair: []string{"DROP TABLE log", "CREATE TABLE log (id VARCHAR(36) REFERENCES outbox_event (event_id) ON DELETE CASCADE)"}},

	{name: "no control table", kinds: "postgres mysql sqlite", statements: []string{"DROP TABLE outbox_event_control"}, check: "table", level: doctor.Failure, seen: "outbox_event_control", way: "outbox schema create", repair: []string{"create"}},
	{name: "a column that is missing", kinds: "postgres mysql", statements: []string{"ALTER TABLE outbox_event DROP COLUMN locked_by"}, check: "table", level: doctor.Failure, seen: "locked_by", way: "add the column", repair: []string{"ALTER TABLE outbox_event ADD locked_by VARCHAR(128)"}},
	{name: "a version that is spoilt", kinds: "postgres mysql sqlite", statements: []string{fmt.Sprintf(spoil, "three")}, check: "table", level: doctor.Failure, seen: "no valid value", way: "set it to", repair: []string{fmt.Sprintf(spoil, healthyRow)}},
	{name: "no version", kinds: "postgres mysql sqlite", statements: []string{"DELETE FROM outbox_event_control WHERE kind = 'schema'"}, check: "table", level: doctor.Failure, seen: "version 1", way: "outbox schema migrate", repair: []string{"migrate"}},
	{name: "a version that is too new", kinds: "postgres mysql sqlite", statements: []string{fmt.Sprintf(spoil, `{"version":9,"min_version":9}`)}, check: "table", level: doctor.Failure, seen: "needs a build for version 9", way: "newer build", repair: []string{fmt.Sprintf(spoil, healthyRow)}},
	{name: "a view", kinds: "postgres mysql sqlite", statements: []string{"ALTER TABLE outbox_event RENAME TO hidden", "CREATE VIEW outbox_event AS SELECT * FROM hidden"}, check: "table", level: doctor.Failure, seen: "view", way: "", repair: []string{"DROP VIEW outbox_event", "ALTER TABLE hidden RENAME TO outbox_event"}},

	{name: "no primary key", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event DROP CONSTRAINT outbox_event_pkey"}, check: "indexes", level: doctor.Failure, seen: "outbox_event has no primary key"},
	{name: "no primary key", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event DROP PRIMARY KEY"}, check: "indexes", level: doctor.Failure, seen: "outbox_event has no primary key"},
	{name: "another primary key", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event DROP CONSTRAINT outbox_event_pkey, ADD PRIMARY KEY (created_at, event_id)"}, check: "indexes", level: doctor.Failure, seen: "does not begin with event_id"},
	{name: "another primary key", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event DROP PRIMARY KEY, ADD PRIMARY KEY (created_at, event_id)"}, check: "indexes", level: doctor.Failure, seen: "does not begin with event_id"},
	{name: "no primary key of the control table", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event_control DROP CONSTRAINT outbox_event_control_pkey"}, check: "rehearsal", level: doctor.Failure, seen: "cannot report a process", way: "primary keys", repair: []string{"ALTER TABLE outbox_event_control ADD PRIMARY KEY (kind, name)"}},
	{name: "no primary key of the control table", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event_control DROP PRIMARY KEY"}, check: "indexes", level: doctor.Failure, seen: "outbox_event_control has no primary key"},
	{name: "no primary key of the control table", kinds: "sqlite", statements: []string{"ALTER TABLE outbox_event_control RENAME TO former", "CREATE TABLE outbox_event_control AS SELECT * FROM former", "DROP TABLE former"}, check: "rehearsal", level: doctor.Failure, seen: "cannot report a process", way: "primary keys", repair: []string{"remake"}},
	{name: "an index on other columns", kinds: "postgres sqlite", statements: []string{"DROP INDEX idx_outbox_event_due", "CREATE INDEX idx_outbox_event_due ON outbox_event (available_at)"}, check: "indexes", level: doctor.Failure, seen: "is on other columns", way: "CREATE INDEX"},
	{name: "an index in another order", kinds: "postgres sqlite", statements: []string{"DROP INDEX idx_outbox_event_due", "CREATE INDEX idx_outbox_event_due ON outbox_event (available_at DESC, created_at, event_id) WHERE status IN (0, 2)"}, check: "indexes", level: doctor.Failure, seen: "another order", way: "CREATE INDEX"},
	{name: "an index with another condition", kinds: "postgres sqlite", statements: []string{"DROP INDEX idx_outbox_event_due", "CREATE INDEX idx_outbox_event_due ON outbox_event (available_at, created_at, event_id) WHERE status IN (0, 1)"}, check: "indexes", level: doctor.Failure, seen: "condition", way: "CREATE INDEX"},
	{name: "an index without a condition", kinds: "postgres sqlite", statements: []string{"DROP INDEX idx_outbox_event_done", "CREATE INDEX idx_outbox_event_done ON outbox_event (COALESCE(done_at, created_at))"}, check: "indexes", level: doctor.Failure, seen: "condition", way: "CREATE INDEX"},
	{name: "an index with another collation", kinds: "postgres", statements: []string{"DROP INDEX idx_outbox_event_due", `CREATE INDEX idx_outbox_event_due ON outbox_event (available_at, created_at, event_id COLLATE "und-x-icu") WHERE status IN (0, 2)`}, check: "indexes", level: doctor.Failure, seen: "another order", way: "CREATE INDEX"},
	{name: "an index on other columns", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event DROP KEY idx_outbox_event_due, ADD KEY idx_outbox_event_due (available_at)"}, check: "indexes", level: doctor.Failure, seen: "is on other columns", way: "ADD KEY"},
	{name: "an index in another order", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event DROP KEY idx_outbox_event_due, ADD KEY idx_outbox_event_due (status, available_at DESC, created_at)"}, check: "indexes", level: doctor.Failure, seen: "another order", way: "ADD KEY"},
	{name: "an index that is ignored", kinds: "mariadb", statements: []string{"ALTER TABLE outbox_event ALTER INDEX idx_outbox_event_due IGNORED"}, check: "indexes", level: doctor.Failure, seen: "told to ignore it"},
	{name: "an index that is ignored", kinds: "oracle", statements: []string{"ALTER TABLE outbox_event ALTER INDEX idx_outbox_event_due INVISIBLE"}, check: "indexes", level: doctor.Failure, seen: "told to ignore it"},

	{name: "a table that a crash empties", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event SET UNLOGGED"}, check: "storage", level: doctor.Failure, seen: "UNLOGGED", way: "SET LOGGED"},
	{name: "a control table that a crash empties", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event_control SET UNLOGGED"}, check: "storage", level: doctor.Failure, seen: "outbox_event_control is UNLOGGED", way: "SET LOGGED"},
	{name: "full pages", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event SET (fillfactor = 100)"}, check: "storage", level: doctor.Note, seen: "fillfactor is 100", way: "fillfactor = 50"},
	{name: "no autovacuum", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event SET (autovacuum_enabled = off)"}, check: "vacuum", level: doctor.Failure, seen: "autovacuum is off for outbox_event"},
	{name: "a table without transactions", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event ENGINE = MyISAM"}, check: "storage", level: doctor.Failure, seen: "MyISAM"},
	{name: "a control table without transactions", kinds: "mysql", statements: []string{"ALTER TABLE outbox_event_control ENGINE = MyISAM"}, check: "storage", level: doctor.Failure, seen: "the engine of outbox_event_control is MyISAM"},

	{name: "a policy that hides dead letters", kinds: "postgres", statements: []string{"CREATE POLICY p ON outbox_event USING (status <> 3) WITH CHECK (true)", "ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY", "GRANT ALL ON outbox_event, outbox_event_control TO %user"}, check: "rehearsal", level: doctor.Failure, seen: "row-level security", way: "policy", repair: []string{"CREATE POLICY all_rows ON outbox_event USING (true)"}},
	{name: "no policy", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY", "GRANT ALL ON outbox_event, outbox_event_control TO %user"}, check: "rehearsal", level: doctor.Failure, seen: "row-level security", way: "policy", repair: []string{"CREATE POLICY all_rows ON outbox_event USING (true)"}},
	{name: "no policy of the control table", kinds: "postgres", statements: []string{"ALTER TABLE outbox_event_control ENABLE ROW LEVEL SECURITY", "GRANT ALL ON outbox_event, outbox_event_control TO %user"}, check: "table", level: doctor.Failure, seen: "version 1", way: "policy", repair: []string{"CREATE POLICY all_rows ON outbox_event_control USING (true)"}},
	{name: "a user without rights", kinds: "postgres mysql", statements: []string{"GRANT SELECT ON outbox_event_control TO %user"}, check: "table", level: doctor.Failure, seen: "denied", way: "GRANT"},
	{name: "a user without INSERT", kinds: "postgres mysql", statements: []string{"GRANT SELECT, UPDATE, DELETE ON outbox_event TO %user", "GRANT ALL ON outbox_event_control TO %user"}, check: "table", level: doctor.Failure, seen: "denied", way: "GRANT"},
	{name: "a user without SELECT", kinds: "postgres mysql", statements: []string{"GRANT INSERT, UPDATE, DELETE ON outbox_event TO %user", "GRANT ALL ON outbox_event_control TO %user"}, check: "table", level: doctor.Failure, seen: "denied", way: "GRANT"},
	{name: "a user without UPDATE", kinds: "postgres", statements: []string{"GRANT SELECT, INSERT, DELETE ON outbox_event TO %user", "GRANT ALL ON outbox_event_control TO %user"}, check: "rehearsal", level: doctor.Failure, seen: "cannot claim it", way: "GRANT"},
	{name: "a user without UPDATE", kinds: "mysql", statements: []string{"GRANT SELECT, INSERT, DELETE ON outbox_event TO %user", "GRANT ALL ON outbox_event_control TO %user"}, check: "rehearsal", level: doctor.Failure, seen: "denied", way: "GRANT"},
	{name: "a user without DELETE", kinds: "postgres mysql", statements: []string{"GRANT SELECT, INSERT, UPDATE ON outbox_event TO %user", "GRANT ALL ON outbox_event_control TO %user"}, check: "rehearsal", level: doctor.Failure, seen: "cannot delete it", way: "GRANT"},
	{name: "a user with some columns", kinds: "postgres mysql", statements: []string{"GRANT SELECT, INSERT, DELETE ON outbox_event TO %user", "GRANT UPDATE (status, locked_by, locked_at) ON outbox_event TO %user", "GRANT ALL ON outbox_event_control TO %user"}, check: "rehearsal", level: doctor.Failure, seen: "denied", way: "GRANT"},
	{name: "a user without rights on the control table", kinds: "postgres mysql", statements: []string{"GRANT ALL ON outbox_event TO %user"}, check: "table", level: doctor.Failure, seen: "outbox_event_control", way: "GRANT"},
	{name: "a user who reads the control table", kinds: "postgres mysql", statements: []string{"GRANT ALL ON outbox_event TO %user", "GRANT SELECT ON outbox_event_control TO %user"}, check: "rehearsal", level: doctor.Failure, seen: "cannot report a process", way: "GRANT"},
	{name: "a user who keeps the control table", kinds: "postgres mysql", statements: []string{"GRANT ALL ON outbox_event TO %user", "GRANT SELECT, INSERT, UPDATE ON outbox_event_control TO %user"}, check: "rehearsal", level: doctor.Failure, seen: "cannot report a process", way: "GRANT"},
	{name: "a user with few connections", kinds: "postgres", statements: []string{"GRANT ALL ON outbox_event, outbox_event_control TO %user", "ALTER ROLE %user CONNECTION LIMIT 2"}, check: "connections", level: doctor.Warning, seen: "of 2 connections are in use by this role", way: "CONNECTION LIMIT", repair: []string{"ALTER ROLE %user CONNECTION LIMIT 100"}},
	{name: "a user with few connections", kinds: "mysql", statements: []string{"GRANT ALL ON outbox_event TO %user", "GRANT ALL ON outbox_event_control TO %user", "ALTER USER %user WITH MAX_USER_CONNECTIONS 2"}, check: "connections", level: doctor.Warning, seen: "of 2 connections are in use by this user", way: "MAX_USER_CONNECTIONS", repair: []string{"ALTER USER %user WITH MAX_USER_CONNECTIONS 100"}},
	{name: "a user who waits for nothing", kinds: "postgres", statements: []string{"GRANT ALL ON outbox_event, outbox_event_control TO %user", "ALTER ROLE %user SET lock_timeout = '1ms'"}, check: "timeouts", level: doctor.Warning, seen: "lock_timeout is 1ms", way: "1s or more", repair: []string{"ALTER ROLE %user RESET lock_timeout"}},
}

// kindOf names the server as broken.kinds does.
func kindOf(t *testing.T, db *testdb.DB) string {
	t.Helper()
	switch {
	case db.Kind != testdb.MySQL:
		return string(db.Kind)
	case db.IsMariaDB(t):
		return "mysql mariadb"
	default:
		return "mysql oracle"
	}
}

func TestABrokenSetupIsFoundWithItsWayOut(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			kinds := strings.Fields(kindOf(t, testdb.Open(t, target)))
			for _, b := range brokenSetups {
				for _, kind := range kinds {
					if strings.Contains(" "+b.kinds+" ", " "+kind+" ") {
						t.Run(b.name, func(t *testing.T) {
							t.Parallel()
							b.test(t, target)
						})
					}
				}
			}
		})
	}
}

func (b broken) test(t *testing.T, target testdb.Target) {
	w := admit(t, testdb.Open(t, target))
	if b.remade[0] != "" {
		w.remake(t, b.remade[0], b.remade[1])
		b.repair = []string{"remake"}
	}
	user := ""
	if strings.Contains(fmt.Sprint(b.statements), "%user") {
		user = w.as(t)
	}
	w.change(t, user, b.statements)
	found := w.requireFinding(t, b.check, b.level, b.seen)
	require.Contains(t, found.WayOut, b.way)
	if b.level < doctor.Failure || b.check != "table" {
		var rows int
		require.NoError(t, w.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event").Scan(&rows))
		require.Zero(t, rows, "what the rehearsal wrote is rolled back")
	}
	repair := b.repair
	if len(repair) == 0 {
		repair = statementsOf(found.WayOut)
		require.NotEmpty(t, repair, found.WayOut)
	}
	w.change(t, user, repair)
	w.over(t, w.again(t)) // a connection keeps the plans and the settings from before
	w.requireWell(t)
}

// change runs statements as the administrator.
func (w *ward) change(t *testing.T, user string, statements []string) {
	t.Helper()
	exact := ""
	if w.Kind == testdb.MySQL {
		var collation string
		require.NoError(t, w.QueryRowContext(t.Context(), "SELECT collation_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'outbox_event' AND column_name = 'event_id'").Scan(&collation))
		exact = " COLLATE " + collation
	}
	for _, s := range statements {
		switch s {
		case "create":
			require.NoError(t, w.store.CreateSchema(t.Context(), w.DB))
		case "migrate":
			_, err := w.store.Migrate(t.Context(), w.DB, sqlstore.SchemaVersion)
			require.NoError(t, err)
		case "remake":
			w.remake(t, "", "")
		default:
			w.run(t, strings.NewReplacer("%user", user, "%exact", exact).Replace(s))
		}
	}
}

var isStatement = regexp.MustCompile(`^(ALTER|CREATE|DROP|GRANT|PRAGMA|SET|VACUUM|ANALYZE) `)

// statementsOf returns the statements of a way out.
func statementsOf(wayOut string) (list []string) {
	for part := range strings.SplitSeq(strings.ReplaceAll(wayOut, ", then ", "; "), "; ") {
		if isStatement.MatchString(part) {
			list = append(list, part)
		}
	}
	return list
}

// remake creates the tables of SQLite with a text of the schema replaced.
func (w *ward) remake(t *testing.T, old, text string) {
	t.Helper()
	schema := w.store.Schema()
	require.Contains(t, schema, old)
	w.run(t, "DROP TABLE outbox_event", "DROP TABLE outbox_event_control", strings.Replace(schema, old, text, 1))
}

// as examines as a user of its own without rights, whose name for statements it returns.
func (w *ward) as(t *testing.T) (user string) {
	t.Helper()
	name := fmt.Sprintf("doctor_%d", time.Now().UnixNano())
	user, dsn, driver := name, w.DSN, "pgx"
	var drop []string
	if w.Kind == testdb.Postgres {
		var schema string
		require.NoError(t, w.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
		w.run(t, "CREATE ROLE "+name+" LOGIN PASSWORD 'secret'", "GRANT USAGE ON SCHEMA "+schema+" TO "+name, "GRANT pg_read_all_stats TO "+name)
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		u.User = url.UserPassword(name, "secret")
		dsn, drop = u.String(), []string{"DROP OWNED BY " + name, "DROP ROLE " + name}
	} else {
		user, driver = "'"+name+"'@'%'", "mysql"
		w.run(t, "CREATE USER "+user+" IDENTIFIED BY 'Secret-1'", "GRANT PROCESS ON *.* TO "+user)
		config, err := mysql.ParseDSN(dsn)
		require.NoError(t, err)
		config.User, config.Passwd = name, "Secret-1"
		dsn, drop = config.FormatDSN(), []string{"DROP USER " + user}
		w.run(t, "GRANT SHOW VIEW ON "+config.DBName+".* TO "+user) // the right to connect to the database
	}
	w.again = func(t *testing.T) *sql.DB {
		pool, err := sql.Open(driver, dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = pool.Close() })
		return pool
	}
	t.Cleanup(func() {
		for _, s := range drop {
			_, err := w.Exec(s) //nolint:noctx // the test's context has ended.
			require.NoError(t, err)
		}
	})
	w.over(t, w.again(t))
	return user
}

// requireWell fails the test if there is a finding that needs a hand, or if a write, a claim or a mark
// fails.
func (w *ward) requireWell(t *testing.T) {
	t.Helper()
	for _, f := range w.examine(t) {
		if f.Check != "vacuum" || !isAutovacuumOff(t, w) {
			require.LessOrEqual(t, f.Level, doctor.Note, "%+v", f)
		}
	}
	id := fmt.Sprintf("well-%d", time.Now().UnixNano())
	w.insert(t, id, "", time.Hour)
	batch, err := w.store.Claim(t.Context(), w.cfg.DB, outbox.ClaimQuery{Now: time.Now(), Limit: 10, Lease: "node/1", LeaseDuration: time.Minute})
	require.NoError(t, err)
	require.Equal(t, 1, batch.Len())
	left, err := w.store.Mark(t.Context(), w.cfg.DB, outbox.OutcomeDone, []outbox.Mark{{EventID: id, Lease: "node/1"}})
	require.NoError(t, err)
	require.Empty(t, left)
}

// session is the setting of an address with which something fails or gets lost.
type session struct {
	kinds      string
	key, value string
	check      string
	level      doctor.Level
	seen, way  string
}

const pragma = "busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma="

var brokenSessions = []session{
	{"postgres", "default_transaction_read_only", "on", "table", doctor.Failure, "read-only", "primary"},
	{"postgres", "default_transaction_isolation", "serializable", "isolation", doctor.Note, "serializable", "read committed"},
	{"postgres", "statement_timeout", "900", "timeouts", doctor.Warning, "statement_timeout is 900ms", "5s or more"},
	{"postgres", "lock_timeout", "1", "timeouts", doctor.Warning, "lock_timeout is 1ms", "1s or more"},
	{"postgres", "idle_in_transaction_session_timeout", "900", "timeouts", doctor.Warning, "idle_in_transaction_session_timeout is 900ms", "2s or more"},
	{"mariadb", "tx_read_only", "1", "table", doctor.Failure, "checking the database", "primary"},
	{"oracle", "transaction_read_only", "1", "table", doctor.Failure, "checking the database", "primary"},
	{"mysql", "autocommit", "0", "table", doctor.Failure, "autocommit is off", "remove autocommit=0"},
	{"mysql", "completion_type", "1", "table", doctor.Failure, "completion_type is CHAIN", "remove completion_type"},
	{"mariadb", "max_statement_time", "1", "timeouts", doctor.Warning, "max_statement_time is 1s", "5s or more"},
	{"oracle", "max_execution_time", "900", "timeouts", doctor.Warning, "max_execution_time is 900ms", "5s or more"},
	{"mysql", "wait_timeout", "1", "timeouts", doctor.Warning, "wait_timeout is 1s", "2s or more"},
	{"mysql", "sql_mode", "%27NO_ENGINE_SUBSTITUTION%27", "session", doctor.Warning, "not strict", "STRICT_TRANS_TABLES"},
	{"mysql", "sql_safe_updates", "1", "session", doctor.Warning, "sql_safe_updates", "remove"},
	{"mysql", "sql_select_limit", "10", "session", doctor.Warning, "sql_select_limit is 10", "remove"},
	{"mysql", "max_join_size", "5000", "session", doctor.Warning, "max_join_size is 5000", "remove"},
	{"mysql", "charset", "latin1", "session", doctor.Warning, "character_set_client is latin1", "utf8mb4"},
	{"sqlite", "mode", "ro", "table", doctor.Failure, "readonly database", "read-only"},
	{"sqlite", "_pragma", pragma + "query_only(1)", "table", doctor.Failure, "readonly database", "query_only"},
	{"sqlite", "_pragma", "journal_mode(WAL)&_pragma=busy_timeout(0)", "timeouts", doctor.Warning, "busy_timeout is 0s", "busy_timeout(5000)"},
	{"sqlite", "_pragma", pragma + "synchronous(OFF)", "storage", doctor.Warning, "power failure", "synchronous(NORMAL)"},
	{"sqlite", "_pragma", "busy_timeout(30000)&_pragma=journal_mode(OFF)", "storage", doctor.Failure, "the journal is off", "journal_mode = WAL"},
	{"sqlite", "_pragma", "busy_timeout(30000)&_pragma=journal_mode(MEMORY)", "storage", doctor.Warning, "the journal is in memory", "journal_mode = WAL"},
	{"sqlite", "_pragma", "busy_timeout(30000)&_pragma=journal_mode(DELETE)", "storage", doctor.Note, "the journal's mode is delete", "journal_mode = WAL"},
	{"sqlite", "_pragma", pragma + "locking_mode(EXCLUSIVE)", "storage", doctor.Warning, "locking_mode is EXCLUSIVE", "remove locking_mode"},
}

func TestABrokenSessionIsFoundWithItsWayOut(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		kinds := strings.Fields(kindOf(t, db))
		for _, b := range brokenSessions {
			for _, kind := range kinds {
				if kind == b.kinds {
					t.Run(b.key+" "+b.seen, func(t *testing.T) {
						t.Parallel()
						b.test(t, db)
					})
				}
			}
		}
	})
}

func (b session) test(t *testing.T, db *testdb.DB) {
	w := admit(t, testdb.Open(t, db.Target()))
	if w.Kind == testdb.SQLite && strings.Contains(b.value, "journal_mode(") && !strings.Contains(b.value, "WAL") {
		w.run(t, "PRAGMA journal_mode = DELETE") // the file keeps WAL otherwise
	}
	w.Close()
	broken := w.Reopen(t, testdb.Param(b.key, b.value))
	w.over(t, broken.DB)
	w.cfg.DB.SetMaxOpenConns(1) // locking_mode EXCLUSIVE locks the others out
	w.cfg.Limits.NotDurable = false
	found := w.requireFinding(t, b.check, b.level, b.seen)
	require.Contains(t, found.WayOut, b.way)
	require.NoError(t, broken.Close())
	w.DB = w.Reopen(t)
	w.over(t, w.DB.DB)
	var rows int
	require.NoError(t, w.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event").Scan(&rows))
	require.Zero(t, rows, "what the rehearsal wrote is rolled back")
	w.requireWell(t)
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
