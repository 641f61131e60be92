package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The event of this library's contenders.
const (
	aggregateType = "Bench"
	aggregateID   = "b-1"
	eventType     = "Said"
)

func outboxContenders() []contender {
	single := outboxKind{mode: outbox.SingleNode{}, write: viaSQLTx}
	multi := outboxKind{mode: outbox.MultiNode{}, write: viaSQLTx}
	notified := outboxKind{mode: outbox.MultiNode{}, write: viaSQLTx, notify: true}
	deleting := outboxKind{mode: outbox.SingleNode{}, write: viaSQLTx, purge: &outbox.PurgeOptions{OnDone: outbox.Delete}}
	return []contender{
		{
			name: "outbox", on: everywhere, open: single.open,
			works: []string{"write", "many", "done", "drain/100k", "drain/500k", "drain/held snapshot", "drain/500k, held snapshot", "latency", "burst", "flat", "precision", "memory", "cost"},
		},
		{
			name: "outbox, OnDone: Delete", on: everywhere, open: deleting.open,
			works: []string{"done", "drain/100k", "cost"},
		},
		{
			name: "outbox WriterOnly, notifier", against: "outbox", on: servers, open: notified.open,
			works: []string{"write/1 writer", "write/4 writers", "write/16 writers"},
		},
		{
			name: "outbox MultiNode, notifier", on: everywhere, open: notified.open,
			works: []string{"remote"},
		},
		{
			name: "outbox MultiNode", on: everywhere, open: multi.open,
			works: []string{"done", "drain", "remote", "burst", "flat", "precision", "memory", "cost"},
		},
	}
}

// outboxKind is this library in a single mode, through a single adapter.
type outboxKind struct {
	mode  outbox.Mode
	purge *outbox.PurgeOptions
	// notify: nodes wake each other, on PostgreSQL by LISTEN and NOTIFY, elsewhere through
	// the store.
	notify bool
	// write makes the function that runs a transaction with a row in orders and
	// events.
	write func(db *database, pool *sql.DB, w *outbox.Writer) (outboxWrite, error)
}

type outboxWrite func(ctx context.Context, id string, envs []outbox.Envelope) error

type outboxSystem struct {
	outboxKind
	db    *database
	store *sqlstore.Store
	pool  *sql.DB
	pools pools
	do    outboxWrite
	// notifying only writes and wakes the nodes that deliver; nil: no outbox does.
	notifying *outbox.Outbox
}

func (k outboxKind) open(ctx context.Context, db *database) (system, error) {
	pool, err := db.openVia(sqltx.OpenDB)
	if err != nil {
		return nil, err
	}
	return k.openOn(ctx, db, pool)
}

func (k outboxKind) openOn(ctx context.Context, db *database, pool *sql.DB) (*outboxSystem, error) {
	s := &outboxSystem{outboxKind: k, db: db, pool: pool, pools: pools{pool}}
	var err error
	s.store, err = sqlstore.Detect(ctx, pool)
	if err != nil {
		return nil, err
	}
	if err := s.store.CreateSchema(ctx, pool); err != nil {
		return nil, err
	}
	ob, err := s.join(pool, outbox.WriterOnly{}, nil) // until Deliver
	if err == nil && k.notify {
		s.notifying = ob
		err = ob.Start(ctx)
	}
	return s, err
}

// join makes an outbox on the pool whose writer is used from now on.
func (s *outboxSystem) join(pool *sql.DB, mode outbox.Mode, purge *outbox.PurgeOptions) (*outbox.Outbox, error) {
	ob, err := s.make(pool, mode, purge)
	if err != nil {
		return nil, err
	}
	s.do, err = s.write(s.db, pool, ob.Writer())
	return ob, err
}

func (s *outboxSystem) make(pool *sql.DB, mode outbox.Mode, purge *outbox.PurgeOptions) (*outbox.Outbox, error) {
	cfg := outbox.Config{
		DB: pool, Store: s.store, Mode: mode, Purge: purge, Logger: slog.New(slog.DiscardHandler),
		RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return retryDelay }),
	}
	if s.notify && s.db.kind != testdb.Postgres {
		cfg.Notifier = s.store
	} else if s.notify {
		notifier, err := pgnotify.New(pool)
		if err != nil {
			return nil, err
		}
		cfg.Notifier = notifier
	}
	return outbox.New(cfg)
}

func envelope(n int) outbox.Envelope {
	return outbox.Envelope{AggregateType: aggregateType, AggregateID: aggregateID, EventType: eventType, Payload: outbox.RawJSON(payload(n))}
}

func (s *outboxSystem) Write(ctx context.Context, first, n int) error {
	envs := make([]outbox.Envelope, n)
	for i := range envs {
		envs[i] = envelope(first + i)
	}
	return s.do(ctx, strconv.Itoa(first), envs)
}

func (s *outboxSystem) WriteDue(ctx context.Context, first int, due []time.Time) error {
	envs := make([]outbox.Envelope, len(due))
	for i := range envs {
		envs[i] = envelope(first + i)
		envs[i].AvailableAt = due[i]
	}
	return s.do(ctx, strconv.Itoa(first), envs)
}

func (s *outboxSystem) Deliver(ctx context.Context, d delivery) (func() error, error) {
	var ob *outbox.Outbox
	var err error
	if d.apart {
		pool, errOpen := s.db.openVia(sqltx.OpenDB)
		if errOpen != nil {
			return nil, errOpen
		}
		s.pools = append(s.pools, pool)
		ob, err = s.make(pool, s.mode, s.purge)
	} else {
		ob, err = s.join(s.pool, s.mode, s.purge)
	}
	if err != nil {
		return nil, err
	}
	err = ob.Register(outbox.On(aggregateType, eventType, outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		return d.listen(number(env.Payload.String()))
	})))
	if err != nil {
		return nil, err
	}
	return func() error { return stopped(ctx, ob.Close) }, ob.Start(ctx)
}

func (s *outboxSystem) Pending(ctx context.Context) (int, error) {
	return pendingRows(ctx, s.db.kind, s.pool)
}

// pendingRows counts NEW and RETRY rows, without the rows of [futureRows] that become due tomorrow:
// counting these would take longer than the measured work. The time is in the text, because a plan
// for any time reads the whole table.
func pendingRows(ctx context.Context, kind testdb.Kind, pool *sql.DB) (n int, err error) {
	soon := map[testdb.Kind]string{
		testdb.Postgres: "now() + INTERVAL '1 hour'", testdb.MySQL: "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR",
		testdb.SQLite: strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10),
	}[kind]
	err = pool.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2) AND available_at < "+soon).Scan(&n)
	return n, err
}

func (s *outboxSystem) Close() error {
	var err error
	if s.notifying != nil {
		err = s.notifying.Close(context.Background())
	}
	return errors.Join(err, s.pools.close())
}

// insertOrder is the business statement, in database/sql.
func insertOrder(kind testdb.Kind) string {
	if kind == testdb.Postgres {
		return "INSERT INTO orders (id, item) VALUES ($1, $2)"
	}
	return "INSERT INTO orders (id, item) VALUES (?, ?)"
}

func viaSQLTx(db *database, pool *sql.DB, w *outbox.Writer) (outboxWrite, error) {
	a, err := sqltx.New(pool, w)
	insert := insertOrder(db.kind)
	return func(ctx context.Context, id string, envs []outbox.Envelope) error {
		return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insert, id, "tea"); err != nil {
				return err
			}
			_, err := a.WriteAll(ctx, tx, envs)
			return err
		})
	}, err
}
