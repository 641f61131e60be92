package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/outboxkit/outbox-go/internal/nilness"
)

// DB is the part of a connection pool that the outbox needs. *sql.DB is a DB, and so is any type
// that embeds *sql.DB.
type DB interface {
	Execer
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Store keeps the outbox table of one kind of database. Package sqlstore has stores for PostgreSQL,
// MySQL and SQLite; package outboxtest has a store in memory, and package conformance certifies any
// store.
//
// A store holds no connection: each call is given the transaction or the pool. A store is safe for
// concurrent use. Errors name the operation, the event and the table, and wrap the driver's error.
// Times are in UTC, cut to microseconds.
//
// A lease is a name in locked_by, unique to an Insert or a Claim. A statement names its lease, so a
// statement that runs twice, or late, changes only rows under that lease.
//
// "Database's clock" below is the clock of the server, in UTC, so that nodes whose own clocks
// differ agree.
type Store interface {
	// Check reports a problem that keeps the outbox from working: the database is of another
	// dialect, a table or a column is missing, nothing can be inserted, as on a standby, or, when
	// claims is set, the database refuses claims. The error says how to correct the problem.
	Check(ctx context.Context, db DB, claims bool) error

	// Insert adds sealed envelopes as NEW rows with no attempts, through the caller's transaction,
	// with created_at OccurredAt and available_at AvailableAt: one statement, or as few as the
	// database's limits allow. If lease is not empty, the rows of the envelopes whose AvailableAt
	// is not after due get the lease, from now on by the database's clock.
	Insert(ctx context.Context, tx Execer, envs []Envelope, lease string, due time.Time) error

	// InsertOnce is Insert for envelopes of which some have an id that the caller gave, or a
	// UniqueKey, and returns the ids of the envelopes in order. InsertOnce inserts all rows or no row.
	// A row that is kept out does not end the transaction: the caller can go on.
	//
	// An envelope is skipped if another NEW or RETRY row of the same types, perhaps of an envelope
	// before it, has its UniqueKey: the id in the result is that of the row. Keys are compared byte by
	// byte. Otherwise, if a row has the id of an envelope, the error is a [DuplicateEventError]; its EventIDs
	// may be nil.
	// InsertOnce waits for an open transaction that has inserted such a row.
	//
	// An envelope with KeepLatest is not skipped. If the row that has its UniqueKey is one that TakeBack
	// would change, that row gets the payload, the headers and the available_at of the envelope, as from a
	// [Change]; the id in the result is that of the row, which may be the id of the envelope. Otherwise
	// that row loses its key, and the envelope is inserted, without a lease.
	//
	// If tx sends its statement later, and so does not know how many rows there are, it counts as many
	// as there are envelopes. A store without unique keys fails with a [FieldError] of the field
	// Envelope.UniqueKey.
	InsertOnce(ctx context.Context, tx Execer, envs []Envelope, lease string, due time.Time) (ids []string, err error)

	// TakeBack changes rows through the caller's transaction: those of q that are NEW or RETRY, have no
	// lease, and are postponed, which means that available_at is after created_at. It leaves the other
	// rows alone and counts them. It waits for a statement that is changing one of the rows, and works on
	// rows of the same transaction as well. The ids of q are distinct. A store that lacks an index for
	// Kind and AggregateID fails with a [FieldError] of the field Waiting.AggregateID. tx may also be the
	// pool: then TakeBack commits, and changes no row that another statement leased meanwhile. In the pool it
	// does not wait for open transactions: a row that another transaction has locked counts as InHand, if the
	// database can say so.
	TakeBack(ctx context.Context, tx Execer, q Waiting, c Change) (TakenBack, error)

	// Poll reads rows that are due and not leased, and rows whose lease expired, and changes
	// nothing.
	Poll(ctx context.Context, db DB, q PollQuery) (Batch, error)

	// Claim leases due rows and returns them. Two concurrent calls never return the same row, and
	// neither waits for the other. [ClaimQuery] says which rows.
	Claim(ctx context.Context, db DB, q ClaimQuery) (Batch, error)

	// NextDue is the earliest available_at after the given time among NEW and RETRY rows; the zero
	// time when there is no such row.
	NextDue(ctx context.Context, db DB, after time.Time) (time.Time, error)

	// Mark stores a kind of outcome for a batch of distinct events in one statement, so that the
	// outcome is stored for all events or for none. A mark that names a lease touches only a row
	// under that lease. Mark returns the rows that it left alone for that reason, as they stand. Of
	// the other marks, Mark returns rows that are not there, and rows that are NEW or RETRY
	// although the mark should have changed them, as when a trigger skips the update. The map is by
	// event id; nil when there are no such rows. After [OutcomeDelete] the missing rows of marks
	// without a lease may be any of the rows that are gone: only their number is certain. Marking a
	// second time leaves the rows as they were after the first time.
	Mark(ctx context.Context, db DB, outcome Outcome, marks []Mark) (left map[string]RowState, err error)

	// Split stores [OutcomeDone] or [OutcomeDelete] for a batch of distinct events, and adds the
	// rows of the listeners that are not done, in a single transaction. Split changes the same rows
	// as Mark. An event whose row does not change gets no rows for listeners, so a second call adds
	// none. Split returns these events as they stand, by event id, also of marks without a lease;
	// nil when there are no such events. A row whose id exists already stays as it is.
	Split(ctx context.Context, db DB, outcome Outcome, splits []Split) (left map[string]RowState, err error)

	// Complete stores [OutcomeDone] or [OutcomeDelete] for an event through the caller's
	// transaction, and reports whether the row changed. Complete changes the row only if it is NEW
	// or RETRY and, if the mark names a lease, under that lease.
	Complete(ctx context.Context, tx Execer, outcome Outcome, mark Mark) (bool, error)

	// Leased reads the NEW and RETRY rows that are under one of these leases, also if the lease has
	// expired, and changes nothing.
	Leased(ctx context.Context, db DB, names []string) ([]Lease, error)

	// Renew starts these leases again, as far as the rows are still under them.
	Renew(ctx context.Context, db DB, leases []Lease) error

	// Ranges reads the ranges of rows that processes have the right to deliver, as of a moment after
	// Ranges was called, with the time of the database's clock at that moment.
	Ranges(ctx context.Context, db DB) (Ranges, error)
	// SetRanges replaces the ranges in one statement, and reports whether it did: not when another call
	// replaced the ranges since they had the version was, nor when the database's clock is past by.
	// next.Version is a name that no other call has, of 128 characters at most, so a call that runs
	// twice, or late, changes nothing. next.Now is ignored. A store need not have room for more than
	// 200 ranges.
	SetRanges(ctx context.Context, db DB, was string, by time.Time, next Ranges) (bool, error)
	// Shares reads how processes share the limits of a kind, as of a moment after Shares was called, with
	// the time of the database's clock at that moment; see [Rules].Fleetwide.
	Shares(ctx context.Context, db DB, kind EventKind) (Shares, error)
	// SetShares replaces the shares of a kind in one statement, and reports whether it did: not when
	// another call replaced the shares since they had the version was. next.Version is a name that no
	// other call has, of 128 characters at most, so a call that runs twice, or late, changes nothing.
	// next.Now is ignored. A store need not have room for a value of more than 60,000 bytes.
	SetShares(ctx context.Context, db DB, kind EventKind, was string, next Shares) (bool, error)
	// Reach looks at the rows that Poll would return for the query, rows that cannot be decoded
	// included, reads no payload, and changes nothing.
	Reach(ctx context.Context, db DB, q PollQuery) (Reach, error)

	// Pause stores a pause of a kind or, with an AggregateID, of a key. The pause ends at pause.Until by
	// the database's clock; zero: at Resume. The pause replaces the pause that the kind or the key has. An
	// automatic pause replaces only a pause that has ended, or an automatic pause that ends earlier; else it
	// changes nothing.
	Pause(ctx context.Context, db DB, pause Pause) error
	// Resume ends the pause of a kind or, if the aggregate id is not empty, the pause of this key of the
	// kind. Other pauses stay. Resume changes nothing if there is no such pause.
	Resume(ctx context.Context, db DB, kind EventKind, aggregateID string) error
	// Paused lists the pauses that have not ended, of kinds and of keys, in any order.
	Paused(ctx context.Context, db DB) ([]Pause, error)

	// Purge deletes a batch of old rows, the oldest first. Beside an error, Purged says what was
	// deleted before.
	Purge(ctx context.Context, db DB, q PurgeQuery) (Purged, error)

	// Stats counts rows, reading no more than StatsLimit of each kind. The oldest due row is the
	// first row whose kind is not paused; rows of paused kinds are read past. DuePaused costs nothing
	// when no kind is paused.
	Stats(ctx context.Context, db DB, now time.Time, paused []EventKind) (StoreStats, error)

	// QueryDead lists DEAD rows by the time they died, then by id: without payloads, with the header
	// HeaderListener alone, and with the first MaxErrorLength characters of the error. Without
	// [DeadRowsQuery].Listed it fills the fields that filters and groups compare.
	QueryDead(ctx context.Context, db DB, q DeadRowsQuery) ([]DeadLetter, error)
	// GetDead reads a DEAD row; [ErrNotFound] when no DEAD row has this id.
	GetDead(ctx context.Context, db DB, eventID string) (DeadLetter, error)
	// CountDead counts DEAD rows.
	CountDead(ctx context.Context, db DB, f DeadFilter) (int64, error)
	// ReplayDead gives another status, NEW or RETRY, to the rows with these ids that are DEAD: no
	// attempts, available at now, and error, done_at and lease cleared. ReplayDead returns the
	// number of changed rows. Rows whose unique key a NEW or RETRY row has stay DEAD: then the others
	// are changed, and the error is a [KeyTakenError].
	ReplayDead(ctx context.Context, db DB, eventIDs []string, now time.Time, to Status) (int, error)
	// DeleteDead takes the rows with these ids that are DEAD from the dead letters, and returns their
	// number. With an empty by, DeleteDead deletes the rows. Otherwise the rows become DONE, in a form that
	// RestoreDead undoes: locked_at is the done_at that the row had, or NULL if that is no time;
	// locked_by is by, and done_at is at. by begins with [DeletedBy].
	DeleteDead(ctx context.Context, db DB, eventIDs []string, by string, at time.Time) (int, error)
	// RestoreDead makes rows DEAD again that DeleteDead made DONE, those with the earliest done_at first: done_at is
	// the locked_at of the row, and the row has no lease.
	RestoreDead(ctx context.Context, db DB, q DeletedQuery) (Restored, error)
	// CountDeleted counts the rows that RestoreDead would make DEAD, up to q.Limit.
	CountDeleted(ctx context.Context, db DB, q DeletedQuery) (int64, error)

	// Replays reads the rows of the replays of delivered events, in any order, without their names; see
	// [Outbox.StartReplay].
	Replays(ctx context.Context, db DB) ([]ReplayRow, error)
	// SetReplay replaces the row of the replay with this name in one transaction, and reports whether it
	// did: not if the row does not have the version was; an empty was stands for no row. next.Version is a
	// name that no other call has, of 128 characters at most. An empty next.Value deletes the row.
	//
	// With envelopes, SetReplay also inserts these as NEW rows with no attempts, no lease, created_at
	// OccurredAt and available_at AvailableAt, sets NextAt to a second from now by the database's clock, and
	// changes nothing before the NextAt that the row has. A row whose id exists already stays as it is.
	// Without envelopes NextAt stays as it is. next.NextAt and next.Now are ignored. A store need not have
	// room for a value of more than 60,000 bytes.
	SetReplay(ctx context.Context, db DB, was string, next ReplayRow, envs []Envelope) (bool, error)
	// Delivered looks at DONE rows behind a place, in the order of done_at and event id, and reads the events
	// that the query chooses, with their payloads. Rows for one of several listeners, deleted dead letters and
	// rows without a readable done_at are no events.
	Delivered(ctx context.Context, db DB, q DeliveredQuery) (Delivered, error)
	// Added counts the rows with these ids that were not tried, and that failed.
	Added(ctx context.Context, db DB, eventIDs []string) (AddedRows, error)

	// Now reads the database's clock.
	Now(ctx context.Context, db DB) (time.Time, error)

	Inspector
}

// PoolBinder is implemented by a store in which a name may mean another table in the sessions of
// writers than in the sessions of the pool. [New] and [NewWriter] ask such a store for the store of
// their pool, so that all statements of an outbox reach the same table.
type PoolBinder interface {
	// BindPool returns a store of the same table for a pool, and does not ask the database. A
	// store that is bound to the pool already is returned as it is. asked is the store of the
	// configuration. If asked is another value that embeds this store, BindPool returns asked,
	// whose own methods would be lost otherwise.
	BindPool(db DB, asked Store) Store
}

// bound is the store for the outbox of a pool.
func bound(store Store, pool any) Store {
	binder, binds := store.(PoolBinder)
	db, ok := pool.(DB)
	if !binds || !ok {
		return store
	}
	return binder.BindPool(db, store)
}

// RowState is how a row stands.
type RowState struct {
	// Exists is false when there is no row; the other fields are then zero.
	Exists bool
	Status Status
	// Lease is the name in locked_by; empty when the row is not leased.
	Lease string
	// DueAt is available_at; zero if it is no time.
	DueAt time.Time
}

// shows reports whether the row has the state that the outcome leads to. Only a repeated
// statement has to ask: the first statement may have been carried out.
func (s RowState) shows(outcome Outcome) bool {
	if !s.Exists {
		return outcome == OutcomeDelete || outcome == OutcomeSplit
	}
	switch outcome {
	case OutcomeDone, OutcomeSplit:
		return s.Status == StatusDone
	case OutcomeDead:
		return s.Status == StatusDead
	case OutcomeRetry:
		return s.Status == StatusRetry && s.Lease == ""
	case OutcomeDeferred:
		return s.Status == StatusNew && s.Lease == ""
	case OutcomeReleased:
		return s.Lease == ""
	default:
		return false
	}
}

// skipped reports whether the mark should have changed a row that it left alone.
func (s RowState) skipped(m Mark) bool {
	return s.Exists && (s.Status == StatusNew || s.Status == StatusRetry) && (m.Lease == "" || s.Lease == m.Lease) &&
		(m.DueAt.IsZero() || s.Lease == "" && s.DueAt.Equal(m.DueAt))
}

// Lease is the lease of a row.
type Lease struct {
	EventID string
	Name    string
}

// Outcome is the result of a delivery for the row of the event.
type Outcome uint8

// The kinds of outcomes. Each clears the lease. RETRY, DEAD and deferral touch
// only NEW and RETRY rows, DONE and deletion any row that is not DONE.
const (
	// OutcomeDone: status DONE, done_at now by the database's clock.
	OutcomeDone Outcome = iota
	// OutcomeDelete deletes the row instead of marking it DONE.
	OutcomeDelete
	// OutcomeRetry: status RETRY, Mark.Attempts, Mark.AvailableAt, Mark.Error.
	OutcomeRetry
	// OutcomeDead: status DEAD, Mark.Attempts, Mark.Error, done_at now by the
	// database's clock.
	OutcomeDead
	// OutcomeDeferred: status NEW, Mark.AvailableAt, Mark.Error unless Mark.Error is empty,
	// attempts unchanged.
	OutcomeDeferred
	// OutcomeReleased: only the lease is given up.
	OutcomeReleased
	// OutcomeSplit is [OutcomeDone] or [OutcomeDelete] with rows for the listeners of the event
	// that are not done: see [Store].Split. Mark does not know this outcome.
	OutcomeSplit
)

// String names the kind.
func (k Outcome) String() string {
	switch k {
	case OutcomeDone:
		return "done"
	case OutcomeDelete:
		return "delete"
	case OutcomeRetry:
		return "retry"
	case OutcomeDead:
		return "dead"
	case OutcomeDeferred:
		return "deferred"
	case OutcomeReleased:
		return "released"
	case OutcomeSplit:
		return "split"
	default:
		return "unknown"
	}
}

// final reports whether the row is at its end: the row will not be claimed again.
func (k Outcome) final() bool {
	return k == OutcomeDone || k == OutcomeDelete || k == OutcomeDead || k == OutcomeSplit
}

// delivered reports whether the listener had the event and is done with it.
func (k Outcome) delivered() bool { return k == OutcomeDone || k == OutcomeDelete }

// Mark is the outcome of an event.
type Mark struct {
	EventID string
	// Lease is the lease that the event was delivered under; empty: none.
	Lease string
	// DueAt, of a mark without a lease, is the available_at with which the row was read: the mark
	// leaves a row alone that has another available_at, or a lease. Zero: not compared. Marks with
	// DueAt are reported as marks that name a lease are. A row that passes and has the values of the
	// outcome already, such as a row that is released, is not reported.
	DueAt time.Time
	// AvailableAt is when the event is due again (retry, deferral).
	AvailableAt time.Time
	// Error becomes last_error (retry, dead); empty: NULL. For a deferral, empty leaves last_error
	// as it is. Error is valid UTF-8 without NUL, at most 4,000 characters.
	Error string
	// Attempts are the attempts that the row has from then on (retry, dead), unless the row has
	// more. They are not added to the attempts of the row, so that an outcome that is stored twice
	// counts once. A row has more if this process lost its lease, and claimed the row again under
	// the lease of the mark after another process had delivered the event.
	Attempts int
}

// PurgeQuery says which rows are old.
type PurgeQuery struct {
	// Before: rows whose time is earlier are deleted. The time of a row is done_at, created_at
	// where done_at is missing, and always created_at when ByAge.
	Before time.Time
	// ByAge deletes rows of any status; otherwise only DONE and DEAD rows are deleted.
	ByAge bool
	// Status, if it is [StatusDone] or [StatusDead], deletes only rows of this status.
	Status Status
	// Only, if it is not empty, deletes only rows of these kinds. Except leaves out rows of these
	// kinds. A query with kinds has a Status, or ByAge.
	Only, Except []EventKind
	// Since, in a query with kinds: rows whose time is earlier need not be looked at, because
	// earlier queries did; zero: all rows are looked at.
	Since time.Time
	// Limit is the most rows to delete; positive.
	Limit int
}

// Purged are the rows that a purge deleted.
type Purged struct {
	Rows int
	// Last is the time of the last row, for a query with kinds: the next query can begin there. Zero:
	// the store does not know.
	Last time.Time
}

// DeletedQuery says which rows of deleted dead letters a [Store] restores or counts at once.
type DeletedQuery struct {
	// By is the locked_by of the rows.
	By string
	// Since and Until bound done_at: Since <= done_at < Until.
	Since, Until time.Time
	// Limit is the most rows; positive.
	Limit int
}

// Restored is the result of [Store].RestoreDead.
type Restored struct {
	// Rows is how many rows became DEAD.
	Rows int
	// Looked is how many rows were found. Another call may have changed some of them before they were
	// restored. If there are fewer than the limit, there are no more.
	Looked int
	// Last is the latest done_at of the rows that were found.
	Last time.Time
}

// ReplayRow is the row of a replay of delivered events; see [Outbox.StartReplay].
type ReplayRow struct {
	// Name identifies the row. [Store].Replays leaves Name empty.
	Name string
	// Version is the name of the call that set the row.
	Version string
	// Value is the state of the replay, which a store does not read: valid UTF-8 without NUL.
	Value string
	// NextAt is when rows may be added again, by the database's clock. Zero: at any time.
	NextAt time.Time
	// Now is the time of the database's clock when the row was read.
	Now time.Time
}

// AddedRows is the result of [Store].Added.
type AddedRows struct {
	// Untried rows are NEW or RETRY and have no attempts. Failed rows are RETRY and have attempts, or are
	// DEAD.
	Untried, Failed int
	// LastError is the last error of a failed row, cut at MaxErrorLength characters; empty: no row failed.
	LastError string
}

// DeliveredQuery says which DONE rows [Store].Delivered looks at, and which events it reads.
type DeliveredQuery struct {
	// AggregateType and EventTypes are the kinds of the events; both are given.
	AggregateType AggregateType
	EventTypes    []EventType
	// AggregateID and TenantID choose the events of an aggregate or a tenant. Empty: of all.
	AggregateID string
	TenantID    string
	// AfterDoneAt and AfterEventID are the place of the last row of the call before. With an empty
	// AfterEventID the rows with done_at AfterDoneAt are looked at, too.
	AfterDoneAt  time.Time
	AfterEventID string
	// Until leaves out rows with done_at at or after Until.
	Until time.Time
	// Look is the most rows to look at, and Limit the most events; both are positive. A store may return
	// fewer events, so that their payloads are not larger than a few MiB together.
	Look, Limit int
}

// Delivered is the result of [Store].Delivered.
type Delivered struct {
	// Events are in the order of done_at and event id.
	Events []Envelope
	// Looked is how many rows were looked at, and Unreadable how many of the chosen events cannot be read.
	// A row that was deleted meanwhile counts as looked at.
	Looked, Unreadable int
	// DoneAt and EventID are the place of the last row that was looked at; without such a row, the place of
	// the query.
	DoneAt  time.Time
	EventID string
	// End: there are no rows before Until behind the place.
	End bool
}

// StatsLimit is where the counts of [StoreStats] stop.
const StatsLimit = 100_000

// StoreStats are counts over the table. Each count stops at [StatsLimit].
type StoreStats struct {
	Due     int64 // NEW and RETRY rows available at or before now
	Delayed int64 // NEW and RETRY rows available later
	Dead    int64
	// DuePaused counts the rows of paused kinds among the first StatsLimit due rows, in due order.
	DuePaused int64
	// OldestDue is the earliest available_at of the due rows whose kind is not paused;
	// zero: none due.
	OldestDue time.Time
}

// DeadFilter chooses dead letters. Zero fields choose all.
type DeadFilter struct {
	EventType     EventType
	AggregateType AggregateType
	AggregateID   string
	TenantID      string
	// EventIDs are the letters' own ids, GroupLimit at most; empty: all.
	EventIDs []string
	// Group is the ID of a [DeadGroup]; empty: all. [DeadLetters] compares it; a store
	// ignores it.
	Group string
	// Since and Until bound the time of death: Since <= died < Until.
	Since, Until time.Time
}

// DeadQuery is a page of the dead letters that a filter chooses.
type DeadQuery struct {
	DeadFilter
	// After is the Next of the page before; empty: the first page.
	After string
	// Limit is the most letters of a page. Defaults to 100.
	Limit int
}

// DeadRowsQuery says which dead rows a [Store] reads at once.
type DeadRowsQuery struct {
	DeadFilter
	// AfterDiedAt and AfterEventID continue behind an earlier row. Zero: from
	// the start.
	AfterDiedAt  time.Time
	AfterEventID string
	// Limit is the most rows to read; positive.
	Limit int
	// KeysOnly fills only EventID and DiedAt.
	KeysOnly bool
	// Listed fills also OccurredAt, AvailableAt, Attempts, the header [HeaderEventID] of a row for one of
	// several listeners, and PayloadBytes, for which the database reads each payload.
	Listed bool
}

// DeadLetter is an event that was given up.
type DeadLetter struct {
	Envelope
	// LastError says why the event was given up.
	LastError string
	// DiedAt says when the event was given up.
	DiedAt time.Time
	// PayloadBytes is the length of the payload as the database writes it. A letter in a list has
	// PayloadBytes instead of the payload.
	PayloadBytes int
	// Listener is the listener for which an event of several listeners was given up; empty: for
	// all. See [Named].
	Listener string
	// OriginalID is the event's id for listeners. The id differs from EventID, which
	// identifies the dead letter, only if Listener is set.
	OriginalID string
}

// Limits of the texts of a [Pause], in characters.
const (
	MaxPauseReason = 500
	MaxPauseBy     = 256
)

// Pause is a kind of event that is paused, or a key of a kind; see [Outbox.Pause].
type Pause struct {
	// Kind is required. An empty aggregate type is [Global].
	Kind EventKind
	// AggregateID chooses a key: only the events of the kind that have this aggregate id are paused. Empty:
	// all events of the kind.
	AggregateID string
	// Until is when the pause ends, by the database's clock. Zero: at [Outbox.Resume]. Required with
	// AggregateID.
	Until time.Time
	// Reason says to operators why the kind or the key is paused, and By who paused it: a person, or the process
	// whose listener returned [PauseFor] or [PauseKeyFor]. Each is a single line of at most [MaxPauseReason] and
	// [MaxPauseBy] characters, and may be empty.
	Reason, By string

	// Since is when the kind was paused, by the clock of the process that was asked, and Automatic says
	// that a listener asked. The outbox sets both.
	Since     time.Time
	Automatic bool
}

func (p Pause) validate(v *validator) {
	kind := validator{what: v.what + ".Kind"}
	p.Kind.validate(&kind)
	v.errs = append(v.errs, kind.errs...)
	v.text("AggregateID", p.AggregateID, MaxAggregateIDLength)
	if p.AggregateID != "" && p.Until.IsZero() {
		v.add("Until", "is required for the pause of a key: the events of the key are deferred to this time")
	}
	v.line("Reason", p.Reason, MaxPauseReason)
	v.line("By", p.By, MaxPauseBy)
	if !p.Until.IsZero() {
		v.time("Until", p.Until)
	}
}

// PollQuery says which due rows to read.
type PollQuery struct {
	// Now: rows with available_at at or before Now are due.
	Now time.Time
	// CreatedBefore leaves out rows created after CreatedBefore. Zero: no bound.
	CreatedBefore time.Time
	// After continues behind an earlier batch's Next. Zero: from the start.
	After Cursor
	// LeaseDuration is the age at which a lease expires, by the database's clock. A lease
	// whose time is as far ahead of that clock, or is no time, has expired too.
	LeaseDuration time.Duration
	// Limit is the most rows to read; positive.
	Limit int
	// Except leaves out events of these kinds.
	Except []EventKind
	// Upto is the place of the last row to read. Zero: to the end. With Upto, rows whose available_at
	// is no time may be left out.
	Upto Cursor
	// FreshOnly leaves out rows that have a lease, expired or not.
	FreshOnly bool
}

// ClaimQuery says which due rows to lease: rows that are not leased, and rows whose lease expired.
// The latter get an additional attempt, which the returned envelopes count.
type ClaimQuery struct {
	Now           time.Time   // as in PollQuery
	CreatedBefore time.Time   // as in PollQuery
	After         Cursor      // as in PollQuery
	Limit         int         // as in PollQuery
	Except        []EventKind // as in PollQuery
	// EventIDs claims only rows of these events. Empty: of all.
	EventIDs []string
	// Lease is the name that the rows get. No other claim has this name.
	Lease string
	// LeaseDuration is the age at which a lease expires, by the database's clock. A lease
	// whose time is as far ahead of that clock, or is no time, has expired too.
	LeaseDuration time.Duration
	// FreshOnly leaves out rows whose lease expired.
	FreshOnly bool
	// ExpiredOnly leaves out rows that are not leased. The claim still reads past these rows, so Upto
	// or EventIDs should bound the rows that it reads.
	ExpiredOnly bool
	// Upto is the place of the last row to claim, as in PollQuery.
	Upto Cursor
	// Move adds a microsecond to available_at of the claimed rows, so that late marks with the
	// DueAt before change nothing. The envelopes have the new time, and Batch.Next is the place
	// before the move. An available_at that is no time stays as it is.
	Move bool
	// By is the time, by the database's clock, after which the claim takes no row. Zero: no limit.
	By time.Time
}

// Ranges are the ranges of due rows that processes have the right to deliver. A process delivers a
// row without a lease only in its own range, and ranges do not overlap.
type Ranges struct {
	// Version is the name of the call that set the ranges; empty: no call has.
	Version string
	// Now is the time of the database's clock when the ranges were read.
	Now time.Time
	// Ranges in the order of their places.
	Ranges []Range
}

// Holder is the name of the process that has the right to all rows, as a process of [SingleNode] or
// [Ordered] has: its hold. Empty: no process has.
func (r Ranges) Holder() string {
	i := slices.IndexFunc(r.Ranges, func(listed Range) bool { return listed.isHold() && r.lasts(listed) })
	if i < 0 {
		return ""
	}
	return r.Ranges[i].Name
}

// lasts reports whether the right to a range of the list had not ended when the list was read.
func (r Ranges) lasts(listed Range) bool { return listed.lastsAt(r.Now) }

// Range are the due rows behind After, up to Upto, that have no lease.
type Range struct {
	// Name of the right; no other range has it.
	Name string
	// Upto is zero in the range of all rows.
	After, Upto Cursor
	// Until is the end of the right, by the database's clock.
	Until time.Time
}

// isHold reports whether the range has all rows.
func (r Range) isHold() bool { return r.Upto.IsZero() }

// maxRight is longer than any right: a right that ends later was not set by a process, and would keep
// all processes away for ever.
const maxRight = 24 * time.Hour

// lastsAt reports whether the right has not ended at a time of the database's clock.
func (r Range) lastsAt(now time.Time) bool {
	return !r.Until.Before(now) && !r.Until.After(now.Add(maxRight))
}

// Shares are the shares of processes in the limits of a kind of event.
type Shares struct {
	// Version is the name of the call that set the shares; empty: no call has.
	Version string
	// Now is the time of the database's clock when the shares were read.
	Now time.Time
	// Value is the list of the shares, which a store does not read: valid UTF-8 without NUL.
	Value string
}

// Reach is the result of [Store].Reach.
type Reach struct {
	// End is the place of the last row, as Batch.Next of a Poll; zero when there is no row.
	End Cursor
	// Fresh and Expired are the numbers of rows that have no lease, and whose lease expired.
	Fresh, Expired int
}

// Cursor is a place in the order of due rows: available_at, created_at, event
// id. The zero value is before all.
type Cursor struct {
	AvailableAt time.Time
	CreatedAt   time.Time
	EventID     string
}

// IsZero reports whether c is the start.
func (c Cursor) IsZero() bool { return c.EventID == "" && c.AvailableAt.IsZero() }

// Batch has the rows that a poll or a claim read. The rows are chosen by due time (available_at,
// created_at, event_id) and returned oldest first (created_at, then event id).
type Batch struct {
	Envelopes []Envelope
	// Undecodable are rows that were read and cannot be delivered.
	Undecodable []Undecodable
	// Expired are the events of a poll whose rows are leased, with a lease that
	// expired.
	Expired []Lease
	// Next is the place behind the last row in the order of due times, or before that place. All
	// due rows up to Next were read, or were leased or locked.
	Next Cursor
}

// Len is the number of rows that were read.
func (b Batch) Len() int { return len(b.Envelopes) + len(b.Undecodable) + len(b.Expired) }

// Undecodable is a row whose columns do not make an envelope, such as headers
// that are no flat object of strings.
type Undecodable struct {
	EventID string
	Err     error
}

// EventKey is the key by which [OrderedByKey] orders: the aggregate type and the aggregate id. An
// event without an aggregate id has a key of its own.
type EventKey struct {
	AggregateType AggregateType
	// ID is the aggregate id, or the event id where the aggregate id is empty.
	ID string
}

// RunReader is implemented by a store that can serve [OrderedByKey].
type RunReader interface {
	// ReadRuns reads runs of events that may be delivered now, and changes nothing. A run is the
	// beginning of the pending events of a key. Within a key, a RETRY row comes first, then NEW
	// rows by available_at, created_at, event id. A key has no run while its first row is not due,
	// or leased, or DEAD unless q.SkipDead, or while one of its first q.Length rows has a lease
	// that has not expired. A run ends before the first row that is not due, is of a kind in
	// q.Except, or has a lease that expired; with q.Takeovers, before the first row that has no
	// lease. A run has no gaps. The rows of a key are judged as of one moment: the run never begins
	// behind a row that was the first of the key when the read began and still is pending. An
	// aggregate type that is NULL is [Global]. A read with q.Takeovers that gets to the end may
	// store [Global] in the rows without a type, so that the next read finds them.
	ReadRuns(ctx context.Context, db DB, q RunQuery) (Runs, error)
	// BeginKeys reads which of these events are the first NEW or RETRY rows of their keys, in the
	// order of ReadRuns, and changes nothing. The answer is as of a moment after BeginKeys was called:
	// it knows all rows that were committed before.
	BeginKeys(ctx context.Context, db DB, eventIDs []string) ([]string, error)
	// CheckRuns reports that the database lacks a part that ReadRuns needs, such as an
	// index. The error says how to add it.
	CheckRuns(ctx context.Context, db DB) error
}

// RunQuery says which runs to read.
type RunQuery struct {
	Now           time.Time // as in PollQuery
	CreatedBefore time.Time // as in PollQuery
	// LeaseDuration is the age at which a lease expires, by the database's clock. A lease
	// whose time is as far ahead of that clock, or is no time, has expired too.
	LeaseDuration time.Duration
	// Takeovers reads only keys whose first row has a lease that expired. Their runs are that row
	// and the rows directly behind it whose leases expired too.
	Takeovers bool
	// SkipDead: DEAD rows do not hold back their keys.
	SkipDead bool
	// Except are kinds of events that are not to be delivered now.
	Except []EventKind
	// After continues behind an earlier call's Next. Zero: from the start.
	After EventKey
	// Length is the most rows of a run, and the number of rows of a key that are looked at. Limit
	// is the most rows of all runs; with Takeovers, the most runs. Both are positive.
	Length, Limit int
}

// Runs is the result of [RunReader].ReadRuns.
type Runs struct {
	// EventIDs of each run, in order.
	EventIDs [][]string
	// Behind are, for each run of Takeovers, the leases that expired of the rows behind the first
	// row of the run. The rows are among the first q.Length rows of the key, and rows of the run
	// are included. Between these rows there may be others.
	Behind [][]Lease
	// Next is the place of the last key that was looked at, only for After. A call looks at a
	// bounded number of keys, so it may return few runs, or no runs, although there are more.
	Next EventKey
	// End: there is no key behind Next.
	End bool
}

// TenantReader is implemented by a store that can read due events tenant by tenant.
type TenantReader interface {
	// ReadTenants reads, tenant by tenant, the first events that are due and not leased,
	// and changes nothing. Events without a tenant belong to a single tenant, whose id is "".
	// ReadTenants goes from the tenant behind q.After once round to q.After.
	ReadTenants(ctx context.Context, db DB, q TenantQuery) (Tenants, error)
	// CheckTenants reports that the database lacks a part that ReadTenants needs, such as an
	// index. The error says how to add it.
	CheckTenants(ctx context.Context, db DB) error
}

// TenantQuery says which events to read.
type TenantQuery struct {
	Now           time.Time   // as in PollQuery
	CreatedBefore time.Time   // as in PollQuery
	Except        []EventKind // as in PollQuery
	// After is an earlier call's Next.
	After string
	// Length is the most events of a tenant, Limit the most in all; positive.
	Length, Limit int
}

// Tenants is the result of [TenantReader].ReadTenants.
type Tenants struct {
	// EventIDs are in no particular order.
	EventIDs []string
	// Next is the last tenant that was looked at. A call looks at a bounded number of tenants, so
	// it may return few events, or no events, although there are more.
	Next string
	// Wrapped: the last tenants were passed, and the first ones were looked at again.
	Wrapped bool
	// End: every tenant was looked at.
	End bool
}

// Split is the end of an event with several listeners, some of which are not done.
type Split struct {
	Mark // of the event
	// Rows are the rows of the listeners that are not done.
	Rows []ListenerRow
}

// ListenerRow is a row for a listener of an event. The row is inserted as NEW with the times of the
// envelope, and then marked with the outcome: RETRY, DEAD or a deferral.
type ListenerRow struct {
	Envelope Envelope
	Outcome  Outcome
	Mark     Mark // without a lease
}

// Status is the state of an event's row, as stored.
type Status int

// The states of a row. DONE and DEAD are terminal.
const (
	StatusNew   Status = 0 // written, or deferred by its listener
	StatusDone  Status = 1 // delivered, or a deleted dead letter; see EventRow.DeletionID
	StatusRetry Status = 2 // failed, due again at available_at
	StatusDead  Status = 3 // not delivered again unless replayed; see DeadLetters
)

// String is NEW, DONE, RETRY or DEAD.
func (s Status) String() string {
	switch s {
	case StatusNew:
		return "NEW"
	case StatusDone:
		return "DONE"
	case StatusRetry:
		return "RETRY"
	case StatusDead:
		return "DEAD"
	default:
		return "Status(" + strconv.Itoa(int(s)) + ")"
	}
}

// Terminal reports whether the status is DONE or DEAD.
func (s Status) Terminal() bool { return s == StatusDone || s == StatusDead }

func requireStore(v *validator, db DB, store Store) {
	if nilness.IsNil(db) {
		v.add("DB", "is required: a *sql.DB, or what embeds one")
	}
	if nilness.IsNil(store) {
		v.add("Store", "is required; take one from package sqlstore")
		return
	}
	if s, ok := store.(interface{ Validate() error }); ok {
		if err := s.Validate(); err != nil {
			v.errs = append(v.errs, fmt.Errorf("outbox: %s.Store: %w", v.what, err))
		}
	}
}
