package outboxfx_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestBadFilesAreNamedKeyByKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, want string }{
		{"unknown key", "mode: ordered\ntabel-name: x\n", "tabel-name (FILE:2) is no setting; did you mean table-name?"},
		{"unknown key far from any", "colour: red\n", "colour (FILE:1) is no setting"},
		{"unknown key in a section", "dispatcher:\n  workers: 8\n", "dispatcher.workers (FILE:2) is no setting"},
		{"key without its section", "worker-count: 8\n", "worker-count (FILE:1) is no setting; did you mean dispatcher.worker-count?"},
		{"key in snake case", "dispatcher:\n  worker_count: 8\n", "dispatcher.worker_count (FILE:2) is no setting; did you mean dispatcher.worker-count?"},
		{"key in camel case", "dispatcher: {workerCount: 8}\n", "dispatcher.workerCount (FILE:1) is no setting; did you mean dispatcher.worker-count?"},
		{"section in camel case", "claimLocking:\n  lockTimeout: 1m\n", "claimLocking.lockTimeout (FILE:2) is no setting; did you mean claim-locking.lock-timeout?"},
		{"milliseconds in the key", "poller:\n  interval-ms: 5000\n", "poller.interval-ms (FILE:2) is no setting; did you mean poller.interval, whose value has its unit, as in 5s?"},
		{"seconds in the key", "purge:\n  interval-seconds: 60\n", "did you mean purge.interval, whose value has its unit"},
		{"scalar for a section", "dispatcher: 8\n", "dispatcher (FILE:1) is 8, but it is a section with keys of its own"},
		{"section for a scalar", "mode:\n  name: ordered\n", "mode.name (FILE:2) is no setting"},
		{"unknown mode", "mode: multi\n", `mode (FILE:1) is "multi"; it must be single-node, multi-node, ordered or writer-only`},
		{"mode in capitals", "mode: MULTI_NODE\n", `mode (FILE:1) is "MULTI_NODE"; did you mean multi-node?`},
		{"mode with a slip", "mode: orderd\n", `did you mean ordered?`},
		{"list for a mode", "mode: [ordered]\n", "mode (FILE:1) is a list, and must be text"},
		{"number for a text", "mode: multi-node\nclaim-locking:\n  owner-id: 007\n", "claim-locking.owner-id (FILE:3) is 7, and must be text; put it in quotes"},
		{"no value", "poller:\n  interval:\n", "poller.interval (FILE:2) has no value"},
		{"duration without a unit", "poller:\n  interval: 5000\n", "poller.interval (FILE:2) is 5000, which is no duration; write it with its unit"},
		{"duration in days", "purge:\n  retention: 7d\n", `purge.retention (FILE:2) is "7d", but there is no unit for days; write 168h`},
		{"nonsense for a duration", "poller:\n  interval: soon\n", `poller.interval (FILE:2) is "soon", which is no duration`},
		{"negative duration", "poller:\n  interval: -1s\n", "poller.interval (FILE:2) is -1s; it must not be negative"},
		{"negative retention", "purge:\n  retention: -1ns\n", "purge.retention (FILE:2) is -1ns; it must not be negative"},
		{"zero duration", "poller:\n  interval: 0s\n", "poller.interval (FILE:2) is 0s; it must be positive"},
		{"duration too long", "poller:\n  interval: 9999999h\n", "poller.interval (FILE:2) is"},
		{"text for a number", "dispatcher:\n  worker-count: many\n", `dispatcher.worker-count (FILE:2) is "many"; it must be a whole number`},
		{"fraction", "dispatcher:\n  worker-count: 1.5\n", "dispatcher.worker-count (FILE:2) is 1.5; it must be a whole number"},
		{"number too large", "dispatcher:\n  worker-count: 99999999999999999999\n", "it must be a whole number"},
		{"zero", "dispatcher:\n  worker-count: 0\n", "dispatcher.worker-count (FILE:2) is 0; it must be positive"},
		{"far too many workers", "dispatcher:\n  worker-count: 10001\n", "dispatcher.worker-count (FILE:2) is 10001; the limit is 10000"},
		{"far too long a queue", "dispatcher:\n  hot-queue-capacity: 2000000000\n", "dispatcher.hot-queue-capacity (FILE:2) is 2000000000; the limit is 1000000"},
		{"far too long a cold queue", "dispatcher:\n  cold-queue-capacity: 1000001\n", "dispatcher.cold-queue-capacity (FILE:2) is 1000001; the limit is 1000000"},
		{"far too large a batch", "poller:\n  batch-size: 100001\n", "poller.batch-size (FILE:2) is 100001; the limit is 100000"},
		{"far too large a batch of the purger", "purge:\n  batch-size: 9223372036854775807\n", "purge.batch-size (FILE:2) is 9223372036854775807; the limit is 100000"},
		{"null for a key", "mode: ordered\nnull: x\n", "null (FILE:2) is no setting: a key that YAML takes for null"},
		{"tilde for a key of a section", "poller:\n  ~: 5s\n", "poller.null (FILE:2) is no setting: a key that YAML takes for null"},
		{"negative", "dispatcher:\n  max-attempts: -1\n", "dispatcher.max-attempts (FILE:2) is -1; it must be positive"},
		{"text for a switch", "create-schema: sure\n", `create-schema (FILE:1) is "sure"; it must be true or false`},
		{"number for a switch", "create-schema: 1\n", "create-schema (FILE:1) is 1; it must be true or false"},
		{"table name", "table-name: events; drop\n", "table-name (FILE:1) is \"events; drop\"; it must be letters"},
		{"owner too long", "mode: multi-node\nclaim-locking:\n  owner-id: " + strings.Repeat("x", 129) + "\n", "is 129 characters long; the limit is 128"},
		{"what becomes of rows", "purge:\n  on-done: remove\n", `purge.on-done (FILE:2) is "remove"; it must be keep or delete`},
		{"longest retry below the first", "retry:\n  base-delay: 2s\n  max-delay: 1s\n", "retry.max-delay (FILE:3) is 1s, which is less than retry.base-delay, 2s"},
		{"key set twice", "poller.interval: 1s\npoller:\n  interval: 2s\n", "poller.interval (FILE:1) is set more than once: in lines 1 3"},

		{"dispatcher in ordered", "mode: ordered\ndispatcher:\n  worker-count: 4\n", "dispatcher.worker-count (FILE:3) is set, but the mode ordered does not have it; it is for single-node and multi-node"},
		{"retry in ordered", "mode: ordered\nretry:\n  base-delay: 1s\n", "retry.base-delay (FILE:3) is set, but the mode ordered does not have it"},
		{"poller in writer-only", "mode: writer-only\npoller:\n  skip-recent: 0s\n", "poller.skip-recent (FILE:3) is set, but the mode writer-only does not have it; it is for single-node, multi-node and ordered"},
		{"on-done in writer-only", "mode: writer-only\npurge:\n  on-done: keep\n", "purge.on-done (FILE:3) is set, but the mode writer-only does not have it"},
		{"leases in the default mode", "claim-locking:\n  lock-timeout: 1m\n", "claim-locking.lock-timeout (FILE:2) is set, but the mode single-node does not have it; it is for multi-node"},
		{"leases switched on elsewhere", "claim-locking:\n  enabled: true\n", "claim-locking.enabled (FILE:2) is true, but the mode single-node has no leases; set mode to multi-node"},
		{"leases switched off in multi-node", "mode: multi-node\nclaim-locking:\n  enabled: false\n", "claim-locking.enabled (FILE:3) is false, but the mode multi-node cannot do without leases"},

		{"no YAML", "mode: [ordered\n", "does not parse: yaml: "},
		{"tab", "dispatcher:\n\tworker-count: 8\n", "does not parse: yaml: line 2"},
		{"text alone", "ordered\n", "line 1: want keys and values"},
		{"list alone", "- mode: ordered\n", "line 1: want keys and values"},
		{"key twice", "mode: ordered\nmode: ordered\n", "already defined at line 1"},
		{"two documents", "mode: ordered\n---\nmode: single-node\n", "holds another document"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := file(t, tc.text)
			c, err := outboxfx.LoadConfig(path, variables())
			require.Error(t, err)
			require.ErrorContains(t, err, strings.ReplaceAll(tc.want, "FILE", path))
			require.ErrorContains(t, err, path)
			require.Equal(t, outboxfx.Config{}, c)
		})
	}
}

