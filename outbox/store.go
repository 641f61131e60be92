package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/outboxkit/outbox-go/internal/nilness"
)

// DB is what the outbox needs of a connection pool. *sql.DB is one, and so is
// anything that embeds it.
type DB interface {
	Execer
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Store keeps the outbox table of one kind of database. Package sqlstore has
// PostgreSQL, MySQL and SQLite; package outboxtest has one in memory, and package
// conformance certifies any.
//
// A store holds no connection: it is handed the transaction or the pool each
// time. It is safe for concurrent use. Its errors say what was being done, to
// which event and on which table, and wrap the driver's. Times are in UTC, cut
// to microseconds.
//
// A lease is a name in locked_by, unique to one Insert or one Claim. A statement
// names the lease that it means, so a statement that runs twice, or late, changes
// nothing but its own.
//
// "Database's clock" below is the server's, in UTC, so that nodes whose own
// clocks differ agree.
type Store interface {
	// Check reports what keeps the outbox from working: the database is of
	// another dialect, a table or a column is missing, nothing can be inserted, as on a
	// standby, or, when claims is set, the database refuses claims. The error says how to
	// mend it.
	Check(ctx context.Context, db DB, claims bool) error

	// Insert adds sealed envelopes as NEW rows with no attempts, through the
	// caller's transaction, with created_at OccurredAt and available_at
	// AvailableAt: one statement, or as few as the database's limits allow.
	// A non-empty lease is given, from now on by the database's clock, to the rows
	// of the envelopes whose AvailableAt is not after due.
	Insert(ctx context.Context, tx Execer, envs []Envelope, lease string, due time.Time) error

	// Poll reads rows that are due and not leased, and those whose lease expired,
	// and changes nothing.
	Poll(ctx context.Context, db DB, q PollQuery) (Batch, error)

	// Claim leases due rows and returns them. Two calls at once never return one
	// row, and neither waits for the other. [ClaimQuery] says which rows.
	Claim(ctx context.Context, db DB, q ClaimQuery) (Batch, error)

	// NextDue is the earliest available_at after the given time among NEW and
	// RETRY rows; the zero time when there is none.
	NextDue(ctx context.Context, db DB, after time.Time) (time.Time, error)

	// Mark stores one kind of outcome for a batch of distinct events in one
	// statement, so that it is stored for all or for none of them. A mark that
	// names a lease touches only a row under that lease. It returns the rows that
	// it left alone for that reason, as they stand, and of the other marks those whose
	// row is not there, or is NEW or RETRY although the mark should have changed it, as when
	// a trigger skips the update; by event id; nil when there are none. After [OutcomeDelete] the
	// latter may be any as many that are gone. Marking a second time leaves the rows as they were after the first.
	Mark(ctx context.Context, db DB, outcome Outcome, marks []Mark) (left map[string]RowState, err error)

	// Split stores [OutcomeDone] or [OutcomeDelete] for a batch of distinct events, and
	// adds the rows of their listeners that are not done, in one transaction. It changes
	// the rows that Mark would change. An event that it does not change gets no rows, so
	// a second call adds none; it returns those events as they stand, by event id, also
	// of marks without a lease; nil when there are none. A row whose id is there already
	// is left as it is.
	Split(ctx context.Context, db DB, outcome Outcome, splits []Split) (left map[string]RowState, err error)

	// Complete stores [OutcomeDone] or [OutcomeDelete] for one event through the
	// caller's transaction. It reports whether it changed the row: one that is NEW or
	// RETRY, and under the lease if the mark names one.
	Complete(ctx context.Context, tx Execer, outcome Outcome, mark Mark) (bool, error)

	// Leased reads the NEW and RETRY rows that are under one of these leases. Expired ones
	// count. It changes nothing.
	Leased(ctx context.Context, db DB, names []string) ([]Lease, error)

	// Renew starts these leases again, as far as the rows are still under them.
	Renew(ctx context.Context, db DB, leases []Lease) error

	// HoldTable makes the owner the one process that delivers from the table, or
	// keeps it so, for the given time by the database's clock, a day at most. While
	// another owner holds the table it changes nothing. It returns who holds it now.
	HoldTable(ctx context.Context, db DB, owner string, d time.Duration) (TableHolder, error)
	// ReleaseTable ends the owner's hold, if it has it.
	ReleaseTable(ctx context.Context, db DB, owner string) error

	// Pause keeps a pause; one that the kind has already stays as it is.
	Pause(ctx context.Context, db DB, pause Pause) error
	// Resume ends the pause of a kind, if it has one.
	Resume(ctx context.Context, db DB, kind EventKind) error
	// Paused lists the pauses, in any order.
	Paused(ctx context.Context, db DB) ([]Pause, error)

	// Purge deletes one batch of old rows and returns how many.
	Purge(ctx context.Context, db DB, q PurgeQuery) (int, error)

	// Stats counts rows, reading no more than StatsLimit of each kind. The oldest due row
	// is the first that is not of a paused kind; rows of these are read past.
	Stats(ctx context.Context, db DB, now time.Time, paused []EventKind) (StoreStats, error)

	// QueryDead lists DEAD rows by the time they died, then by id: without payloads, with
	// the headers HeaderListener and HeaderEventID alone, and with the first MaxErrorLength
	// characters of the error.
	QueryDead(ctx context.Context, db DB, q DeadQuery) ([]DeadLetter, error)
	// GetDead reads one DEAD row; [ErrNotFound] when there is none of that id.
	GetDead(ctx context.Context, db DB, eventID string) (DeadLetter, error)
	// CountDead counts DEAD rows.
	CountDead(ctx context.Context, db DB, f DeadFilter) (int64, error)
	// ReplayDead gives those of the rows that are DEAD another status, NEW or RETRY:
	// no attempts, available at now, and error, done_at and lease cleared. It returns
	// how many.
	ReplayDead(ctx context.Context, db DB, eventIDs []string, now time.Time, to Status) (int, error)
	// DeleteDead deletes those of the rows that are DEAD and returns how many.
	DeleteDead(ctx context.Context, db DB, eventIDs []string) (int, error)

	// Now reads the database's clock.
	Now(ctx context.Context, db DB) (time.Time, error)

	Inspector
}

// PoolBinder is implemented by a store in which a name may be another table in the sessions
// of writers than in those of the pool. [New] and [NewWriter] ask it for the store of their
// pool, so that all statements of an outbox reach one table.
type PoolBinder interface {
	// BindPool returns a store of the same table for one pool. It does not ask the database.
	// A store that is bound to the pool already is returned as it is. asked is the store of
	// the configuration. It is another value if it embeds this one; BindPool then returns
	// asked, whose own methods would be lost otherwise.
	BindPool(db DB, asked Store) Store
}

// bound is the store for the outbox of one pool.
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
}

