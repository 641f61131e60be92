package outboxconf_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
)

func TestEachKeyComesFromYAMLAndFromItsVariable(t *testing.T) {
	t.Parallel()
	for _, tc := range keyCases() {
		t.Run(tc.key+" "+tc.text, func(t *testing.T) {
			t.Parallel()
			want := outboxfx.Config{Mode: tc.mode}
			tc.want(&want)
			moreText, moreEnv, more := extra(tc.key)
			more(&want)
			text, env, named := yamlOf(tc.key, tc.text)+moreText, append(moreEnv, variableOf(tc.key)+"="+tc.text), []string{}
			if tc.mode != "" {
				text, env = text+"mode: "+string(tc.mode)+"\n", append(env, "OUTBOX_MODE="+string(tc.mode))
			}
			got, err := outboxconf.Load(file(t, text), variables())
			require.NoError(t, err)
			require.Equal(t, want, got)

			got, err = outboxconf.Load("", variables(env...))
			require.NoError(t, err)
			require.Equal(t, want, got)

			for _, v := range env {
				named = append(named, "OUTBOX_ORDERS_EU_"+strings.TrimPrefix(v, "OUTBOX_"))
			}
			got, err = outboxconf.Load("", variables(named...), outboxconf.Named("orders-eu"))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestAVariableTakesPrecedenceOverTheFile(t *testing.T) {
	t.Parallel()
	path := file(t, "mode: multi-node\ndispatcher:\n  worker-count: 2\n  max-attempts: 3\n")
	c, err := outboxconf.Load(path, variables("OUTBOX_DISPATCHER_WORKER_COUNT= 8 ", "OUTBOX_MODE=single-node", "OUTBOX_TABLE_NAME=", "OUTBOX_DISPATCHER_MAX_ATTEMPTS=", "PATH=/bin"))
	require.NoError(t, err)
	require.Equal(t, outboxfx.Config{Mode: outboxfx.SingleNode, Dispatch: outboxfx.DispatchConfig{Workers: 8, MaxAttempts: 3}}, c)
}

func TestTheProcessEnvironmentIsTheDefault(t *testing.T) {
	t.Setenv("OUTBOX_ENVTEST_MODE", "ordered")
	c, err := outboxconf.Load("", outboxconf.Named("envtest"))
	require.NoError(t, err)
	require.Equal(t, outboxfx.Ordered, c.Mode)
}

func TestNothingSetIsTheDefault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n", "dispatcher:\npurge: {}\n"} {
		c, err := outboxconf.Load(file(t, text), variables())
		require.NoError(t, err, "%q", text)
		require.Equal(t, outboxfx.Config{}, c)
	}
}

func TestASectionOfALargerFile(t *testing.T) {
	t.Parallel()
	const text = "server:\n  port: 8080\nbase: &base\n  poller: {interval: 1s}\noutbox: *base\noutboxes:\n  orders:\n    mode: ordered\n    poller.interval: 1s\n  none:\n  number: 5\n"
	path := file(t, text)
	for section, want := range map[string]outboxfx.Config{
		"outbox":          {Poll: outboxfx.PollConfig{Interval: time.Second}},
		"outboxes.orders": {Mode: outboxfx.Ordered, Poll: outboxfx.PollConfig{Interval: time.Second}},
		"outboxes.none":   {},
	} {
		c, err := outboxconf.Load(path, variables(), outboxconf.Section(section))
		require.NoError(t, err)
		require.Equal(t, want, c)
	}
	for section, want := range map[string]string{
		"outboxes.stock":  `has no section "outboxes.stock"`,
		"outboxes.number": "line 11: needs keys and values",
		"outboxes":        `orders (` + path + `:8) is not a setting, but has settings below it; outboxconf.Section("orders") reads them`,
	} {
		_, err := outboxconf.Load(path, variables(), outboxconf.Section(section))
		require.ErrorContains(t, err, want)
	}
	_, err := outboxconf.Load("", variables(), outboxconf.Section("outbox"))
	require.ErrorContains(t, err, "the path is empty")
	_, err = outboxconf.Load("no such file", variables())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestKeysBelowASectionHintAtTheOption(t *testing.T) {
	t.Parallel()
	path := file(t, "outbox:\n  mode: ordered\n  poller:\n    interval: 1s\n")
	_, err := outboxconf.Load(path, variables())
	require.EqualError(t, err, "outboxconf: the configuration is wrong:\noutbox ("+path+`:2) is not a setting, but has settings below it; outboxconf.Section("outbox") reads them`)
}

func TestAFileIsBoundedBeforeItIsParsed(t *testing.T) {
	t.Parallel()
	var keys strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&keys, "key-%d: 1\n", i)
	}
	bomb := "a: &a {x: 1, y: 1}\n"
	for c := 'b'; c < 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%c {x: *%c, y: *%c}\n", c, c, c-1, c-1)
	}
	for text, want := range map[string]string{
		keys.String():                     fmt.Sprintf("has %d bytes; the limit is 1048576", keys.Len()),
		strings.Repeat("k: 1\n", 200_000): "has more keys than the limit, 1000",
		bomb:                              "has more keys than the limit, 1000",
		"a: &a {b: *a}\n":                 "has more keys than the limit, 1000",
		strings.Repeat("# \n", 1e6):       "the limit is 1048576",
	} {
		begun := time.Now()
		_, err := outboxconf.Load(file(t, text), variables())
		require.ErrorContains(t, err, want)
		require.Less(t, time.Since(begun), time.Minute)
	}
}

func TestBadFilesAreNamedKeyByKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{"mode: ordered\ntabel-name: x\n", "tabel-name (FILE:2) is not a setting; did you mean table-name?"},
		{"flavour: red\n", "flavour (FILE:1) is not a setting"},
		{"worker-count: 8\n", "worker-count (FILE:1) is not a setting; did you mean dispatcher.worker-count?"},
		{"dispatcher: {workerCount: 8}\n", "dispatcher.workerCount (FILE:1) is not a setting; did you mean dispatcher.worker-count?"},
		{"claimLocking:\n  lockTimeout: 1m\n", "claimLocking.lockTimeout (FILE:2) is not a setting; did you mean claim-locking.lock-timeout?"},
		{"poller:\n  interval-ms: 5000\n", "poller.interval-ms (FILE:2) is not a setting; did you mean poller.interval, whose value has its unit, as in 5s?"},
		{"dispatcher: 8\n", `dispatcher (FILE:1) is "8", but it is a section with keys of its own`},
		{"mode:\n  name: ordered\n", "mode.name (FILE:2) is not a setting"},
		{"mode: multi\n", `mode (FILE:1) is "multi"; it must be one of single-node, multi-node, ordered-by-key, ordered, writer-only`},
		{"mode: [ordered]\n", "mode (FILE:1) is a list; it takes one value"},
		{"kinds: []\n", "kinds (FILE:1) has no kind"},
		{"kinds: 3\n", "kinds (FILE:1) is not a list of kinds"},
		{"mode: ordered\nkinds:\n- {event: Paid}\n", "kinds (FILE:2) has a wrong element 0: event is unknown; the keys are aggregate-type, breaker.failures, breaker.pause, breaker.per-key, burst"},
		{"kinds: [{event-type: Paid}, {event-type: Sent, rate: fast}]\n", "kinds (FILE:1) has a wrong element 1: rate is \"fast\"; it must be a number"},
		{"kinds: [{event-type: Paid, expires: 5}]\n", "kinds (FILE:1) has a wrong element 0: expires is 5, which has no unit; did you mean 5s?"},
		{"kinds: [{event-type: Paid, retry: 5s}]\n", "kinds (FILE:1) has a wrong element 0: retry is \"5s\", but it is a section with keys of its own"},
		{"kinds: [{event-type: Paid, retention: 0s}]\n", "kinds[0].retention (FILE:1) is set, but purge.enabled is not"},
		{"kinds: [Paid]\n", "kinds (FILE:1) has a wrong element 0: it needs keys and values"},
		{"poller:\n  interval:\n", "poller.interval (FILE:2) has no value"},
		{"poller:\n  interval: 5\n", "poller.interval (FILE:2) is 5, which has no unit; did you mean 5s?"},
		{"poller:\n  interval: 5000\n", "poller.interval (FILE:2) is 5000, which has no unit; did you mean 5000ms?"},
		{"poller:\n  interval: soon\n", `poller.interval (FILE:2) is "soon", which is not a duration; write it as 5s, 200ms, 168h, 7d or PT5M`},
		{"poller:\n  interval: P1M\n", `poller.interval (FILE:2) is "P1M", which is not a duration`},
		{"poller:\n  interval: -1s\n", "poller.interval (FILE:2) is -1s; it must not be negative"},
		{"poller:\n  interval: 0s\n", "poller.interval (FILE:2) is 0s; it must be positive"},
		{"poller:\n  interval: 9999999h\n", "poller.interval (FILE:2) is"},
		{"dispatcher:\n  worker-count: many\n", `dispatcher.worker-count (FILE:2) is "many"; it must be a whole number`},
		{"dispatcher:\n  worker-count: 1.5\n", `dispatcher.worker-count (FILE:2) is "1.5"; it must be a whole number`},
		{"dispatcher:\n  worker-count: 99999999999999999999\n", "it must be a whole number"},
		{"dispatcher:\n  worker-count: 0\n", "dispatcher.worker-count (FILE:2) is 0; it must be positive"},
		{"dispatcher:\n  max-attempts: -2\n", "dispatcher.max-attempts (FILE:2) is -2; it must be positive, or outbox.Endless"},
		{"create-schema: sure\n", `create-schema (FILE:1) is "sure"; it must be true or false`},
		{"purge:\n  ~: 5s\n", "purge.~ (FILE:2) is not a setting"},
		{"poller.interval: 1s\npoller:\n  interval: 2s\n", "poller.interval (FILE:3) is set twice, in lines 1 and 3"},
		{"mode: ordered\nmode: ordered\n", "mode (FILE:2) is set twice"},
		{"mode: ordered\ndispatcher:\n  worker-count: 4\n", "dispatcher.worker-count (FILE:3) is set, but the mode ordered does not have it; it is for single-node, multi-node, ordered-by-key"},
		{"purge: {retention: 3d}\n", "purge.retention (FILE:1) is set, but purge.enabled is not; set that to true to delete old rows, or to false to keep them"},
		{"mode: [ordered\n", "does not parse: yaml: "},
		{"dispatcher:\n\tworker-count: 8\n", "does not parse: yaml: line 2"},
		{"ordered\n", "line 1: needs keys and values"},
		{"- mode: ordered\n", "line 1: needs keys and values"},
		{"mode: ordered\n---\nmode: single-node\n", "has a second document in line"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			t.Parallel()
			path := file(t, tc.text)
			c, err := outboxconf.Load(path, variables())
			require.ErrorContains(t, err, strings.ReplaceAll(tc.want, "FILE", path))
			require.ErrorContains(t, err, path)
			require.Equal(t, outboxfx.Config{}, c)
		})
	}
}

