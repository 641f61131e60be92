package outboxconf_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
	"github.com/outboxkit/outbox-go/outbox"
)

// keyCase is a key with a value as text and as the field.
type keyCase struct {
	key, text string
	mode      outboxfx.Mode // that has the key
	want      func(*outboxfx.Config)
}

func keyCases() []keyCase {
	yes := true
	return []keyCase{
		{"mode", "ordered", "", func(c *outboxfx.Config) { c.Mode = outboxfx.Ordered }},
		{"mode", "MULTI_NODE", "", func(c *outboxfx.Config) { c.Mode = outboxfx.MultiNode }},
		{"table-name", "app.events", "", func(c *outboxfx.Config) { c.Table = "app.events" }},
		{"create-schema", "true", "", func(c *outboxfx.Config) { c.CreateSchema = true }},
		{"unique-keys", "true", "", func(c *outboxfx.Config) { c.UniqueKeys = true }},
		{"program-version", "v1.2.3", "", func(c *outboxfx.Config) { c.Version = "v1.2.3" }},
		{"dispatcher.worker-count", "8", "", func(c *outboxfx.Config) { c.Dispatch.Workers = 8 }},
		{"dispatcher.poller-only", "true", "", func(c *outboxfx.Config) { c.Dispatch.PollerOnly = true }},
		{"dispatcher.hot-queue-capacity", "9", "", func(c *outboxfx.Config) { c.Dispatch.HotCapacity = 9 }},
		{"dispatcher.cold-queue-capacity", "7", "", func(c *outboxfx.Config) { c.Dispatch.ColdCapacity = 7 }},
		{"dispatcher.max-attempts", "3", "", func(c *outboxfx.Config) { c.Dispatch.MaxAttempts = 3 }},
		{"dispatcher.max-attempts", "endless", "", func(c *outboxfx.Config) { c.Dispatch.MaxAttempts = outbox.Endless }},
		{"dispatcher.drain-timeout", "2s", "", func(c *outboxfx.Config) { c.Dispatch.DrainTimeout = 2 * time.Second }},
		{"dispatcher.drain-timeout", "PT1H2M3.5S", outboxfx.Ordered, func(c *outboxfx.Config) {
			c.Dispatch.DrainTimeout = time.Hour + 2*time.Minute + 3500*time.Millisecond
		}},
		{"dispatcher.listener-timeout", "1m30s", outboxfx.Ordered, func(c *outboxfx.Config) { c.Dispatch.ListenerTimeout = 90 * time.Second }},
		{"dispatcher.listener-timeout", "0s", "", func(*outboxfx.Config) {}},
		{"dispatcher.on-unroutable", "leave", outboxfx.Ordered, func(c *outboxfx.Config) { c.Dispatch.OnUnroutable = outboxfx.LeaveUnroutable }},
		{"dispatcher.on-unroutable", "dead", outboxfx.MultiNode, func(c *outboxfx.Config) { c.Dispatch.OnUnroutable = outboxfx.KillUnroutable }},
		{"dispatcher.mark-interval", "10ms", "", func(c *outboxfx.Config) { c.Dispatch.MarkInterval = 10 * time.Millisecond }},
		{"kinds", "[{event-type: Paid, expires: 1h}]", "", func(c *outboxfx.Config) {
			c.Kinds = []outboxfx.KindConfig{{EventType: "Paid", Expires: time.Hour}}
		}},
		{"kinds", "[{event-type: Paid, aggregate-type: order, concurrency: 2, rate: 0.5, burst: 3, fleetwide: true, key-concurrency: 1, key-rate: 0.1, max-attempts: endless, retry: {base-delay: 1s, max-delay: 1h}, listener-timeout: 0s, expires: 7d, drop-expired: true, on-done: delete, max-due-age: 5s, breaker: {failures: 5, pause: 1m, per-key: true}}, {event-type: Sent, rate: 10}]", "", func(c *outboxfx.Config) {
			c.Kinds = []outboxfx.KindConfig{{
				EventType: "Paid", AggregateType: "order", Concurrency: 2, Rate: 0.5, Burst: 3, Fleetwide: true, KeyConcurrency: 1, KeyRate: 0.1, MaxAttempts: outbox.Endless,
				Retry: outboxfx.RetryConfig{BaseDelay: time.Second, MaxDelay: time.Hour}, ListenerTimeout: outbox.NoTimeout,
				Expires: 7 * 24 * time.Hour, DropExpired: true, OnDone: outboxfx.Delete, MaxDueAge: 5 * time.Second,
				Breaker: outboxfx.BreakerConfig{Failures: 5, Pause: time.Minute, PerKey: true},
			}, {EventType: "Sent", Rate: 10}}
		}},
		{"retry.base-delay", "50ms", "", func(c *outboxfx.Config) { c.Retry.BaseDelay = 50 * time.Millisecond }},
		{"retry.max-delay", "PT10S", "", func(c *outboxfx.Config) { c.Retry.MaxDelay = 10 * time.Second }},
		{"poller.interval", "1s", "", func(c *outboxfx.Config) { c.Poll.Interval = time.Second }},
		{"poller.batch-size", "50", "", func(c *outboxfx.Config) { c.Poll.BatchSize = 50 }},
		{"poller.skip-recent", "250ms", "", func(c *outboxfx.Config) { c.Poll.SkipRecent = 250 * time.Millisecond }},
		{"claim-locking.enabled", "true", outboxfx.MultiNode, func(c *outboxfx.Config) { c.Claim.Enabled = &yes }},
		{"claim-locking.owner-id", "007", outboxfx.MultiNode, func(c *outboxfx.Config) { c.Claim.Owner = "007" }},
		{"claim-locking.lock-timeout", "PT5M", outboxfx.MultiNode, func(c *outboxfx.Config) { c.Claim.LeaseDuration = 5 * time.Minute }},
		{"claim-locking.tenants-in-turn", "true", outboxfx.MultiNode, func(c *outboxfx.Config) { c.Claim.TenantsInTurn = true }},
		{"ordering.on-dead", "skip", outboxfx.OrderedByKey, func(c *outboxfx.Config) { c.Ordering.OnDead = outboxfx.SkipDead }},
		{"ordering.run-length", "10", outboxfx.OrderedByKey, func(c *outboxfx.Config) { c.Ordering.RunLength = 10 }},
		{"ordering.require-key", "true", outboxfx.OrderedByKey, func(c *outboxfx.Config) { c.Ordering.RequireKey = true }},
		{"purge.enabled", "true", "", func(c *outboxfx.Config) { c.Purge.Enabled = &yes }},
		{"purge.retention", "24h", "", func(c *outboxfx.Config) { c.Purge.Retention = 24 * time.Hour }},
		{"purge.retention", "7d", "", func(c *outboxfx.Config) { c.Purge.Retention = 168 * time.Hour }},
		{"purge.retention", "P7D", "", func(c *outboxfx.Config) { c.Purge.Retention = 168 * time.Hour }},
		{"purge.retention", "P1DT12H", "", func(c *outboxfx.Config) { c.Purge.Retention = 36 * time.Hour }},
		{"purge.retention", "0s", "", func(c *outboxfx.Config) { c.Purge.Retention = outbox.NoRetention }},
		{"purge.retention", "0", "", func(c *outboxfx.Config) { c.Purge.Retention = outbox.NoRetention }},
		{"purge.batch-size", "100", "", func(c *outboxfx.Config) { c.Purge.BatchSize = 100 }},
		{"purge.interval", "10m", "", func(c *outboxfx.Config) { c.Purge.Interval = 10 * time.Minute }},
		{"purge.on-done", "delete", "", func(c *outboxfx.Config) { c.Purge.OnDone = outboxfx.Delete }},
		{"purge.undelivered", "true", outboxfx.WriterOnly, func(c *outboxfx.Config) { c.Purge.Undelivered = true }},
		{"metrics.enabled", "true", "", func(c *outboxfx.Config) { c.Metrics.Enabled = &yes }},
		{"metrics.name-prefix", "shop", "", func(c *outboxfx.Config) { c.Metrics.NamePrefix = "shop" }},
		{"tracing.enabled", "true", "", func(c *outboxfx.Config) { c.Tracing.Enabled = &yes }},
	}
}

// extra is what a key needs besides its mode: purge.enabled, for the others of purge.
func extra(key string) (text string, env []string, want func(*outboxfx.Config)) {
	if !strings.HasPrefix(key, "purge.") || key == "purge.enabled" {
		return "", nil, func(*outboxfx.Config) {}
	}
	return "purge.enabled: false\n", []string{"OUTBOX_PURGE_ENABLED=false"}, func(c *outboxfx.Config) { c.Purge.Enabled = new(bool) }
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

func variables(list ...string) outboxconf.Option { return outboxconf.Environ(list) }
