package outbox

import (
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/leases"
)

// Mode says how an outbox delivers: [SingleNode], [MultiNode], [OrderedByKey], [Ordered] or
// [WriterOnly]. Each mode has only the options that apply to it.
type Mode interface {
	mode() // sealed
}

// SingleNode delivers on the hot path and polls for the rest. One process at a time delivers from a
// table in this mode, and holds the table by a row in the control table. A second process, as in a
// rolling deploy, writes, and waits as a standby: the standby takes over at once when the first
// process closes, and within ten seconds when the first process dies.
//
// A process that died may have had the events in hand that were due at that time, so the next
// process delivers these events only a few at a time. If the process dies again during the delivery
// of such an event, the event has an attempt more, waits a minute, in which the others are
// delivered, and ends DEAD: the event kills at most MaxAttempts processes, and two where
// MaxAttempts is 1.
type SingleNode struct {
	Dispatch DispatchOptions
	Poll     PollOptions
}

// MultiNode is SingleNode for many processes on one table. A process takes the right to a range of due
// rows, which is an entry in a row of the control table: no row changes until the outcome of its
// event is stored. When a process dies, the rows of its ranges are taken over within ten seconds, a
// few at a time, and the death counts as an attempt only for rows that another process took over
// before. Events of the hot path are leased to the process that writes them.
type MultiNode struct {
	Dispatch DispatchOptions
	Poll     PollOptions
	Claim    ClaimOptions
}

// OrderedByKey delivers the events of an aggregate in order, one at a time, and
// different aggregates in parallel, on any number of processes. The key is the
// aggregate type and the aggregate id; an event without an aggregate id has a separate
// key, so it is unordered. The store's schema needs the key index:
// sqlstore.WithKeyIndex.
//
// Within a key, an event that was delivered and is to be delivered again comes first.
// The other events are ordered by available_at, then created_at, which is OccurredAt,
// then event id: for events that are not delayed, the order in which they were written.
// The events of a transaction that commits late come after the events that were
// delivered meanwhile, so transactions that write events of the same aggregate should
// lock the aggregate's row first.
//
// An event that fails holds back the key until the retry succeeds; the other keys go
// on. [Defer] holds back the key too, and so does an event without a listener. A delayed event
// holds back nothing and takes its place when it becomes due. There is no hot queue:
// a commit makes the poller of the same process read at once.
type OrderedByKey struct {
	// Dispatch tunes the workers; it has no HotCapacity in this mode. One worker at a
	// time delivers the events of a key.
	Dispatch DispatchOptions
	Poll     PollOptions
	// Claim tunes the leases, as in [MultiNode].
	Claim ClaimOptions
	// OnDead says what a DEAD event does to its key. Defaults to [BlockKey]. OnDead
	// must be the same in all processes.
	OnDead OnDead
	// RunLength is how many events of a key are claimed together at most. Longer runs
	// cost the database less when few keys have many events; a single worker holds
	// them longer. Defaults to 50; at most 500.
	RunLength int
	// RequireKey refuses to write an event without an aggregate id.
	RequireKey bool
}

// OnDead is the effect of a DEAD event on its key under [OrderedByKey].
type OnDead uint8

const (
	// BlockKey lets the later events of the key wait until the DEAD event is replayed or
	// deleted.
	BlockKey OnDead = iota
	// SkipDead lets the later events of the key go on. The DEAD event comes first when
	// it is replayed.
	SkipDead
)

// Ordered delivers the events in sequence: poller only, a single worker, a single attempt, no hot
// path. So an event waits until the poller reads the table next, at most for Poll.Interval. A
// failed event goes DEAD and the next event follows. As in [SingleNode], only one process at a time
// delivers. An event that was due when a process died is delivered once more, and goes DEAD when
// the process dies again meanwhile.
//
// The order is that of available_at, then created_at, which is OccurredAt, then event id; the rows
// of a batch go by created_at, then event id. So the events of a WriteAll keep their order when
// times and ids are the outbox's own, and go by id when the caller chose the times and ids. An
// event that was delayed, deferred or replayed takes its place by when it became due. An event
// whose transaction committed late comes after the events that were delivered meanwhile, unless
// Poll.SkipRecent is longer than transactions take.
type Ordered struct {
	Poll PollOptions
	// DrainTimeout, ListenerTimeout and Rules are as in [DispatchOptions].
	DrainTimeout    time.Duration
	ListenerTimeout time.Duration
	Rules           map[EventKind]Rules
	// OnUnroutable says what becomes of an event without a listener in this process. Defaults to
	// [KillUnroutable]: the events behind it are not to wait, or to go first.
	OnUnroutable OnUnroutable
}

