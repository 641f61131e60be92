package outbox

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/outbox/internal/ulid"
)

// Limits of the reads for operators, so that no query reads the whole table.
const (
	// DefaultFindLimit and MaxFindLimit are for [EventQuery].Limit.
	DefaultFindLimit = 50
	MaxFindLimit     = 500
	// SearchLimit is how many rows [Outbox.FindEvents] looks at for one page.
	SearchLimit = 2_000
	// ThroughputWindow is the time that [Outbox.Throughput] looks back.
	ThroughputWindow = time.Minute
	// MaxVersionLength is the most characters of a [Config].Version.
	MaxVersionLength = 128
)

// Inspector is the part of a [Store] that serves operators. The engine itself needs only
// Announce, Withdraw, and Nodes, once at the start.
type Inspector interface {
	// FindEvents lists rows without payload, with the headers HeaderListener and
	// HeaderEventID alone, and with the first MaxErrorLength characters of the error; see
	// [Outbox.FindEvents] and [EventFilter.HasTexts].
	FindEvents(ctx context.Context, db DB, q EventQuery) (Page[EventRow], error)
	// FindEvent reads a row with all columns; [ErrNotFound] when there is no such row.
	FindEvent(ctx context.Context, db DB, eventID string) (EventRow, error)
	// Throughput counts the rows that became DONE since the given time, up to StatsLimit,
	// and measures up to a thousand of the latest. It leaves out the rows of deleted dead letters.
	Throughput(ctx context.Context, db DB, since time.Time) (Throughput, error)

	// Announce stores a node's report of itself, for the given time by the database's
	// clock, and deletes the nodes whose time ended over an hour ago.
	Announce(ctx context.Context, db DB, node Node, d time.Duration) error
	// Withdraw deletes the report that Announce stored for the owner.
	Withdraw(ctx context.Context, db DB, owner string) error
	// Nodes lists the nodes that Announce stored, the holder of the table, and the owners of
	// the leases among the first SearchLimit due rows. If that many rows are due, a node has
	// the larger of two numbers: the leases that were counted, and the leases that the node
	// reported.
	Nodes(ctx context.Context, db DB) ([]Node, error)
	// DueKinds groups by kind the first StatsLimit due rows of the query, in due order. The order of the
	// groups is any.
	DueKinds(ctx context.Context, db DB, q DueKindsQuery) ([]DueKind, error)
	// RecordChange stores an entry of the audit log, for the given time by the database's clock. The ids
	// of entries are in the order of time.
	RecordChange(ctx context.Context, db DB, entry AuditEntry, keep time.Duration) error
	// ForgetChanges deletes entries of the audit log whose time is over, and entries beyond the newest
	// keep entries, limit of each at most. It returns how many entries it deleted. Purges call it until it
	// deletes none.
	ForgetChanges(ctx context.Context, db DB, keep, limit int) (int, error)
	// Audit reads the entries of the audit log whose time is not over, with ids before the given id, the
	// greatest id first, and limit at most. An empty id stands for all.
	Audit(ctx context.Context, db DB, before string, limit int) ([]AuditEntry, error)
	// AllShares reads the shares of all kinds, as Shares reads those of a kind, in any order.
	AllShares(ctx context.Context, db DB) ([]Shares, error)
}

// EventFilter chooses rows of the outbox table. Zero fields choose all.
type EventFilter struct {
	// Statuses are the statuses of the rows; empty: all.
	Statuses      []Status
	EventType     EventType
	AggregateType AggregateType
	AggregateID   string
	TenantID      string
	// IDPrefix is the beginning of the event id, in the same case. Each character stands for itself.
	IDPrefix string
	// ErrorText is a part of the last error, of which the first MaxErrorLength characters count. The
	// letters A to Z match in both cases, all other characters only themselves.
	ErrorText string
	// Leased chooses only rows under a lease. The lease may have expired: another process takes the event
	// over then.
	Leased bool
	// DeletionID chooses only the events of a deletion of dead letters that can be restored; see
	// [DeadLetters.Restore]. Without Statuses, DONE is chosen.
	DeletionID string
	// Since and Until bound the time by which the rows are listed: Since <= time < Until.
	Since, Until time.Time
	// DueAfter and DueBefore bound the time at which events are due, in each order:
	// DueAfter <= due < DueBefore. Give Statuses NEW and RETRY for events that wait.
	DueAfter, DueBefore time.Time
}

