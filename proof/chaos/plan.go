// Package chaos makes fault runs from seeds: a plan says what the processes of a run do and which
// faults they suffer, and package checker judges the history that they leave.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// Databases are the kinds of databases. mysql is MariaDB, or MySQL.
var Databases = []string{"postgres", "mysql", "sqlite"}

// Kinds of faults.
const (
	kill       = "kill"       // SIGKILL, and another process in its place
	stop       = "stop"       // SIGSTOP past the lease, then SIGCONT
	terminate  = "terminate"  // SIGTERM, and another process in its place
	network    = "network"    // a faultrun.Harm to the connections of a process
	clock      = "clock"      // the process's clock is stepped, and back
	disconnect = "disconnect" // the server ends all connections of the run
	lock       = "lock"       // another session holds the table
	crash      = "crash"      // the server is killed and comes back
	disk       = "disk"       // the database's disk is full
)

// Kinds are all kinds of faults.
var Kinds = []string{kill, stop, terminate, network, clock, disconnect, lock, crash, disk}

// Fault is a fault of a single process, or of all processes.
type Fault struct {
	Kind string
	// Harm is the harm that a network fault does.
	Harm faultrun.Harm
	// After is the time since the end of the previous fault of the same process, and For how long
	// the fault lasts.
	After, For time.Duration
	// Offset is the offset of the clock.
	Offset time.Duration
}

func (f Fault) String() string {
	return fmt.Sprintf("%s%s after %v for %v", f.Kind, f.Harm, f.After, f.For)
}

// Plan is the plan of a run. The seed and the database determine the plan.
type Plan struct {
	Seed     uint64
	Database string
	// Spec is the spec of all processes.
	Spec faultrun.Spec
	// Processes deliver, and further processes, Writers, only write.
	Processes, Writers int
	// Duration is how long faults are done.
	Duration time.Duration
	// Faults are the faults of each process, and Global the faults of all processes.
	Faults [][]Fault
	Global []Fault
	// Operators replay and delete dead letters, and pause types. Migrates alters the
	// table meanwhile.
	Operators, Migrates bool
	// Skew: half of the processes are of an older version. A process that follows another process
	// is of the other version.
	Skew bool
	// Drains: one of the processes only drains, so many events at a time; zero: each process is started.
	Drains int
	// Clients send requests with keys to the processes, which then have no writers; see
	// [NewRequestPlan].
	Clients int
}

// NewPlan makes the plan of a seed. A duration of zero is 10 to 30 seconds.
func NewPlan(seed uint64, database string, duration time.Duration) Plan {
	d := draw{rand.New(rand.NewPCG(seed, uint64(len(database))))} //nolint:gosec // a plan is no secret
	p := Plan{Seed: seed, Database: database, Processes: 2 + d.IntN(3), Duration: d.between(10*time.Second, 30*time.Second)}
	if duration > 0 {
		p.Duration = duration
	}
	p.Spec = d.spec(database)
	p.Operators, p.Migrates = d.often(70), d.often(30)
	if d.often(20) {
		p.Writers = 1
	}
	p.Spec.Pace = pace((p.Processes+p.Writers)*len(p.Spec.Writers), p.Spec.Mode)
	kinds := d.kinds(p)
	for range p.Processes + p.Writers {
		p.Faults = append(p.Faults, d.timeline(p, only(kinds, kill, stop, terminate, network, clock)))
	}
	p.Global = d.timeline(p, only(kinds, disconnect, lock, crash, disk))
	p.drawSeldom(draw{rand.New(rand.NewPCG(seed, 3))}) //nolint:gosec // a plan is no secret
	return p
}

// NewSkewPlan is the plan of a seed, but with processes of two versions. Each process is terminated
// and followed by a process of the other version, as in a deploy and its rollback. The table is
// altered meanwhile. There are no other faults, which would explain repeats.
func NewSkewPlan(seed uint64, database string, duration time.Duration) Plan {
	p := NewPlan(seed, database, duration)
	p.Skew, p.Migrates, p.Global = true, true, nil
	p.leaveOutSeldom()
	d := draw{rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a plan is no secret
	for i := range p.Faults {
		p.Faults[i] = d.timeline(p, []string{terminate})
	}
	return p
}

// NewRequestPlan is the plan of a seed, but with processes that serve requests with keys in place of
// their writers. Clients outside of the processes send the requests.
func NewRequestPlan(seed uint64, database string, duration time.Duration) Plan {
	p := NewPlan(seed, database, duration)
	d := draw{rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // a plan is no secret
	p.Clients = one(d, 2, 4, 8)
	p.Spec.Writers, p.Spec.Requests, p.Spec.KeyWait = nil, true, one(d, 0, time.Second)
	p.Spec.RollBack = one(d, 0, 5, 20)
	p.Spec.TakeBack, p.Spec.Latest = 0, 0 // only writers take events back
	p.Spec.Abroad = 0                     // a client that goes away would leave a connection whose names resolve elsewhere
	for _, faults := range p.Faults {
		for i := range faults {
			if faults[i].Kind == network && d.often(30) {
				faults[i].Harm = faultrun.LostCommit
			}
		}
	}
	p.Spec.Pace = 2 * pace(p.Clients, p.Spec.Mode) // a request is sent several times
	return p
}

// harms is how many faults harm the server, and need a private server.
func (p Plan) harms() (n int) {
	for _, f := range p.Global {
		if f.Kind == crash || f.Kind == disk {
			n++
		}
	}
	return n
}

// Disk is true when the run needs a small disk.
func (p Plan) Disk() bool { return p.has(disk) }

// Stepped is true when the run steps clocks.
func (p Plan) Stepped() bool {
	return slices.ContainsFunc(p.Faults, func(faults []Fault) bool {
		return slices.ContainsFunc(faults, func(f Fault) bool { return f.Kind == clock })
	})
}

func (p Plan) has(kind string) bool {
	return slices.ContainsFunc(p.Global, func(f Fault) bool { return f.Kind == kind })
}

// leaveOut leaves out the faults of a kind.
func (p *Plan) leaveOut(kind string) {
	p.Global = slices.DeleteFunc(slices.Clone(p.Global), func(f Fault) bool { return f.Kind == kind })
}

// spec is the spec of a process in the plan.
func (p Plan) spec(i int) faultrun.Spec {
	spec := p.Spec
	if i >= p.Processes {
		spec.Mode = "writer-only"
		spec.Purge, spec.DeleteDone = 0, false // a purge would remove rows that are not delivered yet
	}
	if i == p.Processes-1 {
		spec.Drains = p.Drains
	}
	return spec
}

func only(kinds []string, of ...string) []string {
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return !slices.Contains(of, kind) })
}