// WriterOnly only writes. Other processes deliver the events, or change data capture reads the table; then
// nothing marks a row, and [PurgeOptions].Undelivered deletes old rows.
type WriterOnly struct{}

func (SingleNode) mode() {}

func (MultiNode) mode() {}

func (OrderedByKey) mode() {}

func (Ordered) mode() {}

func (WriterOnly) mode() {}

func modeName(m Mode) string {
	switch m.(type) {
	case MultiNode:
		return "multi-node"
	case OrderedByKey:
		return "ordered-by-key"
	case Ordered:
		return "ordered"
	case WriterOnly:
		return "writer-only"
	default:
		return "single-node"
	}
}

// Defaults of the options.
const (
	defaultWorkers       = 16
	defaultQueueCapacity = 1000
	defaultMaxAttempts   = 10
	DefaultDrainTimeout  = 5 * time.Second
	defaultMarkInterval  = 5 * time.Millisecond
	defaultPollInterval  = 5 * time.Second
	DefaultPollBatch     = 500
	DefaultLeaseDuration = 5 * time.Minute
	DefaultRetention     = 7 * 24 * time.Hour
	DefaultPurgeBatch    = 500
	defaultPurgeInterval = time.Hour
)

// Limits of the options. They are far above useful values. They keep a typing error, such as a
// digit too many, from exhausting the memory of the process: queues are allocated as a whole, and
// batches are held in memory.
const (
	maxWorkers       = 10_000
	maxQueueCapacity = 1_000_000
	MaxBatch         = 100_000
)

// defaultRunLength and maxRunLength are for [OrderedByKey].RunLength.
const (
	defaultRunLength = 50
	maxRunLength     = 500
)

// DispatchOptions tune the workers. Zero means the default.
type DispatchOptions struct {
	// Workers is how many listeners run at once. Defaults to 16; at most
	// 10,000. With SharedWorkers it defaults to their number.
	Workers int
	// SharedWorkers bound how many listeners run at once in this outbox and all others that share
	// the same workers. Workers is then the most that this outbox may use of them. Defaults to no
	// shared workers.
	SharedWorkers *SharedWorkers
	// PollerOnly leaves out the hot path: an event waits until the poller reads the table
	// next, at most for Poll.Interval. Under [OrderedByKey] a commit then does not make the
	// poller read. Defaults to false.
	PollerOnly bool
	// HotCapacity is how many committed events wait for a worker. When the hot queue is full, the
	// poller delivers further events. Under [MultiNode] their rows are leased meanwhile, and every
	// node reads past leased rows, so the number of events that all nodes hold together should stay
	// in the thousands. Defaults to 1000; at most 1,000,000.
	HotCapacity int
	// ColdCapacity is how many polled events wait for a worker. Under [OrderedByKey], and with
	// TenantsInTurn, their rows are leased meanwhile: see HotCapacity. Defaults to 1000; at most
	// 1,000,000.
	ColdCapacity int
	// MaxAttempts is how many deliveries may fail until an event goes DEAD; [Endless]: no bound.
	// Defaults to 10.
	MaxAttempts int
	// DrainTimeout is how long Close lets queued events be delivered before it
	// cancels the listeners' context; listeners then have as long again to
	// return. Defaults to 5 s.
	DrainTimeout time.Duration
	// ListenerTimeout ends the context of a delivery, or of a call of a [BatchListener].
	// Defaults to no timeout.
	ListenerTimeout time.Duration
	// OnUnroutable says what becomes of an event without a listener in this process. Defaults to
	// [LeaveUnroutable].
	OnUnroutable OnUnroutable
	// Rules are the rules of some kinds of events, whatever the rules of their listeners say. An
	// empty aggregate type is [Global]. Start fails when a process that has listeners has no listener
	// for a kind. Defaults to the rules of the listeners.
	Rules map[EventKind]Rules
	// MarkInterval is the least time between the beginnings of two batches of outcomes that are
	// stored. The first outcome after a pause, and a full batch, are stored at once. When a process
	// dies, the events whose outcomes were not stored are delivered again: a longer interval means
	// more such events, and a shorter interval takes more of the database's time from your
	// transactions. A retry is not delivered before its batch is stored. Defaults to 5 ms; at least
	// 1 ms.
	MarkInterval time.Duration
}