// EventQuery is a page of the events that a filter chooses.
type EventQuery struct {
	EventFilter
	// After is the Next of the page before; empty: the first page.
	After string
	// Limit is the most events of a page. Defaults to DefaultFindLimit; at most
	// MaxFindLimit.
	Limit int
}

// Page is a page of a listing: of [Outbox.FindEvents] or [DeadLetters.Find].
type Page[Row any] struct {
	Rows []Row
	// Next is the place behind this page, for the After of the query; empty: there are no more
	// rows.
	Next string
	// Looked is how many rows of the table [Outbox.FindEvents] looked at for this page. Other listings
	// leave Looked and Missing empty.
	Looked int
	// Missing is an index that would find the events directly. Missing is set if the page ended at
	// SearchLimit rows, and the store does not have such an index for the filter; nil otherwise.
	Missing *MissingIndex
}

// MissingIndex is an index that a search would need.
type MissingIndex struct {
	// For names what the index finds, such as "an aggregate id".
	For string
	// Option is the option of the store with which the search uses the index; empty: the store needs no
	// option, and finds the index itself.
	Option string
	// DDL is the statement that creates the index.
	DDL string
}

// String is a sentence for operators.
func (m *MissingIndex) String() string {
	text := "an index would find " + m.For + " without reading other rows: " + m.DDL
	if m.Option != "" {
		text += "; then give the store the option " + m.Option
	}
	return text
}

// EventRow is an event as its row stands.
type EventRow struct {
	Envelope
	Status Status
	// LastError is the reason of the last failed attempt.
	LastError string
	// EndedAt is when the event became DONE or DEAD; zero for others. EndedAt of a deleted dead letter is
	// when it was deleted.
	EndedAt time.Time
	// DeletionID is the id of the deletion that made a dead letter DONE; empty: the event is no deleted dead
	// letter. DiedAt is when the deleted dead letter died; zero: not known.
	DeletionID string
	DiedAt     time.Time
	// Lease names the lease of the row, and LeasedAt is when it began; zero: not leased.
	Lease    string
	LeasedAt time.Time
	// Listener and OriginalID are as in [DeadLetter].
	Listener   string
	OriginalID string
}

// State is DELETED for a deleted dead letter, and otherwise the name of the status.
func (r *EventRow) State() string {
	if r.DeletionID != "" {
		return "DELETED"
	}
	return r.Status.String()
}

// Throughput describes the last deliveries of all nodes, as the table shows them.
type Throughput struct {
	// Done is how many events became DONE within ThroughputWindow, counted up to StatsLimit.
	// With [Delete] no row is left to count.
	Done int64
	// Median, P95 and Max are the times from due to DONE of the latest deliveries of the
	// window, a thousand at most; zero without a delivery.
	Median, P95, Max time.Duration
}

// DueKindsQuery chooses due rows for [Inspector].DueKinds.
type DueKindsQuery struct {
	// Now is when rows are due: rows available at Now or before.
	Now time.Time
	// Except are kinds whose rows are left out, also if Limits has them.
	Except []EventKind
	// Limits leave out the rows of some kinds that became available after a time of the kind.
	Limits []DueLimit
}

// DueLimit is until when a row of the kind became available to count in a [DueKindsQuery].
type DueLimit struct {
	Kind   EventKind
	Before time.Time // inclusive
}

// DueKind are the due rows of a kind.
type DueKind struct {
	Kind   EventKind
	Events int64
	Oldest time.Time // the earliest available_at; zero if it cannot be read
}

// LateKind is a kind of event with a [Rules].MaxDueAge, of which events have been due for longer.
type LateKind struct {
	Kind      EventKind
	MaxDueAge time.Duration
	// Events is how many events are late, and OldestDueAge is how long the oldest has been due.
	Events       int64
	OldestDueAge time.Duration
}

