package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// benchWorkers is how many connections write at the same time.
const benchWorkers = 8

// benchBatch is how many events a claim or a mark takes.
const benchBatch = 500

// rate is the result of a step of a benchmark.
type rate struct {
	Step    string  `json:"step"`
	Events  int     `json:"events"`
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"events_per_second"`
}

func (a *app) bench() *cobra.Command {
	var events, payload int
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use: "bench", Short: "Measures how fast this database writes, claims and marks events", Args: takesNothing,
		Long: fmt.Sprintf(`Measures how fast this database writes, claims and marks events, through this connection.
It creates a table of its own, with a random name, and drops it at the end. It loads the
server, so it asks before.

It writes each event in a transaction of its own, %d at once; then it claims all in batches
of %d and marks them done.`, benchWorkers, benchBatch),
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			if err := checkCount("--events", events, 1_000_000); err != nil {
				return err
			}
			if err := checkCount("--payload-bytes", payload, 100_000); err != nil {
				return err
			}
			name := benchTable(a.table)
			what := fmt.Sprintf("create the table %s, write %d events of %d bytes to it, deliver them and drop it", name, events, payload)
			if dryRun {
				return a.print(map[string]any{"dry_run": true, "table": name.String(), "events": events}, func(t *table) { t.row("would " + what) })
			}
			if !yes {
				if err := a.ask(ctx, what); err != nil {
					return err
				}
			}
			rates, err := a.measure(ctx, c, name, events, payload)
			if err != nil {
				return err
			}
			return a.print(map[string][]rate{"rates": rates}, func(t *table) {
				t.row("STEP", "EVENTS", "TIME", "EVENTS/S")
				for _, r := range rates {
					t.row(r.Step, r.Events, seconds(r.Seconds), strconv.Itoa(int(r.Rate)))
				}
			})
		}),
	}
	cmd.Flags().IntVar(&events, "events", 10_000, "how many events")
	cmd.Flags().IntVar(&payload, "payload-bytes", 200, "the size of each payload")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what it would do, do nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// benchTable returns the name of a new table, in the schema of the outbox's table.
func benchTable(table string) sqlname.Name {
	name, _ := sqlname.Parse(table) // it was checked
	name.Name = "outbox_bench_" + strings.ToLower(rand.Text()[:8])
	return name
}

// measure runs the benchmark on a table that measure creates and drops.
func (a *app) measure(ctx context.Context, c *client, table sqlname.Name, events, payload int) (rates []rate, err error) {
	store, err := sqlstore.Detect(ctx, c.db, sqlstore.WithTable(table.String()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx), c.db, store, table)) }()
	if err := store.CreateSchema(ctx, c.db); err != nil {
		return nil, err
	}
	c.db.SetMaxIdleConns(benchWorkers)
	if store.Dialect() == "sqlite" { // SQLite has one writer at a time
		c.db.SetMaxOpenConns(1)
	}
	began := time.Now()
	bar := a.progressBar("write", int64(events))
	err = writeEvents(ctx, c.db, store, events, payload, bar.set)
	bar.end()
	took := time.Since(began)
	var claiming, marking time.Duration
	if err == nil {
		bar = a.progressBar("claim and mark", int64(events))
		claiming, marking, err = deliverEvents(ctx, c.db, store, bar.set)
		bar.end()
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w; the table of the benchmark was dropped", errInterrupted)
	}
	return []rate{rateOf("write", events, took), rateOf("claim", events, claiming), rateOf("mark", events, marking)}, err
}

func rateOf(step string, events int, took time.Duration) rate {
	return rate{step, events, took.Seconds(), float64(events) / max(took.Seconds(), 1e-9)}
}

// drop drops the tables that the benchmark created.
func drop(ctx context.Context, db *sql.DB, store *sqlstore.Store, table sqlname.Name) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	quote := `"`
	if store.Dialect() == "mysql" {
		quote = "`"
	}
	for _, name := range []sqlname.Name{table, table.Table("control")} {
		if _, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+name.Quoted(quote)); err != nil {
			return fmt.Errorf("dropping the table %s of the benchmark; drop it by hand: %w", name, err)
		}
	}
	return nil
}

// writeEvents writes each event in a separate transaction.
func writeEvents(ctx context.Context, db *sql.DB, store *sqlstore.Store, events, payload int, show func(int)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body := outbox.RawJSON([]byte(`"` + strings.Repeat("x", max(payload-2, 0)) + `"`))
	var next, done atomic.Int64
	var workers sync.WaitGroup
	for range benchWorkers {
		workers.Go(func() {
			for n := next.Add(1); n <= int64(events) && ctx.Err() == nil; n = next.Add(1) {
				if err := writeEvent(ctx, db, store, n, body); err != nil {
					cancel(err)
					return
				}
				show(int(done.Add(1)))
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

func writeEvent(ctx context.Context, db *sql.DB, store *sqlstore.Store, n int64, body outbox.Payload) error {
	now := time.Now().UTC().Truncate(time.Microsecond)
	env := outbox.Envelope{
		EventID: fmt.Sprintf("bench-%010d", n), EventType: "Bench", AggregateType: "Bench", AggregateID: strconv.FormatInt(n%100, 10),
		Payload: body, OccurredAt: now, AvailableAt: now,
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := store.Insert(ctx, tx, []outbox.Envelope{env}, "", now); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// deliverEvents claims the events in batches and marks them done. It returns how long all claims
// took, and how long all marks took.
func deliverEvents(ctx context.Context, db *sql.DB, store *sqlstore.Store, show func(int)) (claiming, marking time.Duration, err error) {
	for done, claim := 0, 1; ; claim++ {
		began, lease := time.Now(), fmt.Sprintf("bench/%d", claim)
		batch, err := store.Claim(ctx, db, outbox.ClaimQuery{
			Now: began.Add(time.Minute), Limit: benchBatch, Lease: lease, LeaseDuration: time.Hour,
		})
		if err != nil || len(batch.Envelopes) == 0 {
			return claiming, marking, err
		}
		claimed := time.Now()
		marks := make([]outbox.Mark, len(batch.Envelopes))
		for i := range marks {
			marks[i] = outbox.Mark{EventID: batch.Envelopes[i].EventID, Lease: lease}
		}
		if _, err := store.Mark(ctx, db, outbox.OutcomeDone, marks); err != nil {
			return claiming, marking, err
		}
		claiming, marking = claiming+claimed.Sub(began), marking+time.Since(claimed)
		done += len(marks)
		show(done)
	}
}
