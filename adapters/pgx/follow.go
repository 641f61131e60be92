package outboxpgx

import (
	"context"
	"database/sql"

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

// Follow makes the connections of a configuration followed. Call it before the
// pool or the connection is made, and after setting a tracer of your own, which
// keeps seeing all that it sees today:
//
//	config.ConnConfig.Tracer = otelpgx.NewTracer()
//	outboxpgx.Follow(config.ConnConfig)
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//
// A second call for the same configuration does nothing.
func Follow(config *pgx.ConnConfig) {
	if tapOf(config.Tracer) != nil {
		return
	}
	t := &tap{dbs: make(map[*pgxpool.Pool]*sql.DB)}
	if config.Tracer == nil {
		config.Tracer = t
	} else {
		config.Tracer = multitracer.New(t, config.Tracer)
	}
}

// tapOf finds the tap in a configuration's tracer.
func tapOf(tracer pgx.QueryTracer) *tap {
	switch tracer := tracer.(type) {
	case *tap:
		return tracer
	case *multitracer.Tracer:
		for _, inner := range tracer.QueryTracers {
			if t := tapOf(inner); t != nil {
				return t
			}
		}
	}
	return nil
}

// DB is the pool for [outbox.Config]'s DB: the outbox's own statements run on the
// pool's connections. It returns the same *sql.DB each time, and keeps no
// connection while it is idle. Its Close ends a goroutine and leaves the pool open;
// call it before the pool's.
//
// It is a followed pool of package sqltx, so that code on database/sql can write to
// the same outbox, with an adapter from [sqltx.New].
func DB(pool *pgxpool.Pool) *sql.DB {
	if pool == nil {
		return nil
	}
	t := tapOf(pool.Config().ConnConfig.Tracer)
	if t == nil {
		return openDB(pool) // New says what is missing
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