func TestBadVariablesAreNamedOneByOne(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ variable, want string }{
		{"OUTBOX_DISPATCHER_WORKERS_COUNT=8", "OUTBOX_DISPATCHER_WORKERS_COUNT (environment) is no setting; did you mean OUTBOX_DISPATCHER_WORKER_COUNT?"},
		{"OUTBOX_WORKER_COUNT=8", "did you mean OUTBOX_DISPATCHER_WORKER_COUNT?"},
		{"OUTBOX_POLLER_INTERVAL_MS=5000", "did you mean OUTBOX_POLLER_INTERVAL, whose value has its unit"},
		{"OUTBOX_COLOUR=red", "OUTBOX_COLOUR (environment) is no setting"},
		{"OUTBOX_DISPATCHER_MODE=ordered", "OUTBOX_DISPATCHER_MODE (environment) is no setting"},
		{"OUTBOX_MODE=multi", `mode (OUTBOX_MODE) is "multi"; it must be`},
		{"OUTBOX_POLLER_INTERVAL=5", `poller.interval (OUTBOX_POLLER_INTERVAL) is "5", which is no duration`},
		{"OUTBOX_DISPATCHER_WORKER_COUNT=many", `dispatcher.worker-count (OUTBOX_DISPATCHER_WORKER_COUNT) is "many"; it must be a whole number`},
		{"OUTBOX_DISPATCHER_WORKER_COUNT=0", "dispatcher.worker-count (OUTBOX_DISPATCHER_WORKER_COUNT) is 0; it must be positive"},
		{"OUTBOX_DISPATCHER_HOT_QUEUE_CAPACITY=9223372036854775807", "dispatcher.hot-queue-capacity (OUTBOX_DISPATCHER_HOT_QUEUE_CAPACITY) is 9223372036854775807; the limit is 1000000"},
		{"OUTBOX_CREATE_SCHEMA=yes", `create-schema (OUTBOX_CREATE_SCHEMA) is "yes"; it must be true or false`},
		{"OUTBOX_CLAIM_LOCKING_OWNER_ID=n", "claim-locking.owner-id (OUTBOX_CLAIM_LOCKING_OWNER_ID) is set, but the mode single-node does not have it"},
	} {
		t.Run(tc.variable, func(t *testing.T) {
			t.Parallel()
			_, err := outboxfx.LoadConfig("", variables(tc.variable))
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := outboxfx.LoadNamedConfig("orders", "", variables("OUTBOX_ORDERS_POLER_INTERVAL=1s"))
	require.ErrorContains(t, err, "OUTBOX_ORDERS_POLER_INTERVAL (environment) is no setting; did you mean OUTBOX_ORDERS_POLLER_INTERVAL?")
}

func TestVariablesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	c, err := outboxfx.LoadConfig(
		"",
		variables("OUTBOX_ORDERS_MODE=ordered", "OUTBOX_ORDERS_EU_POLLER_INTERVAL=1s", "OUTBOX_TEST_POSTGRES=x", "OUTBOX_IMAGE=v1", "OUTBOX_DEPLOY_ID=7",
			"OUTBOX_PORT=tcp://10.0.0.1:80", "OUTBOX_SERVICE_HOST=10.0.0.1", "OUTBOX_SERVICE_PORT_HTTP=80", "OUTBOX_PORT_80_TCP_ADDR=10.0.0.1", "NOT_OUTBOX_MODE=x"),
		outboxfx.IgnoreVariables("OUTBOX_IMAGE", "OUTBOX_DEPLOY_*"),
	)
	require.NoError(t, err)
	require.Equal(t, outboxfx.Config{}, c)
	c, err = outboxfx.LoadNamedConfig("orders", "", variables("OUTBOX_MODE=nonsense", "OUTBOX_ORDERS_EU_MODE=ordered"))
	require.NoError(t, err)
	require.Equal(t, outboxfx.Config{}, c)
}

func TestEverythingIsReportedAtOnceInOrder(t *testing.T) {
	t.Parallel()
	path := file(t, "purge:\n  retention: 7d\ntabel-name: x\ndispatcher:\n  worker-count: 0\n")
	_, err := outboxfx.LoadConfig(path, variables("OUTBOX_MODE=ordered", "OUTBOX_RETRY_BASE_DELAY=x"))
	var lines []string
	for _, line := range strings.Split(err.Error(), "\n") {
		lines = append(lines, strings.ReplaceAll(line, path, "FILE"))
	}
	require.Equal(t, []string{
		"outboxfx: the configuration is wrong:",
		`purge.retention (FILE:2) is "7d", but there is no unit for days; write 168h`,
		"tabel-name (FILE:3) is no setting; did you mean table-name?",
		`retry.base-delay (OUTBOX_RETRY_BASE_DELAY) is "x", which is no duration; write it with its unit, as in 5s, 200ms or 168h`,
		"dispatcher.worker-count (FILE:5) is 0; it must be positive",
	}, lines)
	var key *outboxfx.KeyError
	require.ErrorAs(t, err, &key)
	require.Equal(t, "purge.retention", key.Key)
	require.Equal(t, path+":2", key.Place)
}

func TestAHintIsOnlyGivenWhenItIsLikely(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"colour: red\n", "dispatcher:\n  queue: 1\n", "mode: cluster\n", strings.Repeat("x", 300) + ": 1\n"} {
		_, err := outboxfx.LoadConfig(file(t, text), variables())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "did you mean")
	}
}

func TestAFileThatIsNotThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing.yaml")
	_, err := outboxfx.LoadConfig(path, variables())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, path)
	_, err = outboxfx.LoadConfig(t.TempDir(), variables())
	require.Error(t, err)
}

func TestNamesThatNoOutboxCanHave(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "9", "a b", `a"`, "dispatcher", "Poller", "claim_locking", "mode", "café"} {
		_, err := outboxfx.LoadNamedConfig(name, "", variables())
		require.Error(t, err, "%q", name)
	}
}

func TestAConfigMadeInCodeIsValidated(t *testing.T) {
	t.Parallel()
	no := false
	err := outboxfx.Config{
		Mode:         outboxfx.MultiNode,
		TableName:    "a-b",
		Dispatcher:   outboxfx.DispatcherConfig{WorkerCount: -1},
		Poller:       outboxfx.PollerConfig{Interval: -time.Second},
		ClaimLocking: outboxfx.ClaimLockingConfig{Enabled: &no, OwnerID: "a\x00"},
		Purge:        outboxfx.PurgeConfig{OnDone: "drop", Retention: -2},
	}.Validate()
	for _, want := range []string{"table-name is", "dispatcher.worker-count is -1;", "poller.interval is -1s;", "claim-locking.enabled is false", "claim-locking.owner-id is no text", "purge.on-done is", "purge.retention is -2ns"} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 7)

	err = outboxfx.Config{Mode: outboxfx.Ordered, Dispatcher: outboxfx.DispatcherConfig{MaxAttempts: 3}}.Validate()
	require.EqualError(t, err, "dispatcher.max-attempts is set, but the mode ordered does not have it; it is for single-node and multi-node")
	require.NoError(t, outboxfx.Config{ClaimLocking: outboxfx.ClaimLockingConfig{Enabled: &no}}.Validate())
}