// PollOptions tune the poller. Zero means the default.
type PollOptions struct {
	// Interval is how often an idle table is looked at. Retries, delayed events and backlogs do not
	// wait for the interval. Defaults to 5 s.
	Interval time.Duration
	// BatchSize is the most rows read at once. Defaults to 500; at most
	// [MaxBatch].
	BatchSize int
	// SkipRecent leaves out events that occurred less than this ago. Defaults
	// to 0.
	SkipRecent time.Duration
}

// ClaimOptions tune the leases of [MultiNode] and [OrderedByKey]. Zero means the default.
type ClaimOptions struct {
	// Owner names this node. The name must differ from that of every other process that runs.
	// locked_by has the name before a slash and a number for each claim. Defaults to host, process
	// id and a random part. At most 112 characters, which do not begin with [DeletedBy].
	Owner string
	// LeaseDuration is how long a lease lasts without being renewed; a node that is alive renews a
	// lease three times in that time. Defaults to 5 minutes. There is no lower limit, but below a
	// few seconds a pause of the process or a slow statement is enough for another node to deliver
	// the same event.
	LeaseDuration time.Duration
	// TenantsInTurn claims events tenant by tenant, so that a tenant with a backlog does not hold
	// up the others; events without a tenant count as the events of a single tenant. The store's
	// schema needs the tenant index, sqlstore.WithTenantIndex. Events that wait in the queues are
	// delivered before, so keep the queues short. A claim writes a lease into each row.
	// TenantsInTurn must be the same in all processes of the table. [MultiNode] only. Defaults to
	// the oldest events first, whatever their tenant, in ranges.
	TenantsInTurn bool
}

// DeletedBy is the beginning of locked_by in the DONE row of a dead letter that was deleted and can be
// restored. The id of the deletion follows. No lease begins so.
const DeletedBy = "deleted "

// NoRetention is the retention that keeps nothing: rows are purged as soon as
// they are DONE or DEAD.
const NoRetention time.Duration = -1

// PurgeOptions tune the purger. Zero means the default.
type PurgeOptions struct {
	// Retention is how long DONE and DEAD rows are kept. Defaults to 7 days; [NoRetention] keeps no
	// rows.
	Retention time.Duration
	// BatchSize is the most rows deleted in a transaction. Defaults to 500; at
	// most [MaxBatch].
	BatchSize int
	// Interval is how often the purger runs; the first time when the outbox
	// starts. Defaults to 1 h.
	Interval time.Duration
	// OnDone says whether a delivered row is kept or deleted. Defaults to [Keep].
	OnDone OnDone
	// Undelivered deletes every row that was written longer than Retention ago, delivered or not. It is for
	// [WriterOnly] with a reader of the log, where no row becomes DONE; create the table with
	// sqlstore.WithAgeIndex. Where other processes deliver, their events would be lost. Defaults to false.
	Undelivered bool
}

// OnDone says whether the row of a delivered event is kept or deleted. Zero says nothing.
type OnDone uint8

const (
	// Keep marks the row DONE; the purger deletes it after the retention.
	Keep OnDone = iota + 1
	// Delete deletes the row at once.
	Delete
)

// OnUnroutable says what becomes of an event for which the process that has it in hand has no
// listener: no listener of the kind, or no listener with the name that the row is for; see [Named].
type OnUnroutable uint8

const (
	// LeaveUnroutable leaves the event to a process that has a listener, as in a rolling deploy: the
	// row stays as it is, no attempt is counted, and this process reads past the events of the kind.
	// The log names the kind, and so do [Stats] and the report of the [Node]. An event is deferred
	// instead in [Ordered], if only the named listener of the row is missing, and when the kinds without
	// a listener are more than 100: by as long as the event is old, from a second to five minutes.
	LeaveUnroutable OnUnroutable = iota + 1
	// KillUnroutable makes the event DEAD at once.
	KillUnroutable
)

