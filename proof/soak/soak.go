// Package soak runs the outbox for a long time. A run is one of two kinds.
//
// A run by time writes at a steady rate. For a part of the time another transaction is held open, so
// that the database cannot remove the delivered rows.
//
// A run by events writes many events by COPY beside a steady rate, so that many events are always
// pending. Some deliveries fail, some events become dead letters and are replayed, and delivered
// events go with their partition.
//
// [Run] measures the cost, and checks that each event is delivered.
package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// Options are the options of a run. Each field says what zero means.
type Options struct {
	// Database is postgres or mysql; mysql may be MariaDB. Defaults to postgres. A run by events
	// needs postgres.
	Database testdb.Kind
	// Events makes a run by events: the run ends when so many events were written and delivered.
	// Defaults to 0, a run by time.
	Events int
	// Time is how long a run by time writes events. Defaults to 2 minutes.
	Time time.Duration
	// Held is how long a run by time holds the other transaction open; it begins after a sixth of
	// Time. Defaults to a sixth of Time.
	Held time.Duration
	// Nodes write and deliver. Defaults to 2.
	Nodes int
	// Rate is how many events all nodes write in a second, each in a transaction. Defaults to 500.
	Rate int
	// Cold is how many of these events in a hundred are delivered by the poller: half of them
	// are delayed, and of the others the first delivery fails. Defaults to 4.
	Cold int
	// Retention is how long delivered rows are kept: in a run by time until they are purged, in a
	// run by events from the end of their partition's time to the drop. Defaults to a twelfth of
	// Time, or to Partition.
	Retention time.Duration
	// History is how many delivered rows the table has when the run begins. These rows are not
	// purged. Defaults to 0.
	History int
	// Every is the time between two samples. Defaults to a hundredth of Time, and to 500 ms
	// if that is longer; in a run by events to 10 s.
	Every time.Duration
	// Settings are storage parameters for the table on PostgreSQL, such as "fillfactor = 50". Empty
	// leaves the parameters of the schema.
	Settings string

	// Pending is how many events are always pending in a run by events. Defaults to 1,000,000.
	Pending int
	// Partition is the time of a partition in a run by events. Defaults to 150 s: a day of 24
	// partitions takes an hour.
	Partition time.Duration
	// Dead makes a dead letter of each event in so many events that COPY writes. Defaults to 10,000.
	Dead int
}

func (o Options) withDefaults() Options {
	orDefault(&o.Database, testdb.Postgres)
	if o.Events > 0 {
		orDefault(&o.Pending, 1_000_000)
		orDefault(&o.Partition, 150*time.Second)
		orDefault(&o.Dead, 10_000)
		orDefault(&o.Retention, o.Partition)
		orDefault(&o.Every, 10*time.Second)
	} else {
		orDefault(&o.Time, 2*time.Minute)
		orDefault(&o.Held, o.Time/6)
		orDefault(&o.Retention, o.Time/12)
		orDefault(&o.Every, max(o.Time/100, 500*time.Millisecond))
	}
	orDefault(&o.Nodes, 2)
	orDefault(&o.Rate, 500)
	orDefault(&o.Cold, 4)
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
	switch {
	case o.Events > 0 && (o.Time != 0 || o.Held != 0):
		return errors.New("a run by events takes no Time, and holds no transaction open")
	case o.Events > 0 && o.Database != testdb.Postgres:
		return fmt.Errorf("a run by events needs COPY and partitions of postgres, and cannot use %s", o.Database)
	case o.Events == 0 && (o.Pending != 0 || o.Partition != 0 || o.Dead != 0):
		return errors.New("the options Pending, Partition and Dead need Events")
	case o.Held > o.Time*2/3:
		return fmt.Errorf("the transaction cannot be held for %v: two thirds of the time, %v, are the most", o.Held, o.Time)
	case min(o.Rate, o.Nodes, o.History, o.Events, o.Pending, o.Dead) < 0 || min(o.Every, o.Held, o.Retention, o.Partition) < 0:
		return errors.New("a negative number is no option of a run")
	}
	return nil
}

