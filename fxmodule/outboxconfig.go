package outboxfx

import (
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// OutboxConfig is the part of an [outbox.Config] that the configuration says:
// Mode, Purge and RetryPolicy. The Config must be valid; see [Config.Validate].
func (c Config) OutboxConfig() outbox.Config {
	cfg := outbox.Config{Mode: c.mode()}
	if c.Purge.Enabled {
		cfg.Purge = &outbox.PurgeOptions{Retention: c.Purge.Retention, BatchSize: c.Purge.BatchSize, Interval: c.Purge.Interval}
		if c.Purge.OnDone == Delete {
			cfg.Purge.OnDone = outbox.Delete
		}
	}
	if c.Retry != (RetryConfig{}) {
		cfg.RetryPolicy = outbox.ExponentialBackoff(c.Retry.BaseDelay, c.Retry.MaxDelay)
	}
	return cfg
}

func (c Config) mode() outbox.Mode {
	dispatch := outbox.DispatchOptions{
		Workers:         c.Dispatcher.WorkerCount,
		HotCapacity:     c.Dispatcher.HotQueueCapacity,
		ColdCapacity:    c.Dispatcher.ColdQueueCapacity,
		MaxAttempts:     c.Dispatcher.MaxAttempts,
		DrainTimeout:    c.Dispatcher.DrainTimeout,
		ListenerTimeout: c.Dispatcher.ListenerTimeout,
	}
	if c.Dispatcher.DeferUnroutable > 0 {
		dispatch.OnUnroutable = outbox.Defer(c.Dispatcher.DeferUnroutable)
	}
	poll := outbox.PollOptions{Interval: c.Poller.Interval, BatchSize: c.Poller.BatchSize, SkipRecent: c.Poller.SkipRecent}
	switch c.Mode {
	case MultiNode:
		return outbox.MultiNode{Dispatch: dispatch, Poll: poll, Claim: outbox.ClaimOptions{
			Owner: c.ClaimLocking.OwnerID, LockTimeout: c.ClaimLocking.LockTimeout,
		}}
	case Ordered:
		return outbox.Ordered{Poll: poll}
	case WriterOnly:
		return outbox.WriterOnly{}
	default:
		return outbox.SingleNode{Dispatch: dispatch, Poll: poll}
	}
}

func (c Config) storeOptions() []sqlstore.Option {
	if c.TableName == "" {
		return nil
	}
	return []sqlstore.Option{sqlstore.WithTable(c.TableName)}
}

func (c Config) metricsEnabled() bool { return c.Metrics.Enabled == nil || *c.Metrics.Enabled }

func (c Config) metricsPrefix(outboxName string) string {
	switch {
	case c.Metrics.NamePrefix != "":
		return c.Metrics.NamePrefix
	case outboxName != "":
		return outboxName + "." + DefaultMetricsPrefix
	default:
		return DefaultMetricsPrefix
	}
}
