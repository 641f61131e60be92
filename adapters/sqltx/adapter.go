package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// Beginner begins transactions: a *sql.DB, or a type that embeds a *sql.DB, such as *sqlx.DB.
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Adapter writes events in transactions of a single followed pool. It is safe for concurrent use.
type Adapter struct {
	db             *sql.DB
	connector      *connector
	writer         *outbox.Writer
	allowUnmanaged bool
}

var _ outbox.Transactor = (*Adapter)(nil)

// Option changes an adapter.
type Option func(*Adapter)

// AllowUnmanaged lets [Adapter.Write] write in a *sql.Tx of a pool that is not followed, such as a
// pool that other code opens on the same database. The adapter does not see the *sql.Tx commit, so
// the poller delivers the events, a little later, and the AfterCommit and AfterRollback hooks do
// not run for them. The pool given to [New] has to be followed all the same: use the pool that
// [Watch] returns. Without the option such a write fails with [outbox.ErrUnmanagedTransaction].
func AllowUnmanaged() Option { return func(a *Adapter) { a.allowUnmanaged = true } }

// New makes the adapter of a followed pool, from [Open], [OpenDB], [WrapConnector] or [Watch], and
// of the writer for the pool. New fails with a [*outbox.FieldError] when db or writer is nil, the
// pool is not followed, or the writer is for another pool. If another library's wrapper is around
// the followed connector, or no connector is followed, New asks a connection of the pool, for five
// seconds at most.
func New(db Beginner, writer *outbox.Writer, opts ...Option) (*Adapter, error) {
	a := &Adapter{writer: writer}
	for _, opt := range opts {
		opt(a)
	}
	var problems []error
	switch pool := outbox.PoolOf(db).(type) {
	case nil:
		problems = append(problems, refuse("db", "is nil"))
	case *sql.DB:
		a.db, a.connector = pool, connectorOf(pool)
		if pool != nil && a.connector == nil {
			a.connector = askPool(pool)
		}
		switch {
		case pool == nil:
			problems = append(problems, refuse("db", "is nil"))
		case a.connector == nil:
			problem := "is not followed, so its commits would not be seen; " +
				"open the pool with sqltx.Open instead of sql.Open, or use what sqltx.Watch(pool) returns everywhere"
			if a.allowUnmanaged {
				problem += "; AllowUnmanaged is for transactions of other pools: give New, and outbox.Config.DB, sqltx.Watch(pool) with it too"
			}
			problems = append(problems, refuse("db", problem))
		}
	default:
		problems = append(problems, refuse("db", fmt.Sprintf("is a %T, which embeds no *sql.DB", db)))
	}
	if writer == nil {
		problems = append(problems, refuse("writer", "is nil"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if writer.Source() != a.source() {
		return nil, refuse("writer", fmt.Sprintf("writes through another pool (%T) than db; give outbox.Config.DB the same *sql.DB as the adapter", writer.Source()))
	}
	a.connector.learn(dialectOf(a.connector, writer.Store()))
	return a, nil
}

func refuse(parameter, problem string) error {
	return &outbox.FieldError{Field: "sqltx.New " + parameter, Problem: problem}
}

func (a *Adapter) source() any { return a.db }
