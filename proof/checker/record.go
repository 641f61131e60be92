package checker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Op says what a record is about.
type Op string

// The operations. A process records what it is about to do before it does it, and how
// that ended afterwards, so a process that dies leaves a beginning without an end.
const (
	// OpStarted: the process's outbox has started. OpClosed: it was closed, and said
	// Error, or nothing.
	OpStarted Op = "started"
	OpClosed  Op = "closed"

	// OpWrite: the transaction Tx is about to write Events. OpSavepoint: it took
	// Events back with a savepoint. OpCommit: it is about to commit. OpCommitted,
	// OpRolledBack and OpUnknown: how the transaction ended, as its writer sees it.
	OpWrite      Op = "write"
	OpSavepoint  Op = "savepoint rolled back"
	OpCommit     Op = "commit"
	OpCommitted  Op = "committed"
	OpRolledBack Op = "rolled back"
	OpUnknown    Op = "unknown"

	// OpBegan: a listener began with the event Event. OpEnded: it ended with Result.
	OpBegan Op = "began"
	OpEnded Op = "ended"

	// OpReplayed, OpDeleted: an operator has replayed or deleted the dead letters
	// Events. Their ids are those of the rows. At is a time before the call ended.
	OpReplayed Op = "replayed"
	OpDeleted  Op = "deleted"

	// OpFault: the run did Fault to Process, or to all of them if that is empty, from
	// At to Until.
	OpFault Op = "fault"
)

// Results of a delivery.
const (
	Done    = "done"
	Failed  = "failed"
	Later   = "later" // outbox.Defer
	Buried  = "dead"  // outbox.Dead
	Dropped = "cut"   // its context ended
)

// Faults that a run does to a process.
const (
	Kill      = "kill"      // SIGKILL
	Stop      = "stop"      // SIGSTOP, and SIGCONT at Until
	Terminate = "terminate" // SIGTERM
	Network   = "network"   // connections cut, slow, half open, answers swallowed
	Server    = "server"    // the database server was killed, or had no room
	Clock     = "clock"     // the process's clock was stepped
)

// Record is one line of a process's log.
type Record struct {
	At      time.Time `json:"at"`
	Process string    `json:"process"`
	Op      Op        `json:"op"`

	Tx      string  `json:"tx,omitempty"`
	Adapter string  `json:"adapter,omitempty"`
	Events  []Event `json:"events,omitempty"`

	// Event, Listener, Attempt and Result describe a delivery. Call is unique to it
	// within its process.
	Event    string `json:"event,omitempty"`
	Listener string `json:"listener,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	Call     int64  `json:"call,omitempty"`
	Result   string `json:"result,omitempty"`

	Fault string    `json:"fault,omitempty"`
	Until time.Time `json:"until,omitzero"`
	Error string    `json:"error,omitempty"`
}

// Event is an event as its writer knows it before it writes it.
type Event struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Key and Seq are its place in the order of its key. A later event of a key has a
	// higher Seq.
	Key string `json:"key,omitempty"`
	Seq int    `json:"seq,omitempty"`
	// Delayed: it becomes due later, and has no place in the order.
	Delayed bool `json:"delayed,omitempty"`
}

// Log is the log of one process, a file of JSON lines that no other process writes. It
// is safe for concurrent use.
type Log struct {
	process string
	mu      sync.Mutex
	file    *os.File
}

// Create makes the log of a process in a folder.
func Create(dir, process string) (*Log, error) {
	file, err := os.OpenFile(filepath.Join(dir, process+".jsonl"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Log{process: process, file: file}, nil
}

// Add writes one record, as of now unless it has a time. The line is with the operating
// system when Add returns, so it outlives the process.
func (l *Log) Add(r Record) {
	if r.At.IsZero() {
		r.At = time.Now()
	}
	if r.Process == "" && r.Op != OpFault { // a fault of all processes has none
		r.Process = l.process
	}
	line, err := json.Marshal(r)
	if err != nil {
		panic(err) // a Record has nothing that JSON has no form for
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		panic(fmt.Errorf("checker: a history with a gap proves nothing: %w", err))
	}
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Load reads the logs of all processes in a folder. The last line of a killed process
// may be cut off and is then left out.
func Load(dir string) ([]Record, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []Record
	for _, name := range names {
		records, err := load(name)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	return all, nil
}

func load(name string) (records []Record, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	lines := bufio.NewReader(file)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return records, nil // the end, or a line that was cut off
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, n, err)
		}
		records = append(records, r)
	}
}
