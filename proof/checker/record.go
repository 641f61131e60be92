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

// Op is the operation that a record is about.
type Op string

// The operations. A process records an operation before the operation begins, and the outcome
// afterwards, so a process that dies leaves a beginning without an end.
const (
	// OpStarted: the process's outbox has started. OpClosed: the outbox was closed, and returned
	// Error, or no error.
	OpStarted Op = "started"
	OpClosed  Op = "closed"

	// OpWrite: the transaction Tx is about to write Events. OpSavepoint: the transaction rolled
	// Events back with a savepoint. OpKeptOut: the transaction did not write Events, because the
	// pending event Event has their unique key. OpChanged: the transaction asked for Change of Events. OpCommit:
	// the transaction is about to commit. OpCommitted, OpRolledBack and OpUnknown: how the transaction ended,
	// as the writer sees it.
	OpWrite      Op = "write"
	OpSavepoint  Op = "savepoint rolled back"
	OpKeptOut    Op = "kept out"
	OpChanged    Op = "changed"
	OpCommit     Op = "commit"
	OpCommitted  Op = "committed"
	OpRolledBack Op = "rolled back"
	OpUnknown    Op = "unknown"

	// OpBegan: a listener began with the event Event. OpEnded: the listener ended with Result.
	OpBegan Op = "began"
	OpEnded Op = "ended"

	// OpPauses: the process has learned that Types are paused, and no other types.
	OpPauses Op = "pauses"

	// OpDraining: the process is about to drain; it delivers nothing but in a Drain. OpDrained: the
	// Drain returned Drained, and Error or no error.
	OpDraining Op = "draining"
	OpDrained  Op = "drained"

	// OpReplayed, OpDeleted: an operator has replayed or deleted the dead letters Events, which
	// have the ids of their rows. OpRestored: an operator has undone a deletion. At is a time before the
	// call ended.
	OpReplayed Op = "replayed"
	OpDeleted  Op = "deleted"
	OpRestored Op = "restored"
	// OpExpired: the rows of Events became DEAD as expired, or were deleted while they were pending,
	// which is how an expired event is dropped and how OnDone: Delete ends an event that was
	// delivered. At is a time before the statement ended.
	OpExpired Op = "expired"

	// OpSent: a client outside of the processes is about to send Request. OpHandled: the handler of a
	// server begins to execute Request in the transaction Tx, which OpCommit, OpCommitted, OpRolledBack
	// and OpUnknown follow. OpAnswered: the client got the answer in Request, or none if the status is
	// zero; Error then says why.
	OpSent     Op = "sent"
	OpHandled  Op = "handled"
	OpAnswered Op = "answered"

	// OpFault: the run did Fault to Process, or to all processes if Process is empty, from At to
	// Until.
	OpFault Op = "fault"
)

// Results of a delivery.
const (
	Done    = "done"
	Failed  = "failed"
	Later   = "later" // outbox.Defer
	Paused  = "pause" // outbox.PauseFor
	Buried  = "dead"  // outbox.Dead
	Dropped = "cut"   // the context of the delivery ended
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

// Record is a line of a process's log.
type Record struct {
	At      time.Time `json:"at"`
	Process string    `json:"process"`
	Op      Op        `json:"op"`

	Tx      string  `json:"tx,omitempty"`
	Adapter string  `json:"adapter,omitempty"`
	Events  []Event `json:"events,omitempty"`

	// Event, Listener, Attempt and Result describe a delivery. Call is unique within the process.
	Event    string `json:"event,omitempty"`
	Listener string `json:"listener,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	Call     int64  `json:"call,omitempty"`
	// Ahead is how far the process's clock is ahead of the system's when the delivery begins.
	Ahead time.Duration `json:"ahead,omitempty"`
	// Content is the content with which a delivery begins, if events of the type can be changed; see
	// [Change].
	Content string `json:"content,omitempty"`
	Result  string `json:"result,omitempty"`

	Request *Request `json:"request,omitempty"`
	Types   []string `json:"types,omitempty"`
	Drained *Drained `json:"drained,omitempty"`
	Change  *Change  `json:"change,omitempty"`

	Fault string    `json:"fault,omitempty"`
	Until time.Time `json:"until,omitzero"`
	Error string    `json:"error,omitempty"`
}

// Event is an event as the writer knows the event before writing it.
type Event struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Key and Seq are the place in the order of the key. A later event of a key has a higher Seq.
	Key string `json:"key,omitempty"`
	Seq int    `json:"seq,omitempty"`
	// Delayed: the event becomes due later, and has no place in the order.
	Delayed bool `json:"delayed,omitempty"`
	// Occurred is OccurredAt, for events that expire.
	Occurred time.Time `json:"occurred,omitzero"`
	// Unique is the unique key of the event, or empty.
	Unique string `json:"unique,omitempty"`
	// Latest: the write replaces the event that waits with the unique key.
	Latest bool `json:"latest,omitempty"`
	// Due is AvailableAt, for events that can be changed, or zero.
	Due time.Time `json:"due,omitzero"`
}

// Change is a change of events that wait, and what became of the events; see [outbox.TakenBack].
type Change struct {
	// Does is [Cancel], [Reschedule] or [Replace].
	Does string `json:"does"`
	// Due is the new due time, or zero. Content is the new content, or empty. The content of an event that
	// was not changed is the id of the event.
	Due     time.Time `json:"due,omitzero"`
	Content string    `json:"content,omitempty"`
	// ByKey: the events were chosen by their aggregate id.
	ByKey bool `json:"byKey,omitempty"`

	Changed   int `json:"changed,omitempty"`
	InHand    int `json:"inHand,omitempty"`
	Dead      int `json:"dead,omitempty"`
	Delivered int `json:"delivered,omitempty"`
	// Only: the other three counts are not known.
	Only bool `json:"only,omitempty"`
}

// Drained is the result of a Drain of at most Most events.
type Drained struct {
	Most   int `json:"most"`
	Done   int `json:"done"`
	Failed int `json:"failed"`
}

// Request is a request with an Idempotency-Key, and the answer.
type Request struct {
	Key string `json:"key"`
	// Asks is the body of the request. Two requests with the same Key and different bodies are
	// different requests.
	Asks string `json:"asks"`
	// Status and Answer are the status and the body of the answer; zero is no answer. The body of a
	// success is the Tx of the execution that the answer is about. Replayed: the answer has the header
	// Idempotent-Replayed.
	Status   int    `json:"status,omitempty"`
	Answer   string `json:"answer,omitempty"`
	Replayed bool   `json:"replayed,omitempty"`
}

// Succeeded reports whether the answer says that the request was done.
func (r *Request) Succeeded() bool { return r.Status >= 200 && r.Status < 300 }

// Log is the log of a process, a file of JSON lines that no other process writes. A Log is safe for
// concurrent use.
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

// Add writes a record, as of now unless the record has a time. The operating system has the line
// when Add returns, so the line outlives the process.
func (l *Log) Add(r Record) {
	if r.At.IsZero() {
		r.At = time.Now()
	}
	if r.Process == "" && r.Op != OpFault { // a fault of all processes has no process
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