// Node is a process that delivers from the table, or only writes to it, as operators see it.
type Node struct {
	// Owner is the name of the node, and of its leases or its hold.
	Owner string
	// Mode is the name of the node's mode, such as "multi-node".
	Mode string
	// Version is the version of the node's program; see [Config].Version. Empty: not known, or not
	// reported, because the node has an older version of the outbox.
	Version string
	// Started is when the node started, and LastPoll when its poller last got through, by the
	// node's clock.
	Started, LastPoll time.Time
	// Problem says why the report of the node cannot be read; empty: no problem. A node with a
	// problem has only Owner, Live, Holds and its leases.
	Problem string
	// HotDepth and ColdDepth are the events in the queues of the node.
	HotDepth, ColdDepth int
	// Totals are the numbers that the node has counted since it started; nil: not known, because an older
	// version does not report them.
	Totals *Totals
	// Kinds are the kinds of events for which the node has listeners, by aggregate type and event type;
	// nil: not known, because their names are longer than 8 KiB together, or because the registry of the
	// node is no [Registry].
	Kinds []EventKind
	// Unheard are the kinds of events that came to the node and have no listener there, as far as
	// their names have room in 8 KiB. The node leaves the events of these kinds to other nodes.
	Unheard []EventKind
	// MaxDueAges are the [Rules].MaxDueAge of the node, by kind, as far as their names have room in
	// 8 KiB.
	MaxDueAges []KindAge
	// Log is how far a process is behind that publishes the rows from the database's log, as relay/cdc does;
	// nil: the process does not read the log. LastPoll is then when the process last had published the
	// whole log. While such a node lives, the table's rows are not waiting: see [Stats].OldestDueAge.
	Log *LogLag
	// SeenAt is when the node last reported, by the database's clock. A node reports every ten
	// seconds, and Live says that the node has not missed three reports. A node that closed is not
	// listed; a node that died is listed for an hour.
	SeenAt time.Time
	Live   bool
	// Holds says that the node holds the table, in [SingleNode] or [Ordered].
	Holds bool
	// Leases is how many leases the node has. They are counted in the table if no more than
	// SearchLimit rows are due. If more are due, leases may be behind the rows that were read, as
	// behind the events of a paused kind: Leases is then as many as were counted, or as the node
	// last reported, if that is more. OldestLease is when the oldest counted lease began; zero: no
	// lease was counted.
	Leases      int
	OldestLease time.Time
}

// LogLag is how far a reader of the database's log is behind, in bytes of the log, as the server says; -1:
// the server does not say.
type LogLag struct {
	// Behind is how much the reader has not published, and Kept is how much the server keeps for the reader.
	// The log is that of all tables of the server.
	Behind, Kept int64
	// Left is how much the log may grow until the server drops what the reader has not published; -1 also if
	// nothing bounds it.
	Left int64
}

// KindAge is the [Rules].MaxDueAge of a kind.
type KindAge struct {
	Kind      EventKind
	MaxDueAge time.Duration
}

// KindShares are the limits of a kind of event that all processes have together, and the shares of
// processes in these limits; see [Rules].Fleetwide. A part is the smallest share.
type KindShares struct {
	Kind EventKind
	// Concurrency, Rate (in a second) and Burst, and KeyConcurrency and KeyRate for each key, are the
	// limits, as the process knew them that last replaced the row; zero: no bound.
	Concurrency    int
	Rate           float64
	Burst          int
	KeyConcurrency int
	KeyRate        float64
	// Parts is the number of parts into which the limits are divided; zero: not known, because an older
	// version wrote the row.
	Parts int
	// Shares are of the processes that have a share or wait for a share, in the order in which they get
	// parts. Processes without events of the kind have no share.
	Shares []ProcessShare
	// Problem says why the row cannot be read; empty: no problem. Kind is then empty.
	Problem string
}

// ProcessShare is the share of a process in limits.
type ProcessShare struct {
	// Owner is the name of the process, as in [Node].
	Owner string
	// Parts is how many of Of parts the process has. Of differs between processes while their rules
	// differ.
	Parts, Of int
	// Until is when the share ends unless the process renews the share, by the database's clock.
	Until time.Time
	// Waits says that the process has events, and no part because other processes have all parts.
	Waits bool
}

// OwnShare is the share of this process in limits of all processes.
type OwnShare struct {
	Kind EventKind
	// Parts is how many of Of parts this process acts on: zero while the process waits for a share, and
	// without events that wait, although deliveries that run may keep parts.
	Parts, Of int
}

// Operator is who changes an outbox: the person, and from where.
type Operator struct {
	Name string // of the user; at most 256 characters are kept
	From string // an address, a host or a program; at most 256 characters are kept
}

// AuditEntry is a change that an operator made. An entry has no payloads and headers, and no text of a
// database's error.
type AuditEntry struct {
	// ID is in the order of time.
	ID string
	// At is when the change ended, by the clock of the process.
	At time.Time
	Operator
	// Action is pause, resume, replay, delete, restore, purge, start-replay, stop-replay or continue-replay;
	// the last three are of a replay of delivered events.
	Action string
	// Target names the object of the action: "event_id=…", a kind of event, or a filter in the form of a
	// query. The value of tenant_id is left out. Behind the kind of a pause, " aggregate_id=…" names the
	// key, and " until=…" the end.
	Target string
	// Count is how many events were changed.
	Count int
	// DeletionID is the id of a deletion that can be restored, or of the deletion that a restoration undid;
	// see [DeadLetters.Restore].
	DeletionID string
	// Reason is the reason of a pause or of a replay of delivered events, or the kind and the reason of a group of dead letters.
	Reason string
	// Incomplete says that the change failed after Count events, or that a pause was stored or ended, and
	// the process of the operator could not read that.
	Incomplete bool
}

