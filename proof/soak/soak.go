// Package soak runs the outbox at a steady rate for a long time. For a part of the time another
// transaction is held open, so that the database cannot remove the delivered rows. [Run] measures
// the cost, and checks that each event is delivered once.
package soak

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// Options are the options of a run. Each field says what zero means.
type Options struct {
	// Database is postgres or mysql; mysql may be MariaDB. Defaults to postgres.
	Database testdb.Kind
	// Time is how long events are written. Defaults to 2 minutes.
	Time time.Duration
	// Held is how long the other transaction is held open; it begins after a sixth of
	// Time. Defaults to a sixth of Time.
	Held time.Duration
	// Nodes write and deliver. Defaults to 2.
	Nodes int
	// Rate is how many events all nodes write in a second. Defaults to 500.
	Rate int
	// Cold is how many events in a hundred are delivered by the poller: half of them
	// are delayed, and of the others the first delivery fails. Defaults to 4.
	Cold int
	// Retention is how long delivered rows are kept. Defaults to a twelfth of Time.
	Retention time.Duration
	// History is how many delivered rows the table has when the run begins. These rows are not
	// purged. Defaults to 0.
	History int
	// Every is the time between two samples. Defaults to a hundredth of Time, and to 500 ms
	// if that is longer.
	Every time.Duration
	// Settings are storage parameters for the table on PostgreSQL, such as "fillfactor = 50". Empty
	// leaves the parameters of the schema.
	Settings string
}

func (o Options) withDefaults() Options {
	orDefault(&o.Database, testdb.Postgres)
	orDefault(&o.Time, 2*time.Minute)
	orDefault(&o.Held, o.Time/6)
	orDefault(&o.Nodes, 2)
	orDefault(&o.Rate, 500)
	orDefault(&o.Cold, 4)
	orDefault(&o.Retention, o.Time/12)
	orDefault(&o.Every, max(o.Time/100, 500*time.Millisecond))
	return o
}

func orDefault[T comparable](of *T, value T) {
	var zero T
	if *of == zero {
		*of = value
	}
}

// validate reports options that no run can have.
func (o Options) validate() error {
	if o.Held > o.Time*2/3 {
		return fmt.Errorf("the transaction cannot be held for %v: two thirds of the time, %v, are the most", o.Held, o.Time)
	}
	if o.Rate < 0 || o.Nodes < 0 || o.Every < 0 || o.Held < 0 || o.Retention < 0 || o.History < 0 {
		return errors.New("a negative number is no option of a run")
	}
	return nil
}

// patience is how long a run waits for the rest to be delivered.
const patience = 2 * time.Minute

// Run makes a run. tell is called with each sample, and may be nil. The error says that the run
// could not be made; [Result.Problems] says which mistakes the outbox made.
func Run(ctx context.Context, o Options, tell func(Sample)) (result Result, err error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return result, err
	}
	db, err := open(ctx, o)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	events := &ledger{}
	m := &meters{}
	writing, finish := context.WithCancel(ctx)
	defer finish()
	var nodes []*node
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.close())
		}
	}()
	for range o.Nodes {
		n, err := start(ctx, o, db, events, m)
		if err != nil {
			return result, err
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.write(writing, o)
	}
	s := sampler{db: db, events: events, meters: m, began: time.Now(), tell: tell}
	if err := s.watch(ctx, o); err != nil {
		return result, err
	}
	finish()
	for _, n := range nodes {
		n.writers.Wait()
	}
	if err := events.settle(ctx, patience); err != nil {
		return result, err
	}
	result = Result{Options: o, Server: db.server, Samples: s.samples, Written: events.written, Delivered: events.delivered}
	result.Problems = append(events.problems(), db.problems(ctx)...)
	result.Problems = append(result.Problems, result.unrecovered()...)
	return result, nil
}

// hold holds a transaction open from a sixth of the time on.
type hold struct {
	from, until time.Duration
	release     func() error
}

func (h *hold) held() bool { return h.release != nil }

// step begins or ends the transaction when the time has come.
func (h *hold) step(ctx context.Context, db *database, now time.Duration) (err error) {
	switch {
	case h.release == nil && now >= h.from && now < h.until:
		if h.release, err = db.hold(ctx); err != nil {
			return fmt.Errorf("holding a transaction open: %w", err)
		}
	case h.release != nil && now >= h.until:
		release := h.release
		h.release = nil
		return release()
	}
	return nil
}
