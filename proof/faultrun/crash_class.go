package faultrun

import (
	"regexp"
	"strings"
)

// The owners of the statements that neither a writer nor a listener executes.
const (
	engine   = "engine"
	engineTx = "engine, in a transaction"
)

// whoseKey is the key of the context's value that names the owner of a statement.
type whoseKey struct{}

// classes name the statements. The first pattern that matches decides. A statement with an empty
// name is not a point: either the statement changes nothing and only a start needs it, or no delivery reads
// its rows: a node's report, and a look at the replays of delivered events.
var classes = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`^(ROLLBACK TO|RELEASE|SAVEPOINT)`), "$1"},
	{regexp.MustCompile(`outbox_event_control .*'(?:node|replay)'|^SELECT locked_by, |WHERE 1 = 0$|current_schemas|^SELECT DATABASE`), ""},
	{regexp.MustCompile(`INSERT (IGNORE )?INTO idempotency_key`), "record the request"},
	{regexp.MustCompile(`^UPDATE idempotency_key`), "store the answer"},
	{regexp.MustCompile(`^SELECT fingerprint, `), "read the answer"},
	{regexp.MustCompile(`^INSERT INTO outbox_event_control \(kind, name\)`), "insert the ranges"},
	{regexp.MustCompile(`^INSERT INTO outbox_event_control`), "pause"},
	{regexp.MustCompile(`^DELETE FROM outbox_event_control`), "resume"},
	{regexp.MustCompile(`^UPDATE outbox_event_control`), "set the ranges"},
	{regexp.MustCompile(`^SELECT read_at, owner, value`), "read the ranges"},
	{regexp.MustCompile(`^SELECT name, owner, value, .* FROM outbox_event_control WHERE kind IN \('pause', 'pause-key'\)`), "read the pauses"},
	{regexp.MustCompile(`^INSERT INTO outbox_event `), "insert"},
	{regexp.MustCompile(`^UPDATE outbox_event SET attempts = (attempts \+|CASE WHEN)`), "claim"},
	{regexp.MustCompile(`^UPDATE outbox_event SET status = 1`), "mark done"},
	{regexp.MustCompile(`^UPDATE outbox_event SET status = 2`), "mark retry"},
	{regexp.MustCompile(`^UPDATE outbox_event SET status = 3`), "mark dead"},
	{regexp.MustCompile(`^UPDATE outbox_event SET status = 0`), "mark deferred"},
	{regexp.MustCompile(`^UPDATE outbox_event SET locked_by = NULL`), "release"},
	{regexp.MustCompile(`^UPDATE outbox_event SET locked_at =`), "renew"},
	{regexp.MustCompile(`^SELECT event_id, status, locked_by`), "read states"},
	{regexp.MustCompile(`^SELECT event_id, locked_by FROM outbox_event`), "read leases"},
	{regexp.MustCompile(`FOR UPDATE SKIP LOCKED$`), "lock"},
	{regexp.MustCompile(`\bwalk\b|^\(SELECT \d, event_id`), "read runs"},
	{regexp.MustCompile(`^SELECT head\.event_id FROM`), "read which events begin their keys"},
	{regexp.MustCompile(`aggregate_type IS NULL LIMIT \d+$`), "read NULL types"},
	{regexp.MustCompile(`ORDER BY available_at, created_at, event_id LIMIT 1$`), "read the next due"},
	{regexp.MustCompile(`^SELECT due, expired, |^SELECT event_id, (DATE_FORMAT\(created_at|CASE typeof\(created_at)`), "look at a range"},
	{regexp.MustCompile(`^SELECT event_id, .* FROM outbox_event (FORCE INDEX \(\w+\) )?WHERE .*LIMIT [?$]\d*$`), "poll"},
	{regexp.MustCompile(`^SELECT (DATE_FORMAT\(UTC_TIMESTAMP|(CASE WHEN )?clock_timestamp|CAST\(clock)`), "read the clock"},
	{regexp.MustCompile(`inbox_message`), "record in the inbox"},
	{regexp.MustCompile(`^INSERT INTO fault_effects`), "effect"},
	{regexp.MustCompile(`^INSERT INTO fault_orders`), "order"},
	{regexp.MustCompile(`^UPDATE fault_keys`), "lock the key"},
	{regexp.MustCompile(`^SELECT n FROM fault_keys`), "read the key"},
	{regexp.MustCompile(`(?i)version\(\)|@@version_comment|pg_backend_pid|information_schema|pg_catalog|pg_index|sqlite_|WHERE 1 = 0|WHERE kind = 'schema'|^SELECT 1|^SHOW|pragma_database_list`), ""},
}

// inOtherHands are classes whose statements have another name when the engine inserts,
// and when a listener marks.
var inOtherHands = map[string]string{"insert": "insert listener rows", "mark done": "complete"}

var noise = strings.NewReplacer(`"`, "", "`", "", strings.TrimSpace(lockWaitPrefix)+" ", "")

// qualified is the table's name with the schema that an outbox found.
var qualified = regexp.MustCompile(`[^\s.]+\.outbox_event`)

const lockWaitPrefix = "/*M!100101 SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ "

// lockedFirst is the part of a statement on marked rows by which MySQL locks the rows.
var lockedFirst = regexp.MustCompile(`^UPDATE \(SELECT event_id AS id FROM .* FOR UPDATE NOWAIT\) AS marked STRAIGHT_JOIN outbox_event FORCE INDEX \(PRIMARY\) ON event_id = id`)

// classOf is the class of a statement.
func classOf(query, whose string) string {
	query = qualified.ReplaceAllString(noise.Replace(strings.TrimSpace(query)), "outbox_event")
	query = lockedFirst.ReplaceAllString(query, "UPDATE outbox_event")
	if inner, limited := strings.CutPrefix(query, "SELECT * FROM ("); limited {
		query = inner
	}
	for _, c := range classes {
		match := c.pattern.FindStringSubmatch(query)
		if match == nil {
			continue
		}
		if c.name == "$1" {
			return match[1]
		}
		if other, ok := inOtherHands[c.name]; ok && strings.HasPrefix(whose, engine) == (c.name == "insert") {
			return other
		}
		return c.name
	}
	return "unknown: " + query[:min(len(query), 120)]
}