// AuditQuery is a page of the audit log.
type AuditQuery struct {
	// After is the Next of the page before; empty: the first page.
	After string
	// Limit is the most entries of a page. Defaults to DefaultAuditLimit; at most MaxAuditLimit.
	Limit int
}

// Delivers reports whether the node is known to deliver, or to be a standby: the mode of the node
// is not [WriterOnly].
func (n *Node) Delivers() bool { return n.Mode != "" && n.Mode != modeName(WriterOnly{}) }

// validate checks the values that a person typed.
func (f EventFilter) validate() error {
	v := validator{what: "EventFilter"}
	v.text("EventType", string(f.EventType), MaxEventTypeLength)
	v.text("AggregateType", string(f.AggregateType), MaxAggregateTypeLength)
	v.text("AggregateID", f.AggregateID, MaxAggregateIDLength)
	v.text("TenantID", f.TenantID, MaxTenantIDLength)
	v.text("IDPrefix", f.IDPrefix, MaxEventIDLength)
	v.text("ErrorText", f.ErrorText, MaxErrorLength)
	if _, ok := ulid.Time(f.DeletionID); f.DeletionID != "" && !ok {
		v.add("DeletionID", fmt.Sprintf("(%d bytes) is no id of a deletion; DeleteAll and the audit log have the ids of deletions", len(f.DeletionID)))
	}
	for _, status := range f.Statuses {
		if status < StatusNew || status > StatusDead {
			v.add("Statuses", fmt.Sprintf("has %d; statuses are NEW, RETRY, DONE and DEAD", int(status)))
		}
	}
	return v.err()
}

// deletionSpan is the time in which the done_at of the rows of a deletion are. The batches of a deletion
// have different times, so that an index has them in an order.
const deletionSpan = time.Millisecond

// ofDeletion is the filter with the bounds that let an index find the rows of the deletion.
func (f EventFilter) ofDeletion() EventFilter {
	at, is := ulid.Time(f.DeletionID)
	if !is {
		return f
	}
	if len(f.Statuses) == 0 {
		f.Statuses = []Status{StatusDone}
	}
	if f.Order() == ByEndTime && f.AggregateID == "" { // else, Since and Until are of another time
		if at.After(f.Since) {
			f.Since = at
		}
		if until := at.Add(deletionSpan); f.Until.IsZero() || until.Before(f.Until) {
			f.Until = until
		}
	}
	return f
}

// HasTexts reports whether an event id begins with IDPrefix, and a last error contains ErrorText.
// Databases differ in how they compare texts, so a store checks each row that a statement chose.
func (f EventFilter) HasTexts(eventID, lastError string) bool {
	return strings.HasPrefix(eventID, f.IDPrefix) &&
		(f.ErrorText == "" || strings.Contains(lowerASCII(lastError), lowerASCII(f.ErrorText)))
}

// lowerASCII replaces the letters A to Z.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

// EventOrder is the order in which a [Store] lists the events that an [EventQuery] asks
// for.
type EventOrder uint8

// The orders; see [Outbox.FindEvents].
const (
	ByEventID EventOrder = iota // the greatest first
	ByDueTime                   // by available_at, created_at, event id, the earliest first
	ByEndTime                   // by done_at, then event id, the latest first
	byDeath                     // of [DeadLetters], by done_at, then event id, the earliest first
)

// Order is the order of the events that the filter chooses.
func (f EventFilter) Order() EventOrder {
	if len(f.Statuses) == 0 || f.IDPrefix != "" {
		return ByEventID
	}
	first := f.Statuses[0]
	for _, status := range f.Statuses {
		if status != first && (status.Terminal() || first.Terminal()) {
			return ByEventID
		}
	}
	if first.Terminal() {
		return ByEndTime
	}
	return ByDueTime
}