// Lease is the lease of one row.
type Lease struct {
	EventID string
	Name    string
}

// TableHolder is the process that holds a table.
type TableHolder struct {
	// Owner holds the table now.
	Owner string
	// Died is the owner that held the table before and did not release it; empty
	// unless this call took the table from it.
	Died string
}

// Outcome is what becomes of a row.
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
	// OutcomeDeferred: status NEW, Mark.AvailableAt, Mark.Error unless that is empty,
	// attempts unchanged.
	OutcomeDeferred
	// OutcomeReleased: only the lease is given up.
	OutcomeReleased
	// OutcomeSplit is [OutcomeDone] or [OutcomeDelete] with rows for those of the event's
	// listeners that are not done: see [Store].Split. Mark does not know it.
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

// final reports whether the row is at its end: it will not be claimed again.
func (k Outcome) final() bool {
	return k == OutcomeDone || k == OutcomeDelete || k == OutcomeDead || k == OutcomeSplit
}

// delivered reports whether the listener had the event and is done with it.
func (k Outcome) delivered() bool { return k == OutcomeDone || k == OutcomeDelete }

// Mark is the outcome of one event.
type Mark struct {
	EventID string
	// Lease is the lease that the event was delivered under; empty: none.
	Lease string
	// AvailableAt is when the event is due again (retry, deferral).
	AvailableAt time.Time
	// Error becomes last_error (retry, dead); empty: NULL. For a deferral, empty leaves
	// last_error as it is. It is valid UTF-8 without
	// NUL, at most 4,000 characters.
	Error string
	// Attempts are the attempts that the row has from then on (retry, dead), unless it has
	// more. They are not added to what the row has, so that an outcome that is stored twice
	// counts once. A row has more if this process lost its lease, and claimed it again under
	// the lease of the mark after another process had delivered the event.
	Attempts int
}

