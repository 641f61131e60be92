package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/proof/checker"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// closing is how long a process may take to close its outbox: the time that how-to/shutdown.md
// allows, on a slow machine.
const closing = 2 * time.Minute

// slot is the place of a process of a run: when the process ends, the next process follows.
type slot struct {
	run     *run
	letter  string
	spec    faultrun.Spec
	proxy   *faultrun.Proxy // nil on SQLite
	process *faultrun.Process
	started int
	older   bool // the next process is of the older version
}

// start starts the slot's next process.
func (s *slot) start() error {
	s.spec.Process = fmt.Sprintf("%s%d", s.letter, s.started)
	s.spec.Deaf = s.spec.Rare && (int(s.letter[0])+s.started)%2 == 0 // each second process of a slot
	s.started++
	program := s.run.processes.Program
	if s.older {
		program = s.run.older
	}
	process, err := s.run.processes.StartWith(program, s.spec)
	if err != nil {
		return err
	}
	s.process, s.older = process, s.run.plan.Skew && !s.older
	return nil
}

// next starts the next process after a time, or when ctx ends.
func (s *slot) next(ctx context.Context, after time.Duration) {
	wait(ctx, after)
	if err := s.start(); err != nil {
		s.run.problem(err)
	}
}

// suffer has faults done to the slot's processes, until ctx ends.
func (s *slot) suffer(ctx context.Context, faults []Fault) {
	for _, f := range faults {
		if wait(ctx, f.After); ctx.Err() != nil {
			return
		}
		if err := s.process.Died(); err != nil {
			s.run.problem(err)
			return
		}
		s.run.count(f.Kind)
		s.do(ctx, f)
	}
}

func (s *slot) do(ctx context.Context, f Fault) {
	began, process := time.Now(), s.process.Spec.Process
	switch f.Kind {
	case kill:
		s.process.Kill()
		s.next(ctx, f.For)
	case terminate:
		s.terminate()
		s.next(ctx, f.For)
	case stop:
		s.process.Stop(ctx, f.For)
	case network:
		s.proxy.Do(ctx, f.Harm, f.For)
		s.run.processes.Fault(checker.Network, process, began, time.Now())
	case clock:
		s.process.SetClock(f.Offset)
		wait(ctx, f.For)
		s.process.SetClock(0)
		s.run.processes.Fault(checker.Clock, process, began, time.Now())
	}
}

// terminate has the process close the outbox, which must succeed.
func (s *slot) terminate() {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if err := s.process.Terminate(ctx); err != nil {
		s.run.problem(err)
	}
}
