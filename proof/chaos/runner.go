package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/proof/checker"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// Runner carries out plans. A Runner is safe for concurrent use.
type Runner struct {
	// Program is the program of the processes, from [faultrun.Build], and Dir the folder that has
	// the folders of the runs.
	Program, Dir string
	// Older is the program of the older version, from [faultrun.BuildOlder]. Plans with
	// Skew need it.
	Older string
	// Shared lets runs use the servers of package testdb, unless a fault harms the server. Without
	// Shared each run has a private server, if the programs are installed.
	Shared bool
	// MySQL is a folder of extracted packages, such as make mysql makes. The MySQL of the folder is
	// used in place of the installed MariaDB or MySQL.
	MySQL string

	mu     sync.Mutex
	idle   map[string][]*server
	failed map[string]error // why a kind of server cannot be started
}

// Result is the result of a plan.
type Result struct {
	Plan
	Report checker.Report
	// Done are the faults that were done, by kind.
	Done map[string]int
	Took time.Duration
	// Dir has the logs; it is kept when a rule is broken.
	Dir string
	// Skipped says which part of the plan this machine cannot do; the rest was done.
	Skipped error
}

// OK is true when all rules hold.
func (r Result) OK() bool { return len(r.Report.Violations) == 0 }

// Run carries out a plan.
func (r *Runner) Run(ctx context.Context, plan Plan) (result Result) {
	began := time.Now()
	result = Result{Plan: plan, Dir: filepath.Join(r.Dir, fmt.Sprintf("%s-%d", plan.Database, plan.Seed))}
	private, missing := r.acquire(ctx, plan)
	if private == nil {
		plan.leaveOut(crash)
		if plan.Database != "sqlite" {
			plan.leaveOut(disk)
		}
	}
	if plan.Disk() && mounts() != nil {
		missing = mounts()
		plan.leaveOut(disk)
	}
	run := &run{plan: plan, older: r.Older, faults: map[string]int{}}
	h, err := r.carryOut(ctx, run, private, result.Dir)
	r.release(private)
	result.Report = run.judge(h, err)
	result.Report.Violations = append(result.Report.Violations, grep(result.Dir, h)...)
	result.Done, result.Took = run.faults, time.Since(began)
	if plan.harms() < result.harms() {
		result.Skipped = missing
	}
	if result.OK() {
		_ = os.RemoveAll(result.Dir)
	} else {
		_ = os.WriteFile(filepath.Join(result.Dir, "report.txt"), []byte(fmt.Sprintf("%+v\n\n%v\n", plan, result.Report)), 0o600)
	}
	return result
}

func (r *Runner) carryOut(ctx context.Context, run *run, private *server, dir string) (h checker.History, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return h, err
	}
	if run.processes, err = faultrun.NewRun(r.Program, dir); err != nil {
		return h, err
	}
	dsn := map[string]string{"postgres": testdb.PostgresDSN(), "mysql": testdb.MySQLDSN()}[run.plan.Database]
	if private != nil {
		dsn = private.dsn
	}
	if run.base, err = newBase(ctx, run.plan.Database, dsn, dir, private, run.plan.Disk()); err != nil {
		return h, err
	}
	defer run.base.drop()
	return run.carryOut(ctx)
}

// acquire is a private server for a plan. The server is nil when the plan needs no private server,
// or when the server cannot be started.
func (r *Runner) acquire(ctx context.Context, plan Plan) (*server, error) {
	kind := plan.Database
	if kind == "sqlite" || r.Shared && plan.harms() == 0 {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle == nil {
		r.idle, r.failed = map[string][]*server{}, map[string]error{}
	}
	if n := len(r.idle[kind]); n > 0 {
		s := r.idle[kind][n-1]
		r.idle[kind] = r.idle[kind][:n-1]
		return s, nil
	}
	if r.failed[kind] != nil {
		return nil, r.failed[kind]
	}
	s, err := newServer(ctx, kind, r.MySQL)
	r.failed[kind] = err
	return s, err
}

// release returns a private server for further plans.
func (r *Runner) release(s *server) {
	if s == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle[s.kind] = append(r.idle[s.kind], s)
}

// Close stops the private servers.
func (r *Runner) Close() {
	for _, servers := range r.idle {
		for _, s := range servers {
			s.close()
		}
	}
}
