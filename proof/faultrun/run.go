package faultrun

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/proof/checker"
)

// Build builds the program of a process into a folder. arguments are further arguments of go build,
// such as -race or -overlay.
func Build(ctx context.Context, dir string, arguments ...string) (program string, err error) {
	program = filepath.Join(dir, "node")
	build := exec.CommandContext(ctx, "go", append(append([]string{"build"}, arguments...),
		"-o", program, "github.com/outboxkit/outbox-go/proof/faultrun/node")...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w:\n%s", err, out)
	}
	return program, nil
}

// Run is a run: the processes, and the faults that they are given. A Run is safe for concurrent
// use.
type Run struct {
	// Program is the program that [Build] built, and Dir the folder of the logs.
	Program, Dir string

	faults *checker.Log
	mu     sync.Mutex
	live   map[*Process]bool
}

// NewRun makes a run.
func NewRun(program, dir string) (*Run, error) {
	faults, err := checker.Create(dir, "run")
	if err != nil {
		return nil, err
	}
	return &Run{Program: program, Dir: dir, faults: faults, live: map[*Process]bool{}}, nil
}

// Process is a process of a run.
type Process struct {
	Spec Spec
	run  *Run
	cmd  *exec.Cmd
	// commands is the process's standard input.
	commands io.WriteCloser
	// ready and written are closed when the process prints these words, ended when the process has
	// ended; err then says how.
	ready, written, ended chan struct{}
	err                   error
	address               string // at which the process serves requests, after ready
}

// Start starts a process. The standard error of the process is kept beside the log.
func (r *Run) Start(spec Spec) (*Process, error) { return r.StartWith(r.Program, spec) }

// StartWith starts a process of another program; see [BuildOlder].
func (r *Run) StartWith(program string, spec Spec) (*Process, error) {
	spec.Dir = r.Dir
	cmd := exec.Command(program) //nolint:noctx // Kill and Terminate end it
	p := &Process{Spec: spec, run: r, cmd: cmd, ready: make(chan struct{}), written: make(chan struct{}), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), spec.variable())
	stderr, err := os.Create(filepath.Join(r.Dir, spec.Process+".stderr"))
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.commands, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err = p.cmd.Start(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.live[p] = true
	r.mu.Unlock()
	go p.wait(out, stderr)
	return p, nil
}

func (p *Process) wait(out io.Reader, stderr io.Closer) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		switch address, serving := strings.CutPrefix(line, Serving); {
		case serving:
			p.address = address
		case line == Ready:
			close(p.ready)
		case line == Written:
			close(p.written)
		}
	}
	p.err = errors.Join(p.cmd.Wait(), stderr.Close())
	p.run.mu.Lock()
	delete(p.run.live, p)
	p.run.mu.Unlock()
	close(p.ended)
}

// Ready waits until the process's outbox has started.
func (p *Process) Ready(ctx context.Context) error { return p.await(ctx, p.ready, "has not started") }

// Written waits until the process's writers have made their transactions.
func (p *Process) Written(ctx context.Context) error {
	return p.await(ctx, p.written, "has not written its transactions")
}

func (p *Process) await(ctx context.Context, what <-chan struct{}, failed string) error {
	select {
	case <-what:
		return nil
	case <-p.ended:
	case <-ctx.Done():
	}
	return fmt.Errorf("process %s %s (%w, %w): see %s.stderr", p.Spec.Process, failed, ctx.Err(), p.err, filepath.Join(p.run.Dir, p.Spec.Process))
}

// Died says how the process has ended; nil while the process runs.
func (p *Process) Died() error {
	select {
	case <-p.ended:
		return fmt.Errorf("process %s has ended (%w): see %s.stderr", p.Spec.Process, p.err, filepath.Join(p.run.Dir, p.Spec.Process))
	default:
		return nil
	}
}

// Kill kills the process and waits until it has ended.
func (p *Process) Kill() {
	p.run.Fault(checker.Kill, p.Spec.Process, time.Now(), time.Now())
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Stop stops the process for a time, or until ctx ends.
func (p *Process) Stop(ctx context.Context, d time.Duration) {
	began := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	p.run.Fault(checker.Stop, p.Spec.Process, began, time.Now())
}

// Terminate asks the process to close the outbox, and waits until the process has ended. The error
// says that the process ended otherwise. When ctx ends first, the process prints the goroutines and
// ends.
func (p *Process) Terminate(ctx context.Context) error {
	p.run.Fault(checker.Terminate, p.Spec.Process, time.Now(), time.Now())
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-ctx.Done():
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.ended
		return fmt.Errorf("process %s does not end: see %s.stderr", p.Spec.Process, filepath.Join(p.run.Dir, p.Spec.Process))
	}
	select {
	case <-p.ready:
	default:
		return nil // the signal may have come before the process could close anything
	}
	if p.err != nil {
		return fmt.Errorf("process %s: %w: see %s.stderr", p.Spec.Process, p.err, filepath.Join(p.run.Dir, p.Spec.Process))
	}
	return nil
}

// Fault records a fault that the run did to a process, or to all processes if process is empty.
func (r *Run) Fault(fault, process string, from, until time.Time) {
	r.faults.Add(checker.Record{Op: checker.OpFault, Fault: fault, Process: process, At: from, Until: until})
}

// servers are the addresses of the processes that serve requests.
func (r *Run) servers() (addresses []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.live {
		if isOver(p.ready) && p.address != "" {
			addresses = append(addresses, p.address)
		}
	}
	return addresses
}

// End kills the processes that still run, so that a test that fails leaves no process behind.
func (r *Run) End() {
	r.mu.Lock()
	var live []*Process
	for p := range r.live {
		live = append(live, p)
	}
	r.mu.Unlock()
	for _, p := range live {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	_ = r.faults.Close()
}

// Delivered waits until the table has no pending row.
func Delivered(ctx context.Context, db *sql.DB) error {
	const pending = "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2)"
	var n int
	for {
		err := db.QueryRowContext(ctx, pending).Scan(&n)
		if err == nil && n == 0 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d events are still pending: %w", n, errors.Join(err, ctx.Err()))
		}
	}
}

// History is the history of the run, when all processes have ended.
func (r *Run) History(ctx context.Context, db *sql.DB, promise checker.Promise) (checker.History, error) {
	records, err := checker.Load(r.Dir)
	if err != nil {
		return checker.History{}, err
	}
	h := checker.History{Promise: promise, Records: records}
	return h, Read(ctx, db, &h)
}
