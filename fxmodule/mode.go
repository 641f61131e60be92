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
	cfg := outbox.Config{Mode: c.mode(shared), Version: c.Version}
	if c.purges() {
		cfg.Purge = &outbox.PurgeOptions{Retention: c.Purge.Retention, BatchSize: c.Purge.BatchSize, Interval: c.Purge.Interval, Undelivered: c.Purge.Undelivered}
		cfg.Purge.OnDone = c.Purge.OnDone.option()
	}
	cfg.RetryPolicy = c.Retry.policy()
	return cfg
}

// option is the option of package outbox.
func (d OnDone) option() outbox.OnDone {
	switch d {
	case Keep:
		return outbox.Keep
	case Delete:
		return outbox.Delete
	default:
		return 0
	}
}

// policy is nil when the configuration says nothing.
func (r RetryConfig) policy() outbox.RetryPolicy {
	if r == (RetryConfig{}) {
		return nil
	}
	return outbox.ExponentialBackoff(r.BaseDelay, r.MaxDelay)
}

// rules are the rules of the kinds.
func (c Config) rules() map[outbox.EventKind]outbox.Rules {
	var rules map[outbox.EventKind]outbox.Rules
	for _, k := range c.Kinds {
		if rules == nil {
			rules = map[outbox.EventKind]outbox.Rules{}
		}
		if !c.purges() { // Validate has checked that purge.enabled says so
			k.Retention = 0
		}
		rules[k.kind()] = outbox.Rules{
			MaxAttempts: k.MaxAttempts, RetryPolicy: k.Retry.policy(), ListenerTimeout: k.ListenerTimeout,
			Expires: k.Expires, DropExpired: k.DropExpired, OnDone: k.OnDone.option(), Retention: k.Retention,
			Concurrency: k.Concurrency, Rate: k.Rate, Burst: k.Burst, Fleetwide: k.Fleetwide,
			KeyConcurrency: k.KeyConcurrency, KeyRate: k.KeyRate,
			MaxDueAge: k.MaxDueAge,
			Breaker:   outbox.Breaker{Failures: k.Breaker.Failures, Pause: k.Breaker.Pause, PerKey: k.Breaker.PerKey},
		}
	}
	return rules
}

// kind is the kind of event, as errors of package outbox name it.
func (k KindConfig) kind() outbox.EventKind {
	aggregate := outbox.AggregateType(k.AggregateType)
	if aggregate == "" {
		aggregate = outbox.Global
	}
	return outbox.EventKind{AggregateType: aggregate, EventType: outbox.EventType(k.EventType)}
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
		Rules:           c.rules(),
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
			Rules: dispatch.Rules,
		}
	case WriterOnly:
		return outbox.WriterOnly{}
	default:
		return outbox.SingleNode{Dispatch: dispatch, Poll: poll}
	}
}

// onUnroutable has zero, the default of the mode, for the empty value.
var onUnroutable = map[OnUnroutable]outbox.OnUnroutable{LeaveUnroutable: outbox.LeaveUnroutable, KillUnroutable: outbox.KillUnroutable}
