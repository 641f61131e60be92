package outboxpgx

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

// Open is [pgxpool.New] for a followed pool.
func Open(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	Follow(config.ConnConfig)
	return pgxpool.NewWithConfig(ctx, config)
}

// Follow makes the connections of a configuration followed. Call Follow before the pool or the
// connection is made, and after setting your own tracer, which keeps seeing all that it sees today:
//
//	config.ConnConfig.Tracer = otelpgx.NewTracer()
//	outboxpgx.Follow(config.ConnConfig)
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//
// A tracer that is put around the configuration's tracer afterwards, as dd-trace-go does, has to
// pass every call on. A second call for the same configuration does nothing.
func Follow(config *pgx.ConnConfig) {
	t, visible := tapOf(config)
	switch {
	case visible:
		return
	case t == nil:
		t = &tap{dbs: make(map[*pgxpool.Pool]*sql.DB)}
		t.mark(config)
	}
	if config.Tracer == nil {
		config.Tracer = t
	} else {
		config.Tracer = multitracer.New(t, config.Tracer)
	}
}

// tapOf finds the tap of a configuration. The tap is visible among the configuration's tracers,
// unless a tracer of another library is around the tap, or in its place.
func tapOf(config *pgx.ConnConfig) (t *tap, visible bool) {
	if t := tapIn(config.Tracer); t != nil {
		return t, true
	}
	return marked(config), false
}

func tapIn(tracer pgx.QueryTracer) *tap {
	switch tracer := tracer.(type) {
	case *tap:
		return tracer
	case *multitracer.Tracer:
		for _, inner := range tracer.QueryTracers {
			if t := tapIn(inner); t != nil {
				return t
			}
		}
	}
	return nil
}

// tapKey finds the place for the answer in a context that asks for the tap.
type tapKey struct{}

// mark makes the configuration's LookupFunc answer the question for the tap. The configuration has
// no field for marks, and LookupFunc is copied with the configuration.
func (t *tap) mark(config *pgx.ConnConfig) {
	lookup := config.LookupFunc
	if lookup == nil {
		return // pgx refuses a configuration that ParseConfig did not make
	}
	config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		if answer, ok := ctx.Value(tapKey{}).(**tap); ok {
			*answer = t
			return nil, context.Canceled
		}
		return lookup(ctx, host)
	}
}

// marked asks a configuration for the configuration's tap. The context has ended, so that a
// LookupFunc without a mark looks nothing up.
func marked(config *pgx.ConnConfig) (t *tap) {
	if config.LookupFunc == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), tapKey{}, &t))
	cancel()
	_, _ = config.LookupFunc(ctx, "")
	return t
}

// askTime bounds how long New waits for the answer of a pool.
const askTime = 5 * time.Second

// reached asks a connection of the pool whether its statements and batches reach the tap. Without a
// connection the answer is yes: then the first write asks.
func reached(pool *pgxpool.Pool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	acquired, err := pool.Acquire(ctx)
	if err != nil {
		return true
	}
	defer acquired.Release()
	rows, err := acquired.Query(ctx, "SELECT 1")
	if err != nil {
		return true
	}
	c := connOf(acquired.Conn())
	queries := c != nil && c.sql != ""
	rows.Close()
	batch := &pgx.Batch{}
	batch.Queue("SELECT 1")
	results := acquired.SendBatch(ctx, batch)
	batches := c != nil && c.batch != nil
	_ = results.Close()
	return queries && batches
}

// DB returns the pool for [outbox.Config]'s DB: the outbox's own statements run on the pool's
// connections. DB returns the same *sql.DB each time. The *sql.DB keeps no connection while it is
// idle. Close of the *sql.DB ends a goroutine and leaves the pool open; call it before Close of the
// pool.
//
// The *sql.DB is a followed pool of package sqltx, so that code on database/sql can write to the
// same outbox, with an adapter from [sqltx.New].
func DB(pool *pgxpool.Pool) *sql.DB {
	if pool == nil {
		return nil
	}
	t, _ := tapOf(pool.Config().ConnConfig)
	if t == nil {
		return openDB(pool) // New reports that the tap is missing
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	db, ok := t.dbs[pool]
	if !ok {
		db = openDB(pool)
		t.dbs[pool] = db
	}
	return db
}

func openDB(pool *pgxpool.Pool) *sql.DB {
	db := sqltx.OpenDB(stdlib.GetPoolConnector(pool))
	db.SetMaxIdleConns(0) // idle connections belong to the pool
	return db
}
