package main

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// riverContenders are River, only on PostgreSQL: River's other drivers are not in step with the
// latest version. See peers.go for the settings.
func riverContenders() []contender {
	return []contender{{
		name: "River", peer: true, on: []testdb.Kind{testdb.Postgres}, open: openRiver,
		works: []string{
			"write", "many", "done", "drain", "latency", "remote", "burst", "precision", "cost",
		},
	}}
}

type riverSystem struct {
	db     *database
	pool   *pgxpool.Pool
	pools  []*pgxpool.Pool
	client *river.Client[pgx.Tx] // the client that writes
}

func openRiver(ctx context.Context, db *database) (system, error) {
	pool, err := db.pgxPool(ctx)
	if err != nil {
		return nil, err
	}
	s := &riverSystem{db: db, pool: pool, pools: []*pgxpool.Pool{pool}}
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: db.name, Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	config := riverConfig(db.name)
	config.Logger = quiet
	s.client, err = river.NewClient(riverpgxv5.New(pool), config)
	return s, err
}

type riverArgs struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

func (riverArgs) Kind() string { return "said" }

// riverPad makes the arguments as long as the others' payloads.
var riverPad = pad[:payloadBytes-24]

func (s *riverSystem) Write(ctx context.Context, first, n int) error {
	return s.inTx(ctx, first, func(tx pgx.Tx) error {
		if n == 1 {
			_, err := s.client.InsertTx(ctx, tx, riverArgs{first, riverPad}, nil)
			return err
		}
		return s.insertMany(ctx, tx, first, make([]*river.InsertOpts, n))
	})
}

func (s *riverSystem) WriteDue(ctx context.Context, first int, due []time.Time) error {
	return s.inTx(ctx, first, func(tx pgx.Tx) error {
		opts := make([]*river.InsertOpts, len(due))
		for i := range opts {
			opts[i] = &river.InsertOpts{ScheduledAt: due[i]}
		}
		return s.insertMany(ctx, tx, first, opts)
	})
}

func (s *riverSystem) insertMany(ctx context.Context, tx pgx.Tx, first int, opts []*river.InsertOpts) error {
	params := make([]river.InsertManyParams, len(opts))
	for i := range params {
		params[i] = river.InsertManyParams{Args: riverArgs{first + i, riverPad}, InsertOpts: opts[i]}
	}
	if riverInsertManyFast {
		_, err := s.client.InsertManyFastTx(ctx, tx, params)
		return err
	}
	_, err := s.client.InsertManyTx(ctx, tx, params)
	return err
}

func (s *riverSystem) inTx(ctx context.Context, id int, fn func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertOrder(testdb.Postgres), strconv.Itoa(id), "tea"); err != nil {
			return err
		}
		return fn(tx)
	})
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	listen func(n int) error
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	return w.listen(job.Args.N)
}

// NextRetry overrides River's own delays.
func (w *riverWorker) NextRetry(*river.Job[riverArgs]) time.Time { return time.Now().Add(retryDelay) }

func (s *riverSystem) Deliver(ctx context.Context, d delivery) (func() error, error) {
	pool := s.pool
	if d.apart {
		var err error
		if pool, err = s.db.pgxPool(ctx); err != nil {
			return nil, err
		}
		s.pools = append(s.pools, pool)
	}
	config := riverConfig(s.db.name)
	config.Logger = slog.New(slog.DiscardHandler)
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverMaxWorkers}}
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, &riverWorker{listen: d.listen})
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return nil, err
	}
	if !d.apart {
		s.client = client
	}
	return func() error { return stopped(ctx, client.Stop) }, client.Start(context.WithoutCancel(ctx))
}

func (s *riverSystem) Pending(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRow(ctx, "SELECT COUNT(*) FROM river_job WHERE state = ANY($1::river_job_state[])", []string{
		string(rivertype.JobStateAvailable), string(rivertype.JobStateRunning), string(rivertype.JobStateRetryable), string(rivertype.JobStateScheduled),
	}).Scan(&n)
	return n, err
}

func (s *riverSystem) Close() error {
	for _, pool := range s.pools {
		pool.Close()
	}
	return nil
}
