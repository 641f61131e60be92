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

// keyCase is a key with a value that differs from its default, as text and as
// the field.
type keyCase struct {
	key, text string
	mode      outboxfx.Mode // that has the key
	want      func(*outboxfx.Config)
}

func keyCases() []keyCase {
	yes := true
	return []keyCase{
		{"mode", "ordered", "", func(c *outboxfx.Config) { c.Mode = outboxfx.Ordered }},
		{"table-name", "app.events", "", func(c *outboxfx.Config) { c.TableName = "app.events" }},
		{"create-schema", "true", "", func(c *outboxfx.Config) { c.CreateSchema = true }},
		{"dispatcher.worker-count", "8", "", func(c *outboxfx.Config) { c.Dispatcher.WorkerCount = 8 }},
		{"dispatcher.hot-queue-capacity", "9", "", func(c *outboxfx.Config) { c.Dispatcher.HotQueueCapacity = 9 }},
		{"dispatcher.cold-queue-capacity", "7", "", func(c *outboxfx.Config) { c.Dispatcher.ColdQueueCapacity = 7 }},
		{"dispatcher.max-attempts", "3", "", func(c *outboxfx.Config) { c.Dispatcher.MaxAttempts = 3 }},
		{"dispatcher.drain-timeout", "2s", "", func(c *outboxfx.Config) { c.Dispatcher.DrainTimeout = 2 * time.Second }},
		{"dispatcher.listener-timeout", "1m30s", "", func(c *outboxfx.Config) { c.Dispatcher.ListenerTimeout = 90 * time.Second }},
		{"dispatcher.defer-unroutable", "30s", "", func(c *outboxfx.Config) { c.Dispatcher.DeferUnroutable = 30 * time.Second }},
		{"retry.base-delay", "50ms", "", func(c *outboxfx.Config) { c.Retry.BaseDelay = 50 * time.Millisecond }},
		{"retry.max-delay", "10s", "", func(c *outboxfx.Config) { c.Retry.MaxDelay = 10 * time.Second }},
		{"poller.interval", "1s", "", func(c *outboxfx.Config) { c.Poller.Interval = time.Second }},
		{"poller.batch-size", "50", "", func(c *outboxfx.Config) { c.Poller.BatchSize = 50 }},
		{"poller.skip-recent", "250ms", "", func(c *outboxfx.Config) { c.Poller.SkipRecent = 250 * time.Millisecond }},
		{"claim-locking.enabled", "true", outboxfx.MultiNode, func(c *outboxfx.Config) { c.ClaimLocking.Enabled = &yes }},
		{"claim-locking.owner-id", "node-1", outboxfx.MultiNode, func(c *outboxfx.Config) { c.ClaimLocking.OwnerID = "node-1" }},
		{"claim-locking.lock-timeout", "2m", outboxfx.MultiNode, func(c *outboxfx.Config) { c.ClaimLocking.LockTimeout = 2 * time.Minute }},
		{"purge.enabled", "true", "", func(c *outboxfx.Config) { c.Purge.Enabled = true }},
		{"purge.retention", "24h", "", func(c *outboxfx.Config) { c.Purge.Retention = 24 * time.Hour }},
		{"purge.batch-size", "100", "", func(c *outboxfx.Config) { c.Purge.BatchSize = 100 }},
		{"purge.interval", "10m", "", func(c *outboxfx.Config) { c.Purge.Interval = 10 * time.Minute }},
		{"purge.on-done", "delete", "", func(c *outboxfx.Config) { c.Purge.OnDone = outboxfx.Delete }},
		{"metrics.enabled", "true", "", func(c *outboxfx.Config) { c.Metrics.Enabled = &yes }},
		{"metrics.name-prefix", "shop", "", func(c *outboxfx.Config) { c.Metrics.NamePrefix = "shop" }},
		{"tracing.enabled", "true", "", func(c *outboxfx.Config) { c.Tracing.Enabled = &yes }},
	}
}

// yamlOf is a nested document with one key.
func yamlOf(key, text string) string {
	section, leaf, nested := strings.Cut(key, ".")
	if !nested {
		return key + ": " + text + "\n"
	}
	return section + ":\n  " + leaf + ": " + text + "\n"
}

// variableOf is a key's variable.
func variableOf(key string) string {
	return "OUTBOX_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(key))
}

// file writes a configuration.
func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func variables(list ...string) outboxfx.LoadOption { return outboxfx.Environ(list) }

