package outbox

import "fmt"

// OrderedByKey delivers the events of one aggregate in order, one at a time, and
// different aggregates in parallel, on any number of processes. The key is the
// aggregate type and the aggregate id; an event without an aggregate id has a key of
// its own, so it is unordered. The store's schema needs the key index:
// sqlstore.WithKeyIndex.
//
// Within a key an event comes first that was delivered and is to be delivered again.
// Then the order is that of available_at, then created_at, which is OccurredAt, then
// event id: for events that are not delayed, the order in which they were written. A
// transaction that commits late comes after what was delivered meanwhile, so
// transactions that write events of one aggregate should lock its row first.
//
// An event that fails holds back its key until its retry succeeds; the other keys go
// on. RetryAfter, and Unroutable with [Defer], hold back the key too. A delayed event
// holds back nothing and takes its place when it becomes due. There is no hot queue:
// a commit makes the poller of the same process read at once.
type OrderedByKey struct {
	// Dispatch tunes the workers; it has no HotCapacity in this mode. The events of
	// one key are delivered by one worker at a time.
	Dispatch DispatchOptions
	Poll     PollOptions
	// Claim tunes the leases, as in [MultiNode].
	Claim ClaimOptions
	// OnDead says what a DEAD event does to its key. Defaults to [BlockKey]. It must
	// be the same in all processes.
	OnDead OnDead
	// RunLength is the most events of one key that are claimed together. Longer runs
	// cost the database less when few keys have many events; they are held longer by
	// one worker. Defaults to 50; at most [MaxRunLength].
	RunLength int
	// RequireKey refuses to write an event without an aggregate id.
	RequireKey bool
}

// OnDead says what a DEAD event does to its key under [OrderedByKey].
type OnDead uint8

const (
	// BlockKey lets the later events of the key wait until the DEAD one is replayed or
	// deleted.
	BlockKey OnDead = iota
	// SkipDead lets the later events of the key go on. The DEAD one comes first when
	// it is replayed.
	SkipDead
)

// DefaultRunLength and MaxRunLength are for [OrderedByKey].RunLength.
const (
	DefaultRunLength = 50
	MaxRunLength     = 500
)

func (OrderedByKey) mode() {}

// options takes the mode's options apart and reports what is wrong with them.
func (m OrderedByKey) options(b *builder, v *validator) {
	b.dispatch, b.poll, b.claim, b.byKey = &m.Dispatch, &m.Poll, &m.Claim, &m
	if m.Dispatch.HotCapacity != 0 {
		v.add("Mode.Dispatch.HotCapacity", fmt.Sprintf("is %d, but OrderedByKey has no hot queue; leave it out", m.Dispatch.HotCapacity))
	}
	if len(m.Dispatch.Limits) > 0 {
		v.add("Mode.Dispatch.Limits", fmt.Sprintf("has %d limits, but in OrderedByKey a worker delivers the events of a key, whatever their kinds; leave them out", len(m.Dispatch.Limits)))
	}
	if m.Claim.TenantsInTurn {
		v.add("Mode.Claim.TenantsInTurn", "is set, but OrderedByKey claims key after key, whatever their tenants; leave it out, or take MultiNode")
	}
	if m.OnDead > SkipDead {
		v.add("Mode.OnDead", "is not one of outbox.BlockKey and outbox.SkipDead")
	}
	length := validator{what: v.what}
	length.count("Mode.RunLength", m.RunLength, MaxRunLength)
	v.errs = append(v.errs, length.errs...)
	if _, can := b.Store.(RunReader); b.Store != nil && !can {
		v.add("Store", fmt.Sprintf("is a %T, which has no ReadRuns, so it cannot deliver by key; take one from package sqlstore, or another mode", b.Store))
	}
	m.RunLength = defaultTo(m.RunLength, DefaultRunLength)
}

// connectKeys makes dispatcher, poller and writer deliver by key.
func (b *builder) connectKeys(o *Outbox) {
	if b.byKey == nil {
		return
	}
	o.writer.requireKey = b.byKey.RequireKey
	o.dead.replayed = StatusRetry
	o.poller.runs = &runPolling{
		reader: b.Store.(RunReader), length: b.byKey.RunLength, skipDead: b.byKey.OnDead == SkipDead,
	}
}

// requireAggregateID is the check of [OrderedByKey].RequireKey.
func requireAggregateID(env *Envelope) error {
	if env.AggregateID != "" {
		return nil
	}
	return &FieldError{Field: "Envelope.AggregateID", Problem: "is empty, but OrderedByKey.RequireKey is set; give the id of what the event is about, or leave RequireKey out for events without an order"}
}
