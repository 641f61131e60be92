// Soak runs the outbox at a steady rate beside a transaction that is held open:
//
//	go run -C proof ./tools/soak -time 1h -held 10m
//
// or takes many events through the outbox beside a million that are pending:
//
//	go run -C proof ./tools/soak -events 100000000 -nodes 4 -rate 100
//
// Soak prints a summary, and with -out writes all samples and a plot. Soak exits with 1 when an
// event was lost or repeated.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/proof/soak"
)

func main() {
	var o soak.Options
	databases := flag.String("db", "postgres", "the databases, one run after the other: postgres, mysql")
	flag.DurationVar(&o.Time, "time", 0, "how long events are written; 0 is 2 minutes")
	flag.IntVar(&o.Events, "events", 0, "how many events are written, most of them by COPY, instead of -time; PostgreSQL only")
	flag.IntVar(&o.Pending, "pending", 0, "with -events: events that are always pending; 0 is 1000000")
	flag.DurationVar(&o.Partition, "partition", 0, "with -events: the time of a partition; 0 is 150s, so that a day of 24 partitions takes an hour")
	flag.DurationVar(&o.Every, "every", 0, "the time between two samples; 0 is a hundredth of -time, and 10s with -events")
	flag.DurationVar(&o.Held, "held", 0, "how long the transaction is held open; 0 is a sixth of -time")
	flag.IntVar(&o.Rate, "rate", 500, "events a second in transactions")
	flag.IntVar(&o.Nodes, "nodes", 2, "nodes that write and deliver")
	flag.DurationVar(&o.Retention, "retention", 0, "how long delivered rows are kept; 0 is a twelfth of -time, and with -events the time of a partition")
	flag.IntVar(&o.History, "history", 0, "delivered rows that the table has before")
	flag.StringVar(&o.Settings, "settings", "", "storage parameters for the table on PostgreSQL, in place of the schema's")
	out := flag.String("out", "", "a folder for soak-DATABASE.jsonl and soak-DATABASE.svg, with -events day-DATABASE; empty writes none")
	flag.Parse()
	ok := true
	for database := range strings.SplitSeq(*databases, ",") {
		o.Database = testdb.Kind(database)
		good, err := run(o, *out)
		if err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
		}
		ok = ok && good && err == nil
	}
	if !ok {
		os.Exit(1)
	}
}

func run(o soak.Options, out string) (ok bool, err error) {
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	result, err := soak.Run(ctx, o, func(s soak.Sample) {
		fmt.Fprintf(os.Stderr, "%7v  %4.0f/s written  %4.0f/s delivered  %d pending  claim %v  %d pages  table %d MiB  indexes %d MiB  %d dead\n",
			s.At.Round(time.Second), s.Written, s.Delivered, s.Pending, s.Claims.Median.Round(time.Millisecond/10), s.Pages, s.Table>>20, s.Indexes>>20, s.Dead)
	})
	if err != nil {
		return false, err
	}
	fmt.Print(result)
	if out == "" {
		return len(result.Problems) == 0, nil
	}
	name := "soak-"
	if o.Events > 0 {
		name = "day-"
	}
	name = filepath.Join(out, name+string(o.Database))
	samples, err := result.JSON()
	if err == nil {
		err = os.WriteFile(name+".jsonl", samples, 0o644) //nolint:gosec // for the documents
	}
	if err == nil {
		err = os.WriteFile(name+".svg", []byte(result.Plot()), 0o644) //nolint:gosec // for the documents
	}
	return len(result.Problems) == 0, err
}
