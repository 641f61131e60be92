package outbox

import (
	"context"
	"time"
)

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
	// LockTimeout is the age at which a lease expires, by the database's clock. A lease
	// whose time is as far ahead of that clock, or is no time, has expired too.
	LockTimeout time.Duration
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
