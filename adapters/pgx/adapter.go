package outboxpgx

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxkit/outbox-go/outbox"
)

// Adapter writes events in transactions of a single followed pool. It is safe for concurrent use.
type Adapter struct {
	pool           *pgxpool.Pool
	tap            *tap
	db             *sql.DB // the writer's source
	writer         *outbox.Writer
	allowUnmanaged bool
}

var _ outbox.Transactor = (*Adapter)(nil)

// Option changes an adapter.
type Option func(*Adapter)

// AllowUnmanaged lets [Adapter.Write] write in a transaction of a connection that is not followed,
// such as a connection of a pool that other code opens on the same database. The adapter does not
// see this transaction commit, so the poller delivers the events, a little later, and the
// AfterCommit and AfterRollback hooks do not run for them. The pool given to [New] has to be
// followed all the same. Without the option such a write fails with
// [outbox.ErrUnmanagedTransaction].
func AllowUnmanaged() Option { return func(a *Adapter) { a.allowUnmanaged = true } }

// New makes the adapter of a followed pool, from [Open] or with a configuration given to [Follow],
// and of the writer for [DB] of that pool. New fails with a [*outbox.FieldError] when pool or
// writer is nil, the pool is not followed, or the writer is for another pool. If another library's
// tracer is around the tracer of [Follow], New asks a connection of the pool, for five seconds at
// most.
func New(pool *pgxpool.Pool, writer *outbox.Writer, opts ...Option) (*Adapter, error) {
	a := &Adapter{pool: pool, writer: writer}
	for _, opt := range opts {
		opt(a)
	}
	var problems []error
	if pool == nil {
		problems = append(problems, errPool("is nil"))
	} else if problem := a.follow(pool); problem != "" {
		if a.allowUnmanaged {
			problem += "; AllowUnmanaged is for transactions of other pools: New needs a followed pool with it too"
		}
		problems = append(problems, errPool(problem))
	}
	if writer == nil {
		problems = append(problems, &outbox.FieldError{Field: "outboxpgx.New writer", Problem: "is nil"})
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	a.db = DB(pool)
	if writer.Source() != any(a.db) {
		return nil, &outbox.FieldError{
			Field:   "outboxpgx.New writer",
			Problem: fmt.Sprintf("writes through another pool (%T) than pool; give outbox.Config.DB what outboxpgx.DB(pool) returns", writer.Source()),
		}
	}
	return a, nil
}

// follow finds the tap of the pool, or says why there is no tap. If another library's tracer is
// around the tap, follow asks on a connection of the pool.
func (a *Adapter) follow(pool *pgxpool.Pool) (problem string) {
	var visible bool
	switch a.tap, visible = tapOf(pool.Config().ConnConfig); {
	case a.tap == nil:
		return "is not followed, so its commits would not be seen; " +
			"open the pool with outboxpgx.Open instead of pgxpool.New, or call outboxpgx.Follow(config.ConnConfig) before pgxpool.NewWithConfig, after setting a tracer of your own"
	case !visible && !reached(pool):
		return fmt.Sprintf("has a tracer (%T) in front of the outbox's that does not pass on the calls of pgx.QueryTracer and pgx.BatchTracer, "+
			"so its commits would not be seen; call outboxpgx.Follow after setting it", pool.Config().ConnConfig.Tracer)
	}
	return ""
}

func errPool(problem string) error {
	return &outbox.FieldError{Field: "outboxpgx.New pool", Problem: problem}
}
