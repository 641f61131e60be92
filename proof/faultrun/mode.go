package faultrun

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"

	"github.com/outboxkit/outbox-go/outbox"
)

// purge is the purger of a process, or nil.
func (s Spec) purge() *outbox.PurgeOptions {
	if !s.DeleteDone && s.Purge == 0 {
		return nil
	}
	options := &outbox.PurgeOptions{}
	if s.DeleteDone {
		options.OnDone = outbox.Delete
	}
	if s.Purge > 0 {
		options.Interval, options.Retention = s.Purge, outbox.NoRetention
	}
	return options
}

// mode is the mode of a process, with the options of the spec.
func (s Spec) mode() outbox.Mode {
	poll := outbox.PollOptions{Interval: s.Interval}
	claim := outbox.ClaimOptions{Owner: s.Owner, LeaseDuration: s.Lease, TenantsInTurn: s.Tenants}
	dispatch := outbox.DispatchOptions{
		Workers: s.Workers, MaxAttempts: s.MaxAttempts, MarkInterval: s.Mark,
		DrainTimeout: s.Drain, ListenerTimeout: s.ListenerTimeout,
	}
	if s.Limit > 0 {
		dispatch.Rules = map[outbox.EventKind]outbox.Rules{Kind(Plain): {Concurrency: s.Limit}}
	}
	switch s.Mode {
	case "single":
		return outbox.SingleNode{Dispatch: dispatch, Poll: poll}
	case "multi":
		return outbox.MultiNode{Dispatch: dispatch, Poll: poll, Claim: claim}
	case "ordered":
		return outbox.Ordered{Poll: poll, DrainTimeout: s.Drain, ListenerTimeout: s.ListenerTimeout}
	case "by-key":
		mode := outbox.OrderedByKey{Dispatch: dispatch, Poll: poll, Claim: claim, RunLength: s.RunLength}
		if s.SkipDead {
			mode.OnDead = outbox.SkipDead
		}
		return mode
	case "writer-only":
		return outbox.WriterOnly{}
	default:
		panic(fmt.Sprintf("faultrun: there is no mode %q", s.Mode))
	}
}

// Kind is the kind of the events of a type.
func Kind(event string) outbox.EventKind {
	return outbox.EventKind{AggregateType: "Thing", EventType: outbox.EventType(event)}
}

// Outbox makes an outbox like the outboxes of the processes. The outbox is for operators, and is
// not started.
func Outbox(ctx context.Context, db *sql.DB, spec Spec) (*outbox.Outbox, error) {
	store, err := detect(ctx, db, spec)
	if err != nil {
		return nil, err
	}
	return outbox.New(outbox.Config{DB: db, Store: store, Mode: spec.mode(), Logger: slog.New(slog.DiscardHandler)})
}
