// Soak runs the outbox at a steady rate beside a transaction that is held open:
//
//	go run -C proof ./tools/soak -time 1h -held 10m
//
// Soak prints a summary, and with -out writes all samples. Soak exits with 1 when an event was
// lost or repeated.
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
	flag.DurationVar(&o.Time, "time", 2*time.Minute, "how long events are written")
	flag.DurationVar(&o.Held, "held", 0, "how long the transaction is held open; 0 is a sixth of -time")
	flag.IntVar(&o.Rate, "rate", 500, "events a second")
	flag.IntVar(&o.Nodes, "nodes", 2, "nodes that write and deliver")
	flag.DurationVar(&o.Retention, "retention", 0, "how long delivered rows are kept; 0 is a twelfth of -time")
	flag.IntVar(&o.History, "history", 0, "delivered rows that the table has before")
	flag.StringVar(&o.Settings, "settings", "", "storage parameters for the table on PostgreSQL, in place of the schema's")
	out := flag.String("out", "", "a folder for soak-DATABASE.jsonl; empty writes none")
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
		fmt.Fprintf(os.Stderr, "%7v  %4.0f/s written  %4.0f/s delivered  claim %v  %d pages  table %d MiB  indexes %d MiB  %d dead\n",
			s.At.Round(time.Second), s.Written, s.Delivered, s.Claims.Median.Round(time.Millisecond/10), s.Pages, s.Table>>20, s.Indexes>>20, s.Dead)
	})
	if err != nil {
		return false, err
	}
	fmt.Print(result)
	if out == "" {
		return len(result.Problems) == 0, nil
	}
	samples, err := result.JSON()
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "soak-"+string(o.Database)+".jsonl"), samples, 0o644) //nolint:gosec // for the documents
	}
	return len(result.Problems) == 0, err
}
