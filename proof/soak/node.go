package soak

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// writersOfNode is how many transactions a node has open at a time, at most.
const writersOfNode = 4

const topic = outbox.EventType("Soaked")

// node is an outbox in MultiNode, with a separate pool and separate writers.
type node struct {
	pool    *sql.DB
	ob      *outbox.Outbox
	adapter *sqltx.Adapter
	events  *ledger
	meters  *meters
	cold    int
	dead    int // see Options.Dead
	writers sync.WaitGroup
}

func start(ctx context.Context, o Options, db *database, events *ledger, m *meters) (*node, error) {
	n := &node{events: events, meters: m, cold: o.Cold, dead: o.Dead}
	var err error
	if n.pool, err = sqltx.Open(db.driver, db.dsn); err != nil {
		return nil, err
	}
	n.pool.SetMaxOpenConns(2 * writersOfNode)
	purge := &outbox.PurgeOptions{Retention: o.Retention, Interval: max(o.Retention/10, time.Second)}
	if o.Partition > 0 {
		purge = nil // partitions are dropped
	}
	n.ob, err = outbox.New(outbox.Config{
		DB: n.pool, Store: timedStore{db.store, &m.claims}, Mode: outbox.MultiNode{}, Purge: purge,
		Logger: slog.New(quiet{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})}),
	})
	if err == nil {
		err = n.ob.Register(outbox.On(outbox.Global, topic, outbox.ListenerFunc(n.listen)), outbox.On(outbox.Global, filled, outbox.ListenerFunc(n.listenFilled)))
	}
	if err == nil {
		n.adapter, err = sqltx.New(n.pool, n.ob.Writer())
	}
	if err == nil {
		err = n.ob.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, n.pool.Close())
	}
	return n, nil
}

// quiet leaves out the lines about events that the listener made dead letters.
type quiet struct{ slog.Handler }

func (h quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "outbox: event is dead" {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (n *node) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(n.ob.Close(ctx), n.pool.Close())
}

// write writes events at the node's share of the rate until ctx ends, or until there are enough
// events.
func (n *node) write(ctx context.Context, o Options) {
	for range writersOfNode {
		n.writers.Go(func() {
			ticks := time.NewTicker(time.Second * time.Duration(o.Nodes*writersOfNode) / time.Duration(o.Rate))
			defer ticks.Stop()
			for {
				select {
				case <-ticks.C:
					number, got := n.events.take(1)
					if got == 0 {
						return
					}
					n.events.wrote(number, 1, n.transact(context.WithoutCancel(ctx), number))
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

var payload = outbox.JSON(map[string]string{"text": strings.Repeat("x", 180)})

// transact writes an event in a separate transaction.
func (n *node) transact(ctx context.Context, number int) error {
	env := outbox.Envelope{EventType: topic, AggregateID: strconv.Itoa(number), Payload: payload}
	if n.isDelayed(number) {
		env.DeliverAfter = time.Second
	}
	return n.adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := n.adapter.Write(ctx, tx, env)
		return err
	})
}

// isDelayed and fails choose the events of the cold path.
func (n *node) isDelayed(number int) bool { return number%200 < n.cold }

func (n *node) fails(number int) bool { return number%200 >= 200-n.cold }

var errFirst = errors.New("the first delivery fails")

func (n *node) listen(_ context.Context, env outbox.Envelope) error {
	number, err := strconv.Atoi(env.AggregateID)
	if err != nil {
		return outbox.Dead(err)
	}
	if n.isDelayed(number) || env.Attempts > 0 {
		n.meters.cold.add(sinceDue(env))
	} else {
		n.meters.hot.add(sinceDue(env))
	}
	if n.fails(number) && env.Attempts == 0 {
		return errFirst
	}
	n.events.done(number)
	return nil
}

// Events of the background writer: one of failedOf fails once, and the times of one of meteredOf are
// measured.
const (
	failedOf  = 100
	meteredOf = 50
)

var errDead = errors.New("the listener gives up until the event is replayed")

// listenFilled is the listener of the events of the background writer.
func (n *node) listenFilled(_ context.Context, env outbox.Envelope) error {
	number, err := strconv.Atoi(env.AggregateID)
	if err != nil {
		return outbox.Dead(err)
	}
	switch {
	case env.Attempts > 0:
		n.meters.cold.add(sinceDue(env))
	case number%meteredOf == 0:
		n.meters.backlog.add(sinceDue(env))
	}
	switch {
	case number%failedOf == 0 && env.Attempts == 0:
		return errFirst
	case number%n.dead == 1 && n.events.gaveUp(number):
		return outbox.Dead(errDead)
	}
	n.events.done(number)
	return nil
}

// sinceDue is the time since an event became due.
func sinceDue(env outbox.Envelope) time.Duration {
	due := env.AvailableAt
	if due.Before(env.OccurredAt) {
		due = env.OccurredAt
	}
	return time.Since(due)
}
