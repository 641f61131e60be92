// Chaos makes fault runs from seeds, prints a line for each run, and ends with a table:
//
//	go run -C proof ./tools/chaos -time 10m
//
// Chaos exits with 1 when a rule was broken. The histories of such runs are kept.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/proof/chaos"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

type options struct {
	time      time.Duration
	runs      int
	seed      uint64
	databases string
	mode      string
	parallel  int
	race      bool
	older     string
	requests  bool
	dir       string
	mysql     string
}

func main() {
	var o options
	flag.DurationVar(&o.time, "time", 10*time.Minute, "begin no further run after this time")
	flag.IntVar(&o.runs, "runs", 0, "the most runs; 0 is no limit")
	flag.Uint64Var(&o.seed, "seed", 0, "the seed of the first run; 0 is a random one")
	flag.StringVar(&o.databases, "db", strings.Join(chaos.Databases, ","), "the databases, one run after the other")
	flag.StringVar(&o.mode, "mode", "", "leave out the seeds that draw another mode: single, multi, ordered or by-key")
	flag.IntVar(&o.parallel, "parallel", 2, "how many runs at a time")
	flag.BoolVar(&o.race, "race", false, "build the processes with the race detector")
	flag.StringVar(&o.older, "older", "", "run processes of this revision beside today's, without faults")
	flag.BoolVar(&o.requests, "requests", false, "clients send requests with keys to the processes, which have no writers")
	flag.StringVar(&o.mysql, "mysql", "", "the folder of the packages of MySQL, from make mysql; empty is the installed MariaDB or MySQL")
	flag.StringVar(&o.dir, "dir", "", "the folder for the histories; empty is a temporary one")
	flag.Parse()
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32)
	}
	ok, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(o options) (ok bool, err error) {
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	if modes := []string{"", "single", "multi", "ordered", "by-key"}; !slices.Contains(modes, o.mode) {
		return false, fmt.Errorf("-mode %s: there is none of this name", o.mode)
	}
	if o.requests && o.older != "" {
		return false, errors.New("-requests and -older: give one of them")
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "outbox-chaos-"); err != nil {
			return false, err
		}
	}
	var arguments []string
	if o.race {
		arguments = append(arguments, "-race")
	}
	program, err := faultrun.Build(ctx, o.dir, arguments...)
	if err != nil {
		return false, err
	}
	if o.mysql != "" {
		if o.mysql, err = filepath.Abs(o.mysql); err != nil {
			return false, err
		}
	}
	runner := &chaos.Runner{Program: program, Dir: o.dir, MySQL: o.mysql}
	defer runner.Close()
	if o.older != "" {
		if runner.Older, err = faultrun.BuildOlder(ctx, o.older, o.dir, arguments...); err != nil {
			return false, err
		}
	}
	plans := make(chan chaos.Plan)
	go o.plan(ctx, plans)
	var mu sync.Mutex
	var results []chaos.Result
	var lanes sync.WaitGroup
	for range o.parallel {
		lanes.Go(func() {
			for plan := range plans {
				result := runner.Run(ctx, plan)
				mu.Lock()
				if ctx.Err() == nil { // otherwise it was cut off
					results = append(results, result)
					fmt.Println(result)
				}
				mu.Unlock()
			}
		})
	}
	lanes.Wait()
	fmt.Print("\n", chaos.Table(results))
	return !slices.ContainsFunc(results, func(r chaos.Result) bool { return !r.OK() }), nil
}

// plan makes the plans of the seeds, until the time is over.
func (o options) plan(ctx context.Context, plans chan<- chaos.Plan) {
	defer close(plans)
	databases := strings.Split(o.databases, ",")
	newPlan := chaos.NewPlan
	switch {
	case o.requests:
		newPlan = chaos.NewRequestPlan
	case o.older != "":
		newPlan = chaos.NewSkewPlan
	}
	for began, seed, i := time.Now(), o.seed, 0; time.Since(began) < o.time && (o.runs == 0 || i < o.runs); seed++ {
		plan := newPlan(seed, databases[i%len(databases)], 0)
		if o.mode != "" && plan.Spec.Mode != o.mode {
			continue
		}
		select {
		case plans <- plan:
			i++
		case <-ctx.Done():
			return
		}
	}
}