// Some of the rules are those of package outbox, which has other names for the settings.
func TestAValueOutOfRangeIsReportedWithItsKeyAndItsLine(t *testing.T) {
	t.Parallel()
	modes := map[string]outboxfx.Mode{}
	for _, tc := range keyCases() {
		modes[tc.key] = tc.mode
	}
	problems := map[string][2]string{ // by key: a value, and what is wrong with it
		"mode":                           {"multi", ` is "multi"; it must be one of single-node, multi-node, ordered-by-key, ordered, writer-only`},
		"table-name":                     {"a-b", ` is given "a-b" (3 bytes); a table name is letters, digits and underscores, at most 63 of them, not starting with a digit, optionally schema.table`},
		"program-version":                {strings.Repeat("1", 129), " is 129 characters long; the limit is 128"},
		"dispatcher.worker-count":        {"10001", " is 10001; the limit is 10000"},
		"dispatcher.hot-queue-capacity":  {"1000001", " is 1000001; the limit is 1000000"},
		"dispatcher.cold-queue-capacity": {"1000001", " is 1000001; the limit is 1000000"},
		"dispatcher.max-attempts":        {"-2", " is -2; it must be positive, or outbox.Endless"},
		"dispatcher.drain-timeout":       {"1ns", " is 1ns, less than a millisecond; did you mean 1s?"},
		"dispatcher.listener-timeout":    {"1ns", " is 1ns, less than a millisecond; did you mean 1s?"},
		"dispatcher.on-unroutable":       {"defer", ` is "defer"; it must be one of leave, dead`},
		"dispatcher.mark-interval":       {"-1s", " is -1s; it must not be negative"},
		"kinds":                          {"[{event-type: Paid, rate: 1}, {event-type: Sent, rate: 2e6}]", "[1].rate is 2e+06 deliveries a second; the limit is 1e+06"},
		"retry.base-delay":               {"-1s", " is -1s; it must not be negative"},
		"retry.max-delay":                {"-1s", " is -1s; it must not be negative"},
		"poller.interval":                {"1us", " is 1µs, less than a millisecond; did you mean 16m40s?"},
		"poller.batch-size":              {"100001", " is 100001; the limit is 100000"},
		"poller.skip-recent":             {"1ns", " is 1ns, less than a millisecond; did you mean 1s?"},
		"claim-locking.owner-id":         {strings.Repeat("n", 113), " is 113 characters long; the limit is 112"},
		"claim-locking.lock-timeout":     {"300ns", " is 300ns, less than a millisecond; did you mean 5m0s?"},
		"ordering.on-dead":               {"drop", ` is "drop"; it must be one of block, skip`},
		"ordering.run-length":            {"501", " is 501; the limit is 500"},
		"purge.retention":                {"1ns", " is 1ns, less than a millisecond; did you mean 1s?"},
		"purge.batch-size":               {"100001", " is 100001; the limit is 100000"},
		"purge.interval":                 {"1ns", " is 1ns, less than a millisecond; did you mean 1s?"},
		"purge.on-done":                  {"drop", ` is "drop"; it must be one of keep, delete`},
		"metrics.name-prefix":            {}, // the metrics check it
	}
	for key, field := range new(outboxfx.Config).Settings() {
		switch field.(type) {
		case *bool, **bool: // are never out of range
			continue
		}
		require.Contains(t, problems, key)
		text, problem := problems[key][0], problems[key][1]
		if text == "" {
			continue
		}
		more, env, _ := extra(key)
		env = append(env, variableOf(key)+"="+text)
		if mode := modes[key]; mode != "" {
			more, env = more+"mode: "+string(mode)+"\n", append(env, "OUTBOX_MODE="+string(mode))
		}
		name, rest, _ := strings.Cut(problem, " ")
		path := file(t, more+yamlOf(key, text))
		line := 1 + strings.Count(more, "\n") + strings.Count(key, ".")
		_, err := outboxconf.Load(path, variables())
		require.EqualError(t, err, fmt.Sprintf("outboxconf: the configuration is wrong:\n%s%s (%s:%d) %s", key, name, path, line, rest))
		_, err = outboxconf.Load("", variables(env...))
		require.EqualError(t, err, fmt.Sprintf("outboxconf: the configuration is wrong:\n%s%s (%s) %s", key, name, variableOf(key), rest))
	}
}

