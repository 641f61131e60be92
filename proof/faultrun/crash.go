package faultrun

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/proof/checker"
)

// Crash is where and how a process crashes. Such a process writes the transactions of a script.
type Crash struct {
	// Point is the place, and Nth is which of the places of that name, from 1. Without
	// a point nothing happens.
	Point string
	Nth   int
	Fault CrashFault
	// Follows is true for a process that only delivers the events that another process left.
	Follows bool
	// Then is the crash of the process that follows this process after its death.
	Then *Crash
	// Lease is the lease of this process; zero is [Spec.Lease].
	Lease time.Duration
	// Record lists the points that the process passes, in the file of [Process.Points].
	Record bool
}

// CrashFault is the fault that happens at a point.
type CrashFault string

// The faults. All faults except the first need a statement.
const (
	// KillBefore kills the process with SIGKILL before the point.
	KillBefore CrashFault = "kill before"
	// KillAfter kills the process when the database has executed the statement.
	KillAfter CrashFault = "kill after"
	// LoseAnswer has the statement executed and breaks the connection. The process goes on.
	LoseAnswer CrashFault = "lose answer"
	// ExecuteLate breaks the connection at once. The process goes on, and the database
	// executes the statement later.
	ExecuteLate CrashFault = "execute late"
	// DieAndExecuteLate does the same for a process that dies at the point.
	DieAndExecuteLate CrashFault = "die, execute late"
)

// CrashFaults are all faults.
var CrashFaults = []CrashFault{KillBefore, KillAfter, LoseAnswer, ExecuteLate, DieAndExecuteLate}

// Files of a process beside the process's log, by their ends.
const (
	hitFile    = ".hit"    // the process was at its point
	pointsFile = ".points" // the points that it passed
)

// crasher is the part of a process that crashes. The methods do nothing without a crasher.
type crasher struct {
	Crash
	spec   Spec
	log    *checker.Log
	frozen chan struct{} // closed: to all other processes, this process is dead
	// unblock is closed to let the waiting listener go on.
	unblock chan struct{}

	mu      sync.Mutex
	passed  map[string]int
	calls   map[string]int  // of listeners, by event and listener
	settled map[string]bool // events that need no further delivery
	points  *os.File        // nil without Record
}

func newCrasher(spec Spec, log *checker.Log) *crasher {
	if spec.Crash == nil {
		return nil
	}
	k := &crasher{
		Crash: *spec.Crash, spec: spec, log: log, frozen: make(chan struct{}), unblock: make(chan struct{}),
		passed: map[string]int{}, calls: map[string]int{}, settled: map[string]bool{},
	}
	if k.Record {
		k.points = must(os.Create(k.file(pointsFile)))
	}
	return k
}

func (k *crasher) file(end string) string { return filepath.Join(k.spec.Dir, k.spec.Process+end) }

// pass counts a point and reports whether the fault is to happen there.
func (k *crasher) pass(point string, faults ...CrashFault) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	hit := false
	for _, fault := range faults {
		if k.points != nil {
			_, _ = k.points.WriteString(string(fault) + "\t" + point + "\n")
		}
		key := string(fault) + point
		k.passed[key]++
		hit = hit || fault == k.Fault && point == k.Point && k.passed[key] == k.Nth
	}
	if hit {
		check(os.WriteFile(k.file(hitFile), nil, 0o600))
	}
	return hit
}

func (k *crasher) hasPassed(point string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.passed[string(KillAfter)+point] > 0
}

// handOver is a point without a statement.
func (k *crasher) handOver(point string) {
	if k.pass(point, KillBefore) {
		k.die()
	}
}

// gate blocks every caller when the process is dead to all others. Transactions that are open then
// still end.
func (k *crasher) gate() {
	select {
	case <-k.frozen:
		select {}
	default:
	}
}

// die kills the process.
func (k *crasher) die() {
	k.fault(checker.Kill, time.Now())
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// freeze makes the process dead to all others, except for the statement that is executed late.
func (k *crasher) freeze() {
	k.fault(checker.Kill, time.Now())
	close(k.frozen)
	select {}
}

func (k *crasher) fault(fault string, from time.Time) {
	k.log.Add(checker.Record{Op: checker.OpFault, Fault: fault, Process: k.spec.Process, At: from, Until: time.Now()})
}

// A statement that is executed late waits for the file lateNow in the folder of the run. The file
// lateDone says that the statement was executed. latePending has the parameters of the statement.
const (
	latePending = "late.pending"
	lateNow     = "late.now"
	lateDone    = "late.done"
)

// lateLimit is the longest that a statement waits.
const lateLimit = 3 * time.Second

// later executes a statement when a listener of any process asks for it, or when the time is over.
func (k *crasher) later(arguments string, execute func()) {
	began := time.Now()
	k.put(latePending, arguments)
	go func() {
		k.await(lateNow, lateLimit)
		execute()
		k.fault(checker.Network, began)
		k.put(lateDone, "")
		if k.Fault == DieAndExecuteLate {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}()
}

// again is called before a listener gets an event. If an outcome of this event is to be stored
// late, again has it stored now, because another delivery is under way.
func (k *crasher) again(event string) {
	k.mu.Lock()
	k.calls[event]++
	repeated := k.calls[event] > 1 || k.Follows
	k.mu.Unlock()
	text, err := os.ReadFile(k.path(latePending))
	if err != nil || k.exists(lateDone) {
		return
	}
	about := strings.Contains(string(text), event)
	if about && !repeated || !about && strings.Contains(string(text), firstProcess+"-") {
		return
	}
	k.put(lateNow, "")
	k.await(lateDone, 2*lateLimit)
}

func (k *crasher) path(name string) string { return filepath.Join(k.spec.Dir, name) }

func (k *crasher) exists(name string) bool {
	_, err := os.Stat(k.path(name))
	return err == nil
}

// put makes a file that other processes see only with the whole content.
func (k *crasher) put(name, content string) {
	made := k.path(k.spec.Process + "." + name)
	check(os.WriteFile(made, []byte(content), 0o600))
	check(os.Rename(made, k.path(name)))
}

func (k *crasher) await(name string, limit time.Duration) {
	ends := time.After(limit)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !k.exists(name) {
		select {
		case <-look.C:
		case <-ends:
			return
		}
	}
}
