// Package faultrun runs the outbox in several processes, does harm to them, and leaves a history
// for package checker. The program of a process is proof/faultrun/node; [Main] is that program, and
// [Run] starts and harms the processes.
package faultrun

import (
	"encoding/json"
	"os"
	"time"

	"github.com/outboxkit/outbox-go/proof/checker"
)

// specVariable holds a process's [Spec] as JSON.
const specVariable = "OUTBOX_FAULTRUN_SPEC"

// Spec is the specification of a process. Each field says what zero means.
type Spec struct {
	// Process is unique among the processes of a run, including the processes that follow a killed
	// process.
	Process string
	// Driver and DSN open the database; the tables exist. Driver is pgx, pgxpool (pgx
	// without database/sql), postgres (lib/pq), mysql or sqlite.
	Driver, DSN string
	// Connections is the most connections of the pool; zero is 16. Guests is how many other users
	// the pool has. Each guest holds a connection for a while.
	Connections, Guests int
	// Dir has the logs of the run.
	Dir string
	// Seed determines the behavior of listeners and transactions.
	Seed uint64

	// Mode is single, multi, ordered, by-key or writer-only.
	Mode string
	// Lease, Interval and Mark are ClaimOptions.LeaseDuration, PollOptions.Interval and
	// DispatchOptions.MarkInterval; zero is the outbox's default.
	Lease, Interval, Mark time.Duration
	// Owner is ClaimOptions.Owner.
	Owner string
	// Workers, RunLength and MaxAttempts are the options of the outbox; zero is the outbox's
	// default.
	Workers, RunLength, MaxAttempts int
	// Drain and ListenerTimeout are fields of DispatchOptions; zero is the default.
	Drain, ListenerTimeout time.Duration
	// DeleteDone is OnDone: Delete. Purge is how often rows that are DONE or DEAD are
	// purged, without a retention; zero is never.
	DeleteDone bool
	Purge      time.Duration
	// SkipDead is OnDead: SkipDead, and Tenants is ClaimOptions.TenantsInTurn.
	SkipDead, Tenants bool
	// Limit is the most listeners of events of type [Plain] at once; zero is no limit.
	Limit int
	// Notify wakes other processes through PostgreSQL.
	Notify bool

	// Replay: the process replays each dead letter once.
	Replay bool

	// Writers are the adapters that write, each in a goroutine: sqltx, raw, bun, gorm, pgx,
	// pgx-batch. pgx and pgx-batch need the driver pgxpool.
	Writers []string
	// Transactions is how many transactions each writer makes; zero: until [Process.Finish], or
	// until the process is terminated. Pace is the time between two transactions.
	Transactions int
	Pace         time.Duration
	// Keys is how many keys the events have; zero is 8.
	Keys int
	// RollBack is how many transactions in a hundred are rolled back; as many have a savepoint that
	// is rolled back. Delay is how many events in a hundred are delayed.
	RollBack, Delay int
	// Unique is how many transactions in a hundred write events with one of a few unique keys, which
	// all processes of a run have in common.
	Unique int
	// TakeBack is how many transactions in a hundred write events of type [Reminder]. As many cancel,
	// reschedule or replace such events.
	TakeBack int
	// Latest is how many transactions in a hundred write events of type [Latest] with one of a few unique
	// keys, which all processes of a run have in common.
	Latest int
	// Seldom is how many events in a hundred are of the types of [Spec.seldom].
	Seldom int
	// Expires and DropExpired are the rules of events of type [Brief]; zero: there are no such events.
	Expires     time.Duration
	DropExpired bool
	// Endless: there are events of type [Endless].
	Endless bool
	// Rare: there are events of type [Rare]. Deaf: this process has no listener for them.
	Rare, Deaf bool
	// PauseFor: there are events of type [Down], and Down deliveries of them in a hundred pause the type
	// for that time.
	PauseFor time.Duration
	Down     int
	// Bounded is the Concurrency of events of type [Bounded] in all processes together; zero: there are
	// no such events. Only in mode multi.
	Bounded int
	// KeyBounded is the KeyConcurrency of events of type [KeyBounded] in all processes together; zero:
	// there are no such events. Only in mode multi.
	KeyBounded int
	// Drains: the process is not started. It drains again and again, so many events at most.
	Drains int
	// Abroad is how many transactions in a hundred write their events while the names of their
	// session resolve elsewhere: to a schema with another table of that name (PostgreSQL), or to a
	// database without such a table (MySQL).
	Abroad int

	// Requests: the process serves requests with keys, on the loopback interface; see [Clients]. RollBack
	// is then also how many executions of requests in a hundred are rolled back. KeyWait is
	// idempotency.Config.Wait; zero is the default of that field.
	Requests bool
	KeyWait  time.Duration

	// Fail is how many deliveries in a hundred fail. Later and Bury are how many are deferred or
	// end the event. Slow is the longest time that a listener takes.
	Fail, Later, Bury int
	Slow              time.Duration
	// Refused: the database refuses the texts of failures that are not ASCII, and half of the
	// failures have such a text.
	Refused bool
	// Spoil is how many transactions in a hundred store a row with an impossible number of
	// attempts, so that the row cannot be read.
	Spoil int
	// Stubborn and Hang are the most deliveries of this process whose listener ignores the context
	// for the time Linger, or waits until the context ends.
	Stubborn, Hang int
	Linger         time.Duration

	// CreatesTables: the process creates all tables, and ends.
	CreatesTables bool

	// Crash makes the process write the transactions of a script, and crash at a point of the
	// script.
	Crash *Crash
}