func TestThePurgersSettingsNeedToKnowWhetherItRuns(t *testing.T) {
	t.Parallel()
	for text, variable := range map[string]string{
		"purge: {enabled: true, retention: 3d}\n":  "",
		"purge: {enabled: false, retention: 3d}\n": "",
		"purge: {retention: 3d}\n":                 "OUTBOX_PURGE_ENABLED=true",
		"purge: {enabled: true}\n":                 "OUTBOX_PURGE_RETENTION=3d",
	} {
		c, err := outboxconf.Load(file(t, text), variables(variable))
		require.NoError(t, err, text)
		require.Equal(t, 3*24*time.Hour, c.Purge.Retention)
		require.Equal(t, !strings.Contains(text, "false"), *c.Purge.Enabled)
	}
}

func TestVariablesThatResembleASettingAreNamed(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"OUTBOX_DISPATCHER_WORKERS=8":             "OUTBOX_DISPATCHER_WORKERS (environment) is not a setting; did you mean OUTBOX_DISPATCHER_WORKER_COUNT?",
		"OUTBOX_WORKER_COUNT=8":                   "did you mean OUTBOX_DISPATCHER_WORKER_COUNT?",
		"OUTBOX_POLLER_INTERVAL_MS=5000":          "did you mean OUTBOX_POLLER_INTERVAL, whose value has its unit",
		"OUTBOX_MODE=multi":                       `mode (OUTBOX_MODE) is "multi"; it must be`,
		"OUTBOX_POLLER_INTERVAL=5":                "poller.interval (OUTBOX_POLLER_INTERVAL) is 5, which has no unit; did you mean 5s?",
		"OUTBOX_DISPATCHER_WORKER_COUNT=many":     `dispatcher.worker-count (OUTBOX_DISPATCHER_WORKER_COUNT) is "many"`,
		"OUTBOX_PURGE_INTERVAL=1h":                "purge.interval (OUTBOX_PURGE_INTERVAL) is set, but purge.enabled is not; set that to true",
		"OUTBOX_CLAIM_LOCKING_OWNER_ID=n":         "claim-locking.owner-id (OUTBOX_CLAIM_LOCKING_OWNER_ID) is set, but the mode single-node does not have it",
		"OUTBOX_SERVICE_HOST=10.0.0.1":            "", // what Kubernetes sets for a service named outbox
		"OUTBOX_PORT_8080_TCP_ADDR=10.0.0.1":      "",
		"OUTBOX_METRICS_SERVICE_PORT_METRICS=80":  "",
		"OUTBOX_ORDERS_POLLER_INTERVAL=nonsense":  "", // another outbox's
		"OUTBOX_EU_MODE=nonsense":                 "",
		"OUTBOX_TEST_POSTGRES_DSN=postgres://x/y": "",
		"OUTBOX_COLOUR=red":                       "",
	} {
		_, err := outboxconf.Load("", variables(variable))
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

func TestEverythingThatIsWrongIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	path := file(t, "dispatcher:\n  workercount: 8\npoller:\n  interval: soon\n")
	_, err := outboxconf.Load(path, variables("OUTBOX_CREATE_SCHEMA=sure"))
	var key *outboxfx.KeyError
	require.ErrorAs(t, err, &key)
	require.Equal(t, outboxfx.KeyError{Key: "dispatcher.workercount", Place: path + ":2", Problem: "is not a setting; did you mean dispatcher.worker-count?"}, *key)
	require.ErrorContains(t, err, "poller.interval")
	require.ErrorContains(t, err, "create-schema (OUTBOX_CREATE_SCHEMA)")
}
