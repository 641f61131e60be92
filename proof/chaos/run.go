package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/proof/checker"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// patience is how long the rest of a run may take after the faults: connections that
// hang are given up after half a minute, and leases and holds expire.
const patience = 5 * time.Minute

// run is a plan that is being carried out.
type run struct {
	plan      Plan
	older     string // the program of the older version
	base      *base
	processes *faultrun.Run
	slots     []*slot
	operator  operator
	clients   *faultrun.Clients // nil without Plan.Clients

	// harming is true while a fault is done to all processes.
	harming atomic.Bool

	mu       sync.Mutex
	faults   map[string]int
	problems []error
}

func (r *run) problem(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, err)
}

func (r *run) count(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[kind]++
}

// carryOut carries out the plan. The error says that something went wrong which is not part of the
// plan, or that the outbox did not finish.
func (r *run) carryOut(ctx context.Context) (checker.History, error) {
	promise := r.plan.Spec.Promise()
	promise.Unordered = r.plan.Stepped()
	if err := r.createTables(ctx); err != nil {
		return checker.History{}, err
	}
	ob, err := faultrun.Outbox(ctx, r.base.db, r.plan.Spec)
	if err != nil {
		return checker.History{}, err
	}
	r.operator = operator{ob: ob, db: r.base.db, kind: r.plan.Database}
	defer r.processes.End()
	if err := r.begin(ctx); err != nil {
		return checker.History{}, err
	}
	watching, unwatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.watch(watching) })
	r.suffer(ctx)
	err = r.end()
	unwatch()
	watch.Wait()
	if err != nil {
		return checker.History{}, err
	}
	return r.processes.History(ctx, r.base.db, promise)
}

// createTables makes the tables, with the schema of the older version if there is an older version.
func (r *run) createTables(ctx context.Context) error {
	if !r.plan.Skew {
		return faultrun.CreateTables(ctx, r.base.db, r.plan.Spec)
	}
	spec := r.plan.Spec
	spec.Driver, spec.DSN = r.base.driver(), r.base.dsn
	return faultrun.CreateTablesWith(ctx, r.older, spec)
}

// begin starts the processes.
func (r *run) begin(ctx context.Context) error {
	for i := range r.plan.Processes + r.plan.Writers {
		s := &slot{run: r, letter: string(rune('a' + i)), older: r.plan.Skew && i%2 == 0, spec: r.plan.spec(i)}
		s.spec.DSN = r.base.dsn
		if r.plan.Database != "sqlite" {
			proxy, err := faultrun.NewProxy(r.base.addr)
			if err != nil {
				return err
			}
			s.proxy, s.spec.DSN = proxy, r.base.via(proxy.Addr)
		}
		r.slots = append(r.slots, s)
		if r.plan.Skew && i == 1 { // this process is the first process that needs today's tables
			if err := r.upgrade(ctx); err != nil {
				return err
			}
		}
		if err := s.start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, s := range r.slots {
		if err := s.process.Ready(ctx); err != nil {
			return err
		}
	}
	if r.plan.Clients > 0 {
		var err error
		r.clients, err = r.processes.NewClients()
		return err
	}
	return nil
}

// upgrade migrates the tables to today's version, while the first process, of the older version,
// writes and delivers. upgrade also goes back once, as an operator may.
func (r *run) upgrade(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := r.slots[0].process.Ready(ctx); err != nil {
		return err
	}
	store, err := sqlstore.Detect(ctx, r.base.db)
	if err != nil {
		return err
	}
	older, err := store.SchemaVersion(ctx, r.base.db)
	for _, version := range []int{sqlstore.SchemaVersion, older, sqlstore.SchemaVersion} {
		if err != nil {
			return err
		}
		wait(ctx, 200*time.Millisecond)
		_, err = store.Migrate(ctx, r.base.db, version)
	}
	return err
}

// suffer does all faults of the plan while operators work.
func (r *run) suffer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.plan.Duration)
	defer cancel()
	var all sync.WaitGroup
	for i, s := range r.slots {
		all.Go(func() { s.suffer(ctx, r.plan.Faults[i]) })
	}
	all.Go(func() { r.sufferTogether(ctx) })
	if r.clients != nil {
		all.Go(func() { r.clients.Send(ctx, r.plan.Clients, 0, r.plan.Spec.Pace) })
	}
	if r.plan.Operators {
		all.Go(func() { r.operator.operate(ctx) })
	}
	if r.plan.Migrates {
		all.Go(func() { r.operator.migrate(ctx, r.plan.Spec) })
	}
	<-ctx.Done()
	all.Wait()
}

// sufferTogether does the faults that are done to all processes.
func (r *run) sufferTogether(ctx context.Context) {
	for _, f := range r.plan.Global {
		if wait(ctx, f.After); ctx.Err() != nil {
			return
		}
		r.count(f.Kind)
		began := time.Now()
		r.harming.Store(true)
		var err error
		kind := checker.Server
		switch f.Kind {
		case disconnect:
			err, kind = r.base.disconnect(ctx), checker.Network
		case lock:
			err = r.base.lock(ctx, f.For)
		case crash:
			err = r.base.private.crash(ctx, f.For)
		case disk:
			err = r.base.fill(ctx, f.For)
		}
		if err != nil && ctx.Err() == nil && f.Kind != lock { // the database may be busy
			r.problem(fmt.Errorf("%s: %w", f.Kind, err))
		}
		r.processes.Fault(kind, "", began, time.Now())
		r.harming.Store(false)
	}
}

// end has the writers end their transactions and the processes close their outboxes. Another
// process, which suffers no fault, delivers the rest.
func (r *run) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range r.slots {
		s.process.Finish()
		all.Go(func() {
			if err := s.process.Written(ctx); err != nil {
				r.problem(err)
			}
			s.terminate()
		})
	}
	all.Wait()
	if err := r.operator.resume(ctx); err != nil {
		return err
	}
	if err := r.deliver(ctx); err != nil {
		return err
	}
	for _, s := range r.slots {
		if s.proxy != nil {
			s.proxy.Close()
		}
	}
	return nil
}

// deliver delivers the rest.
func (r *run) deliver(ctx context.Context) error {
	last := &slot{run: r, letter: "z", spec: r.plan.Spec}
	last.spec.DSN, last.spec.Writers = r.base.dsn, nil
	last.spec.Connections, last.spec.Guests, last.spec.Stubborn, last.spec.Hang = 0, 0, 0, 0
	last.spec.Rare, last.spec.Down = false, 0 // the last process has all listeners, and their receivers work
	if err := last.start(); err != nil {
		return err
	}
	if err := last.process.Ready(ctx); err != nil {
		return err
	}
	burying, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	if r.plan.Spec.Mode == "by-key" && !r.plan.Spec.SkipDead {
		all.Go(func() { r.operator.bury(burying) })
	}
	if r.clients != nil {
		r.clients.Finish(ctx)
	}
	err := faultrun.Delivered(ctx, r.base.db)
	stop()
	all.Wait()
	last.terminate()
	return err
}

// judge holds the history against the rules. Problems break the rule "records".
func (r *run) judge(h checker.History, failed error) (report checker.Report) {
	if failed == nil {
		report = checker.Check(h)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range slices.Concat(r.problems, []error{failed}) {
		if err != nil {
			report.Violations = append(report.Violations, checker.Violation{Rule: checker.RuleRecords, Text: err.Error()})
		}
	}
	return report
}