// Types of the events that processes write.
const (
	// Plain has a single listener.
	Plain = "Plain"
	// Ledger has a listener that has an effect through sqltx's Handle.
	Ledger = "Ledger"
	// Inbox has a listener that has an effect through inbox.Once.
	Inbox = "Inbox"
	// Many has the listeners of [Names].
	Many = "Many"
	// Batch has a batch listener.
	Batch = "Batch"
	// Once has a single listener, and each event has a unique key.
	Once = "Once"
	// Brief has a single listener, and the events expire.
	Brief = "Brief"
	// Endless has a single listener, which fails often, and endless attempts.
	Endless = "Endless"
	// Rare has a single listener, which some processes do not have.
	Rare = "Rare"
	// Down has a single listener, whose receiver is down at times.
	Down = "Down"
	// Bounded has a single listener, and a bound of all processes together.
	Bounded = "Bounded"
	// KeyBounded has a single listener, and a bound of all processes together for each key.
	KeyBounded = "KeyBounded"
	// Reminder has a single listener, and the events are delayed and may be taken back.
	Reminder = "Reminder"
	// Latest has a single listener, and each event has a unique key, of which the latest state is kept.
	Latest = "Latest"
)

// Types are the types that most events have, Seldom the other types, and Names the listeners of an
// event of type [Many].
var (
	Types  = []string{Plain, Ledger, Inbox, Many, Batch}
	Seldom = []string{Once, Brief, Endless, Rare, Down, Bounded, KeyBounded, Reminder, Latest}
	Names  = []string{"mail", "search", "stock"}
)

// Promise is the promise that processes of this spec make together.
func (s Spec) Promise() checker.Promise {
	return checker.Promise{
		Mode: s.Mode, MaxAttempts: s.MaxAttempts, Lease: s.Lease, Workers: s.Workers,
		DeletesDone: s.DeleteDone || s.Purge > 0, SkipDead: s.SkipDead, Spoils: s.Spoil > 0,
		Listeners: map[string][]string{Many: Names},
		Once:      map[string]bool{Ledger: true, Inbox: true},
		Expires:   map[string]time.Duration{Brief: s.Expires}, DropExpired: s.DropExpired,
		Endless: map[string]bool{Endless: true},
		Bounds:  map[string]int{Bounded: s.Bounded}, KeyBounds: map[string]int{KeyBounded: s.KeyBounded},
	}
}

// seldom are the types of events of which a run has a few.
func (s Spec) seldom() (types []string) {
	if s.Expires > 0 {
		types = append(types, Brief)
	}
	if s.Endless {
		types = append(types, Endless)
	}
	if s.Rare {
		types = append(types, Rare)
	}
	if s.PauseFor > 0 {
		types = append(types, Down)
	}
	if s.Bounded > 0 {
		types = append(types, Bounded)
	}
	if s.KeyBounded > 0 {
		types = append(types, KeyBounded)
	}
	return types
}

func (s Spec) variable() string {
	text, err := json.Marshal(s)
	check(err)
	return specVariable + "=" + string(text)
}

func specOfProcess() (s Spec) {
	check(json.Unmarshal([]byte(os.Getenv(specVariable)), &s))
	return s
}

// check ends a process on an error that is not part of the run.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
