package outboxfx

import (
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// Mode says how an outbox delivers; each value is the mode of package outbox with the same name.
// The specification's spellings, such as MULTI_NODE, are accepted too.
type Mode string

// The modes. The empty mode is single-node.
const (
	SingleNode   Mode = "single-node"
	MultiNode    Mode = "multi-node"
	OrderedByKey Mode = "ordered-by-key"
	Ordered      Mode = "ordered"
	WriterOnly   Mode = "writer-only"
)

var modes = []Mode{SingleNode, MultiNode, OrderedByKey, Ordered, WriterOnly}

// canonical returns the mode in this package's spelling, with the default filled in.
func (m Mode) canonical() Mode {
	if m == "" {
		return SingleNode
	}
	return Mode(strings.ReplaceAll(strings.ToLower(string(m)), "_", "-"))
}

// purges reports whether the purger is switched on.
func (c Config) purges() bool { return c.Purge.Enabled != nil && *c.Purge.Enabled }

// outboxConfig converts the configuration to an [outbox.Config].
func (c Config) outboxConfig(shared *outbox.SharedWorkers) outbox.Config {
	cfg := outbox.Config{Mode: c.mode(shared)}
	if c.purges() {
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

func (c Config) mode(shared *outbox.SharedWorkers) outbox.Mode {
	dispatch := outbox.DispatchOptions{
		Workers:         c.Dispatch.Workers,
		SharedWorkers:   shared,
		PollerOnly:      c.Dispatch.PollerOnly,
		HotCapacity:     c.Dispatch.HotCapacity,
		ColdCapacity:    c.Dispatch.ColdCapacity,
		MaxAttempts:     c.Dispatch.MaxAttempts,
		DrainTimeout:    c.Dispatch.DrainTimeout,
		ListenerTimeout: c.Dispatch.ListenerTimeout,
		MarkInterval:    c.Dispatch.MarkInterval,
		OnUnroutable:    onUnroutable[c.Dispatch.OnUnroutable],
	}
	for _, l := range c.Dispatch.Limits {
		dispatch.Limits = append(dispatch.Limits, outbox.Limit{
			Kind:        outbox.EventKind{AggregateType: outbox.AggregateType(l.AggregateType), EventType: outbox.EventType(l.EventType)},
			Concurrency: l.Concurrency, Rate: l.Rate, Burst: l.Burst,
		})
	}
	poll := outbox.PollOptions{Interval: c.Poll.Interval, BatchSize: c.Poll.BatchSize, SkipRecent: c.Poll.SkipRecent}
	claim := outbox.ClaimOptions{Owner: c.Claim.Owner, LeaseDuration: c.Claim.LeaseDuration, TenantsInTurn: c.Claim.TenantsInTurn}
	switch c.Mode {
	case MultiNode:
		return outbox.MultiNode{Dispatch: dispatch, Poll: poll, Claim: claim}
	case OrderedByKey:
		mode := outbox.OrderedByKey{
			Dispatch: dispatch, Poll: poll, Claim: claim,
			RunLength: c.Ordering.RunLength, RequireKey: c.Ordering.RequireKey,
		}
		if c.Ordering.OnDead == SkipDead {
			mode.OnDead = outbox.SkipDead
		}
		return mode
	case Ordered:
		return outbox.Ordered{
			Poll: poll, DrainTimeout: dispatch.DrainTimeout, ListenerTimeout: dispatch.ListenerTimeout, OnUnroutable: dispatch.OnUnroutable,
		}
	case WriterOnly:
		return outbox.WriterOnly{}
	default:
		return outbox.SingleNode{Dispatch: dispatch, Poll: poll}
	}
}

// onUnroutable has zero, the default of the mode, for the empty value.
var onUnroutable = map[OnUnroutable]outbox.OnUnroutable{LeaveUnroutable: outbox.LeaveUnroutable, KillUnroutable: outbox.KillUnroutable}