// Next is the text of the place of a page's last row, for [Page].Next. For [ByEndTime],
// AvailableAt is the time of the end, and zero for a row whose time cannot be read; fields
// that the order does not use may be zero.
func (o EventOrder) Next(place Cursor) string {
	text := fmt.Sprintf("%d.%d.%d.%s", o, place.AvailableAt.UnixMicro(), place.CreatedAt.UnixMicro(), place.EventID)
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// After is the place of a text from Next; empty: the start. After fails with a [FieldError]
// for any other text, also for a text of another order.
func (o EventOrder) After(text string) (Cursor, error) { return o.after("EventQuery.After", text) }

// after is After of a field.
func (o EventOrder) after(field, text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	refused := &FieldError{Field: field, Problem: fmt.Sprintf("(%d bytes) is no place in this list; pass the Next of a page of the same filter, or nothing for the first page", len(text))}
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.SplitN(string(decoded), ".", 4)
	if err != nil || len(parts) != 4 || parts[0] != strconv.Itoa(int(o)) {
		return Cursor{}, refused
	}
	due, err1 := parseMicros(parts[1])
	created, err2 := parseMicros(parts[2])
	id := parts[3]
	if err1 != nil || err2 != nil || !storableID(id) {
		return Cursor{}, refused
	}
	return Cursor{AvailableAt: due, CreatedAt: created, EventID: id}, nil
}

// storableID reports whether every database accepts the text as an event id.
func storableID(id string) bool {
	return id != "" && utf8.ValidString(id) && !strings.ContainsRune(id, 0) && utf8.RuneCountInString(id) <= MaxEventIDLength
}

// parseMicros reads a time that a store can read, or the zero time.
func parseMicros(text string) (time.Time, error) {
	micros, err := strconv.ParseInt(text, 10, 64)
	at := time.UnixMicro(micros).UTC()
	if err == nil && !at.IsZero() && (at.Year() < 1 || at.Year() > maxYear) {
		err = strconv.ErrRange
	}
	return at, err
}

// Stats describes the table and this process. Each count of rows stops at
// [StatsLimit], so that reading them is cheap whatever the backlog.
type Stats struct {
	Pending int64 // Due + Delayed
	Due     int64 // NEW and RETRY rows that are due now
	Delayed int64 // NEW and RETRY rows that are due later
	Dead    int64
	// DuePaused is how many of the due events are of a paused kind, among the first StatsLimit events.
	DuePaused int64
	// OldestDueAge is how long the oldest due event has been due whose kind is not paused and has no
	// [Rules].MaxDueAge; zero when there is no such event. If a process publishes the rows from the database's
	// log, which leaves them as they are (see [Node].Log), OldestDueAge is how long that process has not
	// published the whole log; zero for less than 20 s.
	OldestDueAge time.Duration
	// Late are the kinds with a [Rules].MaxDueAge of which an event has been due for longer and that are not
	// paused, by aggregate type and event type. Stats looks at the StatsLimit events that have been due
	// longest, without those that may still wait. The kinds are those of this process and of the reports of
	// the others; see [Node].MaxDueAges.
	Late []LateKind
	// ReplayProgressAge is how long ago the running replay of delivered events made progress that has made
	// no progress for the longest; zero when no replay runs. See [ReplayStatus].Progress.
	ReplayProgressAge time.Duration
	// HotDepth and ColdDepth are the events that wait in this node's queues. Events of
	// kinds that have a Concurrency or a Rate (see [Rules]) count as ColdDepth.
	HotDepth, ColdDepth int
	// Paused are the kinds of events that are paused, and the keys of kinds; see [Outbox.Paused]. The
	// events of paused kinds count as Pending and Due like all others, and also as DuePaused; they are left
	// out of OldestDueAge and Late.
	// The events of paused keys are deferred, and count as Delayed.
	Paused []Pause
	// Unheard are the kinds of events that came to this node and have no listener here, by
	// aggregate type and event type. The node leaves their events to other nodes.
	Unheard []EventKind
	// Shares are the shares of this node in limits of all processes, by kind, in [MultiNode]; see
	// [Rules].Fleetwide. [Outbox.Shares] reads the shares of all processes.
	Shares []OwnShare
	// LastPoll is when the poller of this node last read the table without an error, or
	// found the dispatcher full; the zero time when it has not done so yet, and in a process
	// that only writes. An idle table is read once in an interval, so a time that is much
	// older says that the poller does not get through.
	LastPoll time.Time
	// WriteFailures counts the reports of this node in a row that the database did not take.
	// The node writes a report every ten seconds while the outbox runs. The database may answer
	// reads all the same, as a standby or a full disk does.
	WriteFailures int
	// PollInterval is how often the poller reads an idle table; zero in a process that only
	// writes: one in [WriterOnly], or without a listener.
	PollInterval time.Duration
}