func (o DispatchOptions) validate(v *validator) {
	v.count("Workers", o.Workers, maxWorkers)
	v.count("HotCapacity", o.HotCapacity, maxQueueCapacity)
	if o.PollerOnly && o.HotCapacity > 0 {
		v.add("HotCapacity", fmt.Sprintf("is %d, but a poller-only dispatcher has no hot queue; leave one of the two settings out", o.HotCapacity))
	}
	v.count("ColdCapacity", o.ColdCapacity, maxQueueCapacity)
	validateAttempts(v, o.MaxAttempts)
	v.duration("DrainTimeout", o.DrainTimeout)
	v.duration("ListenerTimeout", o.ListenerTimeout)
	v.duration("MarkInterval", o.MarkInterval)
	if o.OnUnroutable > KillUnroutable {
		v.add("OnUnroutable", "is not one of outbox.LeaveUnroutable and outbox.KillUnroutable")
	}
	o.SharedWorkers.validate(v)
	validateRules(v, o.Rules)
}

func (o DispatchOptions) withDefaults() DispatchOptions {
	o.Workers = defaultTo(o.Workers, o.SharedWorkers.workers())
	if !o.PollerOnly {
		o.HotCapacity = defaultTo(o.HotCapacity, defaultQueueCapacity)
	}
	o.ColdCapacity = defaultTo(o.ColdCapacity, defaultQueueCapacity)
	o.MaxAttempts = defaultTo(o.MaxAttempts, defaultMaxAttempts)
	o.DrainTimeout = defaultTo(o.DrainTimeout, DefaultDrainTimeout)
	o.MarkInterval = defaultTo(o.MarkInterval, defaultMarkInterval)
	o.OnUnroutable = defaultTo(o.OnUnroutable, LeaveUnroutable)
	return o
}

func (o PollOptions) validate(v *validator) {
	v.duration("Interval", o.Interval)
	v.count("BatchSize", o.BatchSize, MaxBatch)
	v.duration("SkipRecent", o.SkipRecent)
}

func (o PollOptions) withDefaults() PollOptions {
	o.Interval = defaultTo(o.Interval, defaultPollInterval)
	o.BatchSize = defaultTo(o.BatchSize, DefaultPollBatch)
	return o
}

func (o ClaimOptions) validate(v *validator) {
	v.text("Owner", o.Owner, leases.MaxOwner)
	if strings.HasPrefix(o.Owner, DeletedBy) {
		v.add("Owner", fmt.Sprintf("begins with %q, which marks the rows of deleted dead letters; choose another name", DeletedBy))
	}
	v.duration("LeaseDuration", o.LeaseDuration)
}

func (o ClaimOptions) withDefaults() ClaimOptions {
	if o.Owner == "" {
		o.Owner = leases.NewOwner()
	}
	o.LeaseDuration = defaultTo(o.LeaseDuration, DefaultLeaseDuration)
	return o
}

func (o PurgeOptions) validate(v *validator) {
	if o.Retention != NoRetention {
		v.duration("Retention", o.Retention)
	}
	v.count("BatchSize", o.BatchSize, MaxBatch)
	v.duration("Interval", o.Interval)
	o.OnDone.validate(v)
}

func (d OnDone) validate(v *validator) {
	if d > Delete {
		v.add("OnDone", "is not one of outbox.Keep and outbox.Delete")
	}
}

// String is the name of the constant.
func (d OnDone) String() string {
	switch d {
	case Keep:
		return "Keep"
	case Delete:
		return "Delete"
	default:
		return fmt.Sprintf("OnDone(%d)", uint8(d))
	}
}

func (o PurgeOptions) withDefaults() PurgeOptions {
	if o.Retention == NoRetention {
		o.Retention = 0
	} else {
		o.Retention = defaultTo(o.Retention, DefaultRetention)
	}
	o.BatchSize = defaultTo(o.BatchSize, DefaultPurgeBatch)
	o.Interval = defaultTo(o.Interval, defaultPurgeInterval)
	return o
}