// patience is how long a run waits for a next delivery after all events were written, or before that
// for room for a next COPY.
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
	r := &run{options: o, db: db, events: newLedger(o.Events), meters: &meters{}}
	ctx, r.fail = context.WithCancelCause(ctx)
	defer func() {
		r.fail(nil)
		err = errors.Join(err, r.close())
	}()
	return r.do(ctx, tell)
}

// run is a run that goes on.
type run struct {
	options  Options
	db       *database
	events   *ledger
	meters   *meters
	nodes    []*node
	operator *operator      // of a run by events
	copying  sync.WaitGroup // has the background writers
	working  sync.WaitGroup // has the operator
	fail     context.CancelCauseFunc
}

// close waits for what the run began, whose context has ended.
func (r *run) close() (err error) {
	r.copying.Wait()
	r.working.Wait()
	for _, n := range r.nodes {
		n.writers.Wait()
		err = errors.Join(err, n.close())
	}
	return err
}

func (r *run) do(ctx context.Context, tell func(Sample)) (result Result, err error) {
	o := r.options
	for range o.Nodes {
		n, err := start(ctx, o, r.db, r.events, r.meters)
		if err != nil {
			return result, err
		}
		r.nodes = append(r.nodes, n)
	}
	s := sampler{db: r.db, events: r.events, meters: r.meters, tell: tell}
	writing, finish := context.WithCancel(ctx)
	defer finish()
	working, stop := context.WithCancel(ctx)
	defer stop()
	if o.Events > 0 {
		if err := r.begin(working, writing); err != nil {
			return result, err
		}
	}
	if err := s.begin(ctx); err != nil {
		return result, err
	}
	for _, n := range r.nodes {
		n.write(writing, o)
	}
	if err := r.watch(ctx, &s, finish); err != nil {
		return result, err
	}
	result = Result{Options: o, Server: r.db.server, Samples: s.samples, Took: time.Since(s.began).Round(time.Millisecond)}
	stop()
	if err := r.end(ctx, &result); err != nil {
		return result, err
	}
	sum := r.events.sum()
	result.Written, result.Delivered, result.Repeated = sum.written, sum.delivered, sum.repeated
	result.Problems = append(r.events.problems(), r.db.problems(ctx)...)
	result.Problems = append(result.Problems, result.unrecovered()...)
	return result, nil
}

// begin begins the parts that only a run by events has.
func (r *run) begin(working, writing context.Context) error {
	o := r.options
	r.operator = &operator{db: r.db, dead: r.nodes[0].ob.DeadLetters(), every: o.Partition, keep: o.Retention, drops: &r.meters.drops}
	if err := r.operator.add(working); err != nil {
		return fmt.Errorf("adding a partition: %w", err)
	}
	for range o.Nodes { // a single writer is slower than the nodes
		conn, err := r.db.Conn(working)
		if err != nil {
			return err
		}
		r.copying.Go(func() {
			defer func() { _ = conn.Close() }()
			c := copier{conn: conn, events: r.events, pending: o.Pending}
			if err := c.run(writing); err != nil {
				r.fail(err)
			}
		})
	}
	r.working.Go(func() {
		if err := r.operator.run(working, writing); err != nil {
			r.fail(err)
		}
	})
	return nil
}

// watch takes samples until the run ends, and returns when all events are delivered.
func (r *run) watch(ctx context.Context, s *sampler, finish func()) error {
	if r.options.Events == 0 {
		if err := s.watch(ctx, r.options, nil); err != nil {
			return err
		}
		finish()
		return r.settle(ctx, finish)
	}
	settled := make(chan struct{})
	var unsettled error
	go func() {
		defer close(settled)
		unsettled = r.settle(ctx, finish)
	}()
	if err := s.watch(ctx, r.options, settled); err != nil {
		r.fail(err)
	}
	<-settled
	return unsettled
}

// settle waits until the writers end and all events are delivered.
func (r *run) settle(ctx context.Context, finish func()) error {
	r.copying.Wait()
	for _, n := range r.nodes {
		n.writers.Wait()
	}
	finish()
	return r.events.settle(ctx, patience)
}

// end ends the operator's work, and drops the partitions whose time is over.
func (r *run) end(ctx context.Context, result *Result) error {
	r.working.Wait()
	if r.operator == nil {
		return nil
	}
	err := r.operator.step(ctx, 0)
	result.Drops = r.meters.drops.take()
	return err
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