func TestTheConfigBecomesTheOutboxs(t *testing.T) {
	t.Parallel()
	c := outboxfx.Config{
		Dispatcher: outboxfx.DispatcherConfig{WorkerCount: 1, HotQueueCapacity: 2, ColdQueueCapacity: 3, MaxAttempts: 4, DrainTimeout: 5, ListenerTimeout: 6, DeferUnroutable: time.Second},
		Poller:     outboxfx.PollerConfig{Interval: 7, BatchSize: 8, SkipRecent: 9},
		Purge:      outboxfx.PurgeConfig{Enabled: true, Retention: 10, BatchSize: 11, Interval: 12, OnDone: outboxfx.Delete},
	}
	dispatch := outbox.DispatchOptions{Workers: 1, HotCapacity: 2, ColdCapacity: 3, MaxAttempts: 4, DrainTimeout: 5, ListenerTimeout: 6, OnUnroutable: outbox.Defer(time.Second)}
	poll := outbox.PollOptions{Interval: 7, BatchSize: 8, SkipRecent: 9}
	purge := &outbox.PurgeOptions{Retention: 10, BatchSize: 11, Interval: 12, OnDone: outbox.Delete}
	require.Equal(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: dispatch, Poll: poll}, Purge: purge}, c.OutboxConfig())

	c.Mode, c.ClaimLocking = outboxfx.MultiNode, outboxfx.ClaimLockingConfig{OwnerID: "n", LockTimeout: 13}
	require.Equal(t, outbox.MultiNode{Dispatch: dispatch, Poll: poll, Claim: outbox.ClaimOptions{Owner: "n", LockTimeout: 13}}, c.OutboxConfig().Mode)
	require.Equal(t, outbox.Ordered{Poll: poll}, outboxfx.Config{Mode: outboxfx.Ordered, Poller: c.Poller}.OutboxConfig().Mode)
	require.Equal(t, outbox.WriterOnly{}, outboxfx.Config{Mode: outboxfx.WriterOnly}.OutboxConfig().Mode)

	policy := outboxfx.Config{Retry: outboxfx.RetryConfig{BaseDelay: time.Hour}}.OutboxConfig().RetryPolicy
	require.GreaterOrEqual(t, policy.Delay(1), time.Hour/2)
}