// PurgeQuery says which rows are old.
type PurgeQuery struct {
	// Before: rows whose time is before it are deleted. The time of a row is
	// done_at, created_at where that is missing, and always created_at when
	// ByAge.
	Before time.Time
	// ByAge deletes whatever the status; otherwise only DONE and DEAD rows go.
	ByAge bool
	// Limit is the most rows to delete; positive.
	Limit int
}

// StatsLimit is where the counts of [StoreStats] stop.
const StatsLimit = 100_000

// StoreStats are counts over the table. Each count stops at [StatsLimit].
type StoreStats struct {
	Due     int64 // NEW and RETRY rows available at or before now
	Delayed int64 // NEW and RETRY rows available later
	Dead    int64
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

// DeadQuery says which dead rows to list.
type DeadQuery struct {
	DeadFilter
	// AfterDiedAt and AfterEventID continue behind an earlier row. Zero: from
	// the start.
	AfterDiedAt  time.Time
	AfterEventID string
	// Limit is the most rows to read; positive.
	Limit int
	// KeysOnly fills only EventID and DiedAt.
	KeysOnly bool
	// Sizes fills PayloadBytes. The database then reads each payload.
	Sizes bool
}

// DeadLetter is an event that was given up.
type DeadLetter struct {
	Envelope
	// LastError says why.
	LastError string
	// DiedAt says when.
	DiedAt time.Time
	// PayloadBytes is the length of the payload as the database writes it. A letter in a
	// list has it instead of the payload.
	PayloadBytes int
	// Listener is the one of the event's several listeners for which it was given up;
	// empty: for all. See [Named].
	Listener string
	// OriginalID is the event's id for listeners. It differs from EventID, which
	// identifies the dead letter, only if Listener is set.
	OriginalID string
}

// PollQuery says which due rows to read.
type PollQuery struct {
	// Now: rows with available_at at or before it are due.
	Now time.Time
	// CreatedBefore leaves out rows created after it. Zero: no bound.
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
}

// ClaimQuery says which due rows to lease: those that are not leased, and those
// whose lease expired, which get one attempt more. The returned envelopes count it.
type ClaimQuery struct {
	Now           time.Time   // as in PollQuery
	CreatedBefore time.Time   // as in PollQuery
	After         Cursor      // as in PollQuery
	Limit         int         // as in PollQuery
	Except        []EventKind // as in PollQuery
	// EventIDs claims only rows of these events. Empty: of all.
	EventIDs []string
	// Lease is the name that the rows get. No other claim has it.
	Lease string
	// LeaseDuration is the age at which a lease expires, by the database's clock. A lease
	// whose time is as far ahead of that clock, or is no time, has expired too.
	LeaseDuration time.Duration
	// FreshOnly leaves out rows whose lease expired.
	FreshOnly bool
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

// Batch is what a poll or a claim read. The rows are chosen by due time
// (available_at, created_at, event_id) and returned oldest first (created_at,
// then event id).
type Batch struct {
	Envelopes []Envelope
	// Undecodable are rows that were read and cannot be delivered.
	Undecodable []Undecodable
	// Expired are the events of a poll whose rows are leased, with a lease that
	// expired.
	Expired []string
	// Next is the place behind the last row in the order of due times, or before it.
	// All due rows up to it were read, or were leased or locked.
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

// EventKey is what [OrderedByKey] orders by: the aggregate type and the aggregate
// id. An event without an aggregate id has a key of its own.
type EventKey struct {
	AggregateType AggregateType
	// ID is the aggregate id, or the event id where that is empty.
	ID string
}

// RunReader is implemented by a store that can serve [OrderedByKey].
type RunReader interface {
	// ReadRuns reads runs of events that may be delivered now, and changes nothing.
	// A run is the beginning of what is pending of one key. Within a key, a RETRY row
	// comes first, then NEW rows by available_at, created_at, event id. A key has no
	// run while its first row is not due, or leased, or DEAD unless q.SkipDead, or
	// while one of its first q.Length rows has a lease that has not expired. A run
	// ends before the first row that is not due, is of a kind in q.Except, or has a
	// lease that expired; with q.Takeovers, before the first that has no lease. A run
	// has no gaps. The rows of a key are judged as of one moment: its run never
	// begins behind a row that was its first when the read began and still is pending.
	// An aggregate type that is NULL is [Global]. A read with q.Takeovers that gets to the
	// end may store it in the rows, so that the next read finds them.
	ReadRuns(ctx context.Context, db DB, q RunQuery) (Runs, error)
	// CheckRuns reports that the database lacks what ReadRuns needs, such as an
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
	// Takeovers reads only keys whose first row has a lease that expired. Their runs are
	// that row and those directly behind it whose leases expired too.
	Takeovers bool
	// SkipDead: DEAD rows do not hold back their keys.
	SkipDead bool
	// Except are kinds of events that are not to be delivered now.
	Except []EventKind
	// After continues behind an earlier call's Next. Zero: from the start.
	After EventKey
	// Length is the most rows of one run, and how many of a key's rows are looked at.
	// Limit is the most rows of all runs; with Takeovers, the most runs. Both are
	// positive.
	Length, Limit int
}

// Runs are what [RunReader].ReadRuns read.
type Runs struct {
	// EventIDs of each run, in order.
	EventIDs [][]string
	// Behind are, for each run of Takeovers, the leases that expired of the rows behind
	// its first one, those of the run included, among the key's first q.Length. Between
	// these rows there may be others.
	Behind [][]Lease
	// Next is the place of the last key that was looked at, only for After. A call
	// looks at a bounded number of keys, so it may return few runs, or none, although
	// there are more.
	Next EventKey
	// End: there is no key behind Next.
	End bool
}

// TenantReader is implemented by a store that can read due events tenant by tenant.
type TenantReader interface {
	// ReadTenants reads the first events of one tenant after the other that are due and
	// not leased, and changes nothing. Events without a tenant are those of one tenant,
	// whose id is "". It goes from the tenant behind q.After once round to q.After.
	ReadTenants(ctx context.Context, db DB, q TenantQuery) (Tenants, error)
	// CheckTenants reports that the database lacks what ReadTenants needs, such as an
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
	// Length is the most events of one tenant, Limit the most in all; positive.
	Length, Limit int
}

// Tenants are what [TenantReader].ReadTenants read.
type Tenants struct {
	// EventIDs are in no particular order.
	EventIDs []string
	// Next is the last tenant that was looked at. A call looks at a bounded number of
	// tenants, so it may return few events, or none, although there are more.
	Next string
	// Wrapped: the last tenants were passed, and the first ones were looked at again.
	Wrapped bool
	// End: every tenant was looked at.
	End bool
}

// Split is the end of an event with several listeners of which some are not done.
type Split struct {
	Mark // of the event
	// Rows are those of the listeners.
	Rows []ListenerRow
}

// ListenerRow is a row for one of an event's listeners. It is inserted as NEW with the
// times of the envelope, and then marked with the outcome: RETRY, DEAD or a deferral.
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
	StatusDone  Status = 1 // delivered
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