func TestEachKeyComesFromYAMLAndFromItsVariable(t *testing.T) {
	t.Parallel()
	for _, tc := range keyCases() {
		t.Run(tc.key, func(t *testing.T) {
			t.Parallel()
			want := outboxfx.Config{Mode: tc.mode}
			tc.want(&want)
			text := yamlOf(tc.key, tc.text)
			if tc.mode != "" {
				text += "mode: " + string(tc.mode) + "\n"
			}
			got, err := outboxfx.LoadConfig(file(t, text), variables())
			require.NoError(t, err)
			require.Equal(t, want, got)

			env := []string{variableOf(tc.key) + "=" + tc.text}
			if tc.mode != "" {
				env = append(env, "OUTBOX_MODE="+string(tc.mode))
			}
			got, err = outboxfx.LoadConfig("", variables(env...))
			require.NoError(t, err)
			require.Equal(t, want, got)

			named := []string{}
			for _, v := range env {
				named = append(named, "OUTBOX_ORDERS_EU_"+strings.TrimPrefix(v, "OUTBOX_"))
			}
			got, err = outboxfx.LoadNamedConfig("orders-eu", "", variables(named...))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestAVariableStandsAboveTheFile(t *testing.T) {
	t.Parallel()
	path := file(t, "mode: multi-node\ndispatcher:\n  worker-count: 2\n  max-attempts: 3\n")
	c, err := outboxfx.LoadConfig(path, variables("OUTBOX_DISPATCHER_WORKER_COUNT= 8 ", "OUTBOX_MODE=single-node", "OUTBOX_TABLE_NAME=", "OUTBOX_DISPATCHER_MAX_ATTEMPTS=", "OUTBOX_COLOUR=", "PATH=/bin"))
	require.NoError(t, err)
	require.Equal(t, outboxfx.Config{
		Mode:       outboxfx.SingleNode,
		Dispatcher: outboxfx.DispatcherConfig{WorkerCount: 8, MaxAttempts: 3},
	}, c)
}

func TestNothingSetIsTheDefault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n", "dispatcher:\npurge: {}\n"} {
		c, err := outboxfx.LoadConfig(file(t, text), variables())
		require.NoError(t, err, "%q", text)
		require.Equal(t, outboxfx.Config{}, c)
	}
	require.NoError(t, outboxfx.Config{}.Validate())
	require.Equal(t, outbox.Config{Mode: outbox.SingleNode{}}, outboxfx.Config{}.OutboxConfig())
}

func TestDefaultsAreValidInEveryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []outboxfx.Mode{"", outboxfx.SingleNode, outboxfx.MultiNode, outboxfx.Ordered, outboxfx.WriterOnly} {
		c := outboxfx.Config{Mode: mode}.WithDefaults()
		require.NoError(t, c.Validate(), "%q", mode)
		require.Equal(t, c, c.WithDefaults())
	}
}

func TestZeroRetentionKeepsNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0s", "0", "\"0\""} {
		c, err := outboxfx.LoadConfig(file(t, "purge:\n  enabled: true\n  retention: "+text+"\n"), variables())
		require.NoError(t, err)
		require.Equal(t, outbox.NoRetention, c.OutboxConfig().Purge.Retention)
	}
	require.NoError(t, outboxfx.Config{Purge: outboxfx.PurgeConfig{Retention: outbox.NoRetention}}.Validate())
}

func TestASectionOfALargerFile(t *testing.T) {
	t.Parallel()
	path := file(t, "server:\n  port: 8080\noutboxes:\n  orders:\n    mode: ordered\n    poler:\n      interval: 1s\n")
	_, err := outboxfx.LoadConfig(path, variables(), outboxfx.Section("outboxes.orders"))
	require.ErrorContains(t, err, "poler.interval ("+path+":7) is no setting; did you mean poller.interval?")
	_, err = outboxfx.LoadConfig(path, variables(), outboxfx.Section("outboxes.stock"))
	require.ErrorContains(t, err, `has no section "outboxes.stock"`)
	_, err = outboxfx.LoadConfig("", variables(), outboxfx.Section("outbox"))
	require.ErrorContains(t, err, "the path is empty")

	path = file(t, "outbox:\n  mode: ordered\n  poller.interval: 1s\n")
	c, err := outboxfx.LoadConfig(path, variables("OUTBOX_POLLER_INTERVAL=2s"), outboxfx.Section("outbox"))
	require.NoError(t, err)
	require.Equal(t, outboxfx.Config{Mode: outboxfx.Ordered, Poller: outboxfx.PollerConfig{Interval: 2 * time.Second}}, c)
}

func TestASectionThatIsNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"outbox: 5\n":       `has 5 where the section "outbox" should be, with keys of its own`,
		"outbox: ordered\n": `has "ordered" where the section "outbox" should be`,
		"outbox: [1, 2]\n":  `has a list where the section "outbox" should be`,
		"outbox: true\n":    `has true where the section "outbox" should be`,
	} {
		_, err := outboxfx.LoadConfig(file(t, text), variables(), outboxfx.Section("outbox"))
		require.ErrorContains(t, err, want)
	}
	// Nothing in it is nothing set, and the keys of others are theirs.
	for _, text := range []string{"outbox:\n", "outbox: {}\n", "outbox:\nother:\n  ~: x\n"} {
		c, err := outboxfx.LoadConfig(file(t, text), variables(), outboxfx.Section("outbox"))
		require.NoError(t, err)
		require.Equal(t, outboxfx.Config{}, c)
	}
	path := file(t, "outbox:\n  ~: x\n")
	_, err := outboxfx.LoadConfig(path, variables(), outboxfx.Section("outbox"))
	require.ErrorContains(t, err, "null ("+path+":2) is no setting")
}

func TestTheProcessEnvironmentIsTheDefault(t *testing.T) {
	t.Setenv("OUTBOX_ENVTEST_MODE", "ordered")
	c, err := outboxfx.LoadNamedConfig("envtest", "")
	require.NoError(t, err)
	require.Equal(t, outboxfx.Ordered, c.Mode)
}
