package faultrun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// node is a process of a run.
type node struct {
	Spec
	log     *checker.Log
	pools   pools
	box     *inbox.Inbox
	ob      *outbox.Outbox
	adapter *sqltx.Adapter
	// database is the database of the connections, on MySQL.
	database string
	crash    *crasher // nil without Spec.Crash
	// orders handles requests; nil without Spec.Requests.
	orders http.Handler
	// offset is how far the process's clock is from the system's.
	offset atomic.Int64
	// stubborn and hung count the deliveries whose listener was stubborn or hung.
	stubborn, hung atomic.Int64
	reminders      reminders
}

// The lines that a process prints.
const (
	Ready   = "ready"    // the outbox has started
	Written = "written"  // the writers have made their transactions
	Serving = "serving " // the process serves requests at the address that follows
)

// Main is the program of a process: a process writes and delivers until SIGTERM, then closes the
// outbox and ends. The process ends at once when the standard input does, so that no process
// outlives the run.
func Main() {
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer end()
	writing, finish := context.WithCancel(ctx)
	defer finish()
	spec := specOfProcess()
	if spec.CreatesTables {
		check(CreateTables(ctx, open(spec, nil).db, spec))
		return
	}
	log := must(checker.Create(spec.Dir, spec.Process))
	crash := newCrasher(spec, log)
	n := &node{Spec: spec, log: log, pools: open(spec, crash), crash: crash}
	go n.obey(finish)
	if !n.build(ctx) || n.Drains == 0 && !again(ctx, func() error { return n.ob.Start(ctx) }) {
		return // terminated before it has started
	}
	n.log.Add(checker.Record{Op: checker.OpStarted})
	shutDown := n.serve()
	fmt.Println(Ready)
	if n.Replay {
		go n.replay(ctx)
	}
	var writers, drains sync.WaitGroup
	if n.Drains > 0 {
		drains.Go(func() { n.drain(ctx) })
	}
	for i, adapter := range n.Writers {
		writers.Go(func() { n.write(writing, fmt.Sprintf("%s-%d", n.Process, i), n.via(adapter)) })
	}
	for range n.Guests {
		go n.visit(ctx)
	}
	n.script(ctx)
	writers.Wait()
	fmt.Println(Written)
	<-ctx.Done()
	shutDown()
	drains.Wait()
	closed := checker.Record{Op: checker.OpClosed}
	if err := n.ob.Close(context.Background()); err != nil {
		closed.Error = err.Error()
	}
	n.log.Add(closed)
}

// drain drains again and again, until ctx ends.
func (n *node) drain(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		n.log.Add(checker.Record{Op: checker.OpDraining})
		got, err := n.ob.Drain(ctx, n.Drains)
		r := checker.Record{Op: checker.OpDrained, Drained: &checker.Drained{Most: n.Drains, Done: got.Done, Failed: got.Failed}}
		if err != nil {
			r.Error = err.Error()
		}
		n.log.Add(r)
		pause(ctx, time.Duration(20+n.chance("drain", n.Process, i))*time.Millisecond)
	}
}

// build makes the outbox. build reports false when ctx ends first.
func (n *node) build(ctx context.Context) bool {
	var store *sqlstore.Store
	found := again(ctx, func() (err error) {
		if store, err = detect(ctx, n.pools.db, n.Spec); err != nil || dialect(n.Driver) != inbox.MySQL {
			return err
		}
		return n.pools.db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&n.database)
	})
	if !found {
		return false
	}
	n.box = newInbox(n.Driver)
	cfg := outbox.Config{
		DB: n.pools.db, Store: &ownIDs{Store: store, n: n}, Mode: n.mode(), Purge: n.purge(), Notifier: n.notifier(),
		RetryPolicy: outbox.ExponentialBackoff(5*time.Millisecond, 50*time.Millisecond),
		Clock:       outbox.ClockFunc(n.clock),
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	n.crash.configure(&cfg)
	n.ob = must(outbox.New(cfg))
	n.adapter = must(sqltx.New(n.pools.db, n.ob.Writer()))
	check(n.ob.Register(n.listeners()...))
	n.orders = n.handler()
	return true
}

// clock is the clock of the process.
func (n *node) clock() time.Time { return time.Now().Add(time.Duration(n.offset.Load())) }

// again calls fn until fn succeeds: the database may be away. again reports false when ctx ends
// first.
func again(ctx context.Context, fn func() error) bool {
	for {
		err := fn()
		if err == nil {
			return true
		}
		slog.Error("the process cannot start yet", "error", err)
		if errors.Is(err, outbox.ErrClosed) {
			panic(err)
		}
		if !pause(ctx, 200*time.Millisecond) {
			return false
		}
	}
}

// pause waits. pause reports false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func detect(ctx context.Context, db *sql.DB, spec Spec) (*sqlstore.Store, error) {
	var options []sqlstore.Option
	if spec.Mode == "by-key" {
		options = append(options, sqlstore.WithKeyIndex())
	}
	if spec.Unique > 0 || spec.Latest > 0 {
		options = append(options, sqlstore.WithUniqueIndex())
	}
	if spec.TakeBack > 0 {
		options = append(options, sqlstore.WithSearchIndex())
	}
	if spec.Tenants {
		options = append(options, sqlstore.WithTenantIndex())
	}
	return sqlstore.Detect(ctx, db, options...)
}
