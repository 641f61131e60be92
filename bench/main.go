// Bench runs the same work on this library, on other libraries, on INSERTs by hand and on bare
// statements, side by side, and compares them:
//
//	go run . -run 'drain|write' -db postgres -rounds 3
//
// Bench finds the databases as the tests do: by OUTBOX_TEST_POSTGRES and OUTBOX_TEST_MYSQL, or on
// the default local ports. Everything that bench makes there is in separate schemas and databases,
// which bench drops.
//
// In each round every contender takes its turn, on an empty database. A figure is the median of the
// rounds. With -write, bench also writes the results as JSON and the tables of
// BENCHMARKS.md; a run of some works replaces only the results of these works. A work with a failed
// sample keeps the old table; bench names the work and exits with 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func main() {
	var o options
	flag.StringVar(&o.run, "run", "", "regexp of what to run, as in 'drain/100k' (default all)")
	flag.StringVar(&o.who, "who", "", "regexp of the contenders that take part (default all)")
	flag.StringVar(&o.db, "db", "", "postgres, mysql, sqlite, or several with commas (default all)")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each contender takes its turn")
	flag.DurationVar(&o.slice, "slice", 2*time.Second, "how long a work runs that has no end of its own")
	flag.Float64Var(&o.scale, "scale", 1, "a factor for the number of events and rows")
	flag.BoolVar(&o.quick, "quick", false, "little of everything, once: only check that it runs")
	flag.StringVar(&o.write, "write", "", "the folder docs, to write results and tables to")
	flag.StringVar(&o.profile, "profile", "", "a folder for profiles of this process: its processors' time, allocations, locks and waiting")
	flag.BoolVar(&o.verbose, "v", false, "say how long each sample took")
	flag.Parse()
	if o.quick {
		o.rounds, o.slice, o.scale = 1, 20*time.Millisecond, 0.02
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := profiled(o.profile, func() error { return bench(ctx, o) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	run, who, db, write, profile string
	rounds                       int
	scale                        float64
	slice                        time.Duration
	quick, verbose               bool
}

func bench(ctx context.Context, o options) error {
	run, err1 := regexp.Compile(o.run)
	who, err2 := regexp.Compile(o.who)
	kinds, err3 := databases(o.db)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if o.write != "" && (o.scale != 1 || o.who != "" || strings.Contains(o.run, "/")) {
		return errors.New("-write replaces whole tables: leave out -scale, -quick, -who, and variants in -run")
	}
	r := runner{options: o, pattern: run, who: who, works: works(), contenders: contenders(), cpu: readCPU}
	return r.bench(ctx, kinds)
}

// bench measures, and writes the requested output.
func (r runner) bench(ctx context.Context, kinds []testdb.Kind) error {
	machines, servers := map[testdb.Kind]string{}, map[testdb.Kind]testdb.Kind{}
	for _, kind := range kinds {
		servers[kind] = kind
	}
	if !r.quick {
		machine := fmt.Sprintf("%s, %.0f %% busy before the start", describeMachine(), busyPercent())
		fmt.Println("bench:", machine)
		for _, kind := range kinds {
			database, err := describeDatabase(ctx, kind)
			if err != nil {
				return err
			}
			servers[kind] = serverOf(kind, database)
			fmt.Printf("bench: %s %s\n", databaseNames[servers[kind]], database)
			machines[kind] = database + "; " + machine
		}
	}
	works, err := r.run(ctx, kinds)
	for i := range works {
		kind := works[i].Database
		works[i].Machine, works[i].Database = machines[kind], servers[kind]
	}
	if r.write == "" || len(works) == 0 {
		return err
	}
	if err != nil {
		err = fmt.Errorf("these works keep their old tables:\n%w", err)
	}
	return errors.Join(err, results{Works: works}.writeTo(r.write))
}

// databases are the requested databases that answer.
func databases(list string) ([]testdb.Kind, error) {
	var kinds []testdb.Kind
	for _, kind := range everywhere {
		if list != "" && !strings.Contains(","+list+",", ","+string(kind)+",") {
			continue
		}
		var err error
		switch kind {
		case testdb.Postgres:
			err = testdb.Ping("pgx", testdb.PostgresDSN())
		case testdb.MySQL:
			err = testdb.Ping("mysql", testdb.MySQLDSN())
		default: // SQLite needs no server
		}
		switch {
		case err == nil:
			kinds = append(kinds, kind)
		case list != "" || os.Getenv("CI") == "true":
			return nil, fmt.Errorf("%s does not answer: %w", kind, err)
		default:
			fmt.Fprintf(os.Stderr, "bench: %s is left out, as it does not answer: %v\n", kind, err)
		}
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("there is no database for %q; known are postgres, mysql and sqlite", list)
	}
	return kinds, nil
}
