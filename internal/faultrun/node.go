package faultrun

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/internal/checker"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// node is a process of a run.
type node struct {
	Spec
	log     *checker.Log
	db      *sql.DB
	box     *inbox.Inbox
	ob      *outbox.Outbox
	adapter *sqltx.Adapter
}

// What a process prints, a line each.
const (
	Ready   = "ready"   // its outbox has started
	Written = "written" // its writers have made their transactions
)

// Main is the program of a process: it writes and delivers until SIGTERM, then closes its
// outbox and ends.
func Main() {
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer end()
	n := newNode(specOfProcess())
	check(n.ob.Start(ctx))
	n.log.Add(checker.Record{Op: checker.OpStarted})
	fmt.Println(Ready)
	var writers sync.WaitGroup
	for i, adapter := range n.Writers {
		writers.Go(func() { n.write(ctx, fmt.Sprintf("%s-%d", n.Process, i), n.via(adapter)) })
	}
	writers.Wait()
	fmt.Println(Written)
	<-ctx.Done()
	closed := checker.Record{Op: checker.OpClosed}
	if err := n.ob.Close(context.Background()); err != nil {
		closed.Error = err.Error()
	}
	n.log.Add(closed)
}

func newNode(spec Spec) *node {
	n := &node{Spec: spec, log: must(checker.Create(spec.Dir, spec.Process))}
	n.db = must(sqltx.Open(spec.Driver, spec.DSN))
	n.db.SetMaxOpenConns(16)
	n.box = newInbox(spec.Driver)
	store := newStore(n.db, spec)
	n.ob = must(outbox.New(outbox.Config{
		DB: n.db, Store: store, Mode: n.mode(), Purge: n.purge(),
		RetryPolicy: outbox.ExponentialBackoff(5*time.Millisecond, 50*time.Millisecond),
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))
	n.adapter = must(sqltx.New(n.db, n.ob.Writer()))
	check(n.ob.Register(n.listeners()...))
	return n
}

func newStore(db *sql.DB, spec Spec) *sqlstore.Store {
	var options []sqlstore.Option
	if spec.Mode == "by-key" {
		options = append(options, sqlstore.WithKeyIndex())
	}
	return must(sqlstore.Detect(context.Background(), db, options...))
}

func (s Spec) purge() *outbox.PurgeOptions {
	if !s.DeleteDone {
		return nil
	}
	return &outbox.PurgeOptions{OnDone: outbox.Delete}
}

func (s Spec) mode() outbox.Mode {
	poll := outbox.PollOptions{Interval: s.Interval}
	claim := outbox.ClaimOptions{LockTimeout: s.Lease}
	dispatch := outbox.DispatchOptions{Workers: s.Workers, MaxAttempts: s.MaxAttempts, MarkInterval: s.Mark}
	switch s.Mode {
	case "single":
		return outbox.SingleNode{Dispatch: dispatch, Poll: poll}
	case "multi":
		return outbox.MultiNode{Dispatch: dispatch, Poll: poll, Claim: claim}
	case "ordered":
		return outbox.Ordered{Poll: poll}
	case "by-key":
		return outbox.OrderedByKey{Dispatch: dispatch, Poll: poll, Claim: claim, RunLength: s.RunLength}
	case "writer-only":
		return outbox.WriterOnly{}
	default:
		panic(fmt.Sprintf("faultrun: there is no mode %q", s.Mode))
	}
}
