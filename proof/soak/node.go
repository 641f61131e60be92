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
	writers sync.WaitGroup
}

func start(ctx context.Context, o Options, db *database, events *ledger, m *meters) (*node, error) {
	n := &node{events: events, meters: m, cold: o.Cold}
	var err error
	if n.pool, err = sqltx.Open(db.driver, db.dsn); err != nil {
		return nil, err
	}
	n.pool.SetMaxOpenConns(2 * writersOfNode)
	n.ob, err = outbox.New(outbox.Config{
		DB: n.pool, Store: timedStore{db.store, &m.claims}, Mode: outbox.MultiNode{},
		Purge:  &outbox.PurgeOptions{Retention: o.Retention, Interval: max(o.Retention/10, time.Second)},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err == nil {
		err = n.ob.Register(outbox.On(outbox.Global, topic, outbox.ListenerFunc(n.listen)))
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

func (n *node) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(n.ob.Close(ctx), n.pool.Close())
}

// write writes events at the node's share of the rate until ctx ends.
func (n *node) write(ctx context.Context, o Options) {
	for range writersOfNode {
		n.writers.Go(func() {
			ticks := time.NewTicker(time.Second * time.Duration(o.Nodes*writersOfNode) / time.Duration(o.Rate))
			defer ticks.Stop()
			for {
				select {
				case <-ticks.C:
					number := n.events.next()
					n.events.wrote(number, n.transact(context.WithoutCancel(ctx), number))
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
	due := env.AvailableAt
	if due.Before(env.OccurredAt) {
		due = env.OccurredAt
	}
	if n.isDelayed(number) || env.Attempts > 0 {
		n.meters.cold.add(time.Since(due))
	} else {
		n.meters.hot.add(time.Since(due))
	}
	if n.fails(number) && env.Attempts == 0 {
		return errFirst
	}
	n.events.done(number)
	return nil
}
