package outboxgorm

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// Adapter writes events in GORM's transactions on one pool. It is safe for
// concurrent use.
type Adapter struct {
	db             *gorm.DB
	writer         *outbox.Writer
	source         any
	allowUnmanaged bool
}

var _ outbox.Transactor = (*Adapter)(nil)

// Option changes an adapter: [AllowUnmanaged] and [WithLogger] are ones.
type Option interface{ applyToAdapter(*Adapter) }

type option func(*Adapter)

func (o option) applyToAdapter(a *Adapter) { o(a) }

// AllowUnmanaged lets [Adapter.Write] write in a transaction that the plugin did
// not see begin. The adapter cannot tell when it commits, so the poller delivers
// the events, a little later. Without the option such a write is
// [outbox.ErrUnmanagedTransaction].
func AllowUnmanaged() Option { return option(func(a *Adapter) { a.allowUnmanaged = true }) }

// LoggerOption is what [WithLogger] returns.
type LoggerOption struct{ log *slog.Logger }

// WithLogger is the logger that is told of callbacks that panic. It goes to
// [Plugin], or to [New], which hands it to the plugin. Defaults to
// slog.Default().
func WithLogger(log *slog.Logger) LoggerOption { return LoggerOption{log} }

func (o LoggerOption) applyToPlugin(p *plugin) { p.log.Store(o.log) }

func (o LoggerOption) applyToAdapter(a *Adapter) {
	if p, ok := pluginOf(a.db); ok {
		o.applyToPlugin(p)
	}
}

// New makes the adapter of a handle that has the [Plugin], and of the writer for
// its pool; a writer for another pool is [outbox.ErrForeignTransaction]. With
// dbresolver the pool is the main one, or the source that the handle is bound
// to, as db.Clauses(dbresolver.Use("orders")) is.
func New(db *gorm.DB, writer *outbox.Writer, opts ...Option) (*Adapter, error) {
	p, err := managedPool(db)
	if writer == nil {
		err = errors.Join(err, &outbox.FieldError{Field: "outboxgorm.New writer", Problem: "is nil"})
	}
	if err != nil {
		return nil, err
	}
	if writer.Source() != p.source {
		return nil, fmt.Errorf("%w: outboxgorm.New was given a writer for another pool (%T) than its db's (%T)",
			outbox.ErrForeignTransaction, writer.Source(), p.source)
	}
	// A session of our own, with a statement of its own: what the caller goes on
	// to do with the handle is not ours.
	db = db.Session(&gorm.Session{NewDB: true, Context: context.Background()})
	a := &Adapter{db: db, writer: writer, source: p.source}
	for _, opt := range opts {
		opt.applyToAdapter(a)
	}
	return a, nil
}

// managedPool is the pool of a handle that New can work with.
func managedPool(db *gorm.DB) (*pool, error) {
	problem := func(text string) error { return &outbox.FieldError{Field: "outboxgorm.New db", Problem: text} }
	switch {
	case db == nil:
		return nil, problem("is nil")
	case db.Config == nil || db.Statement == nil:
		return nil, problem("was not made by gorm.Open")
	}
	if _, ok := pluginOf(db); !ok {
		return nil, problem("lacks the plugin; call db.Use(outboxgorm.Plugin()) first")
	}
	if p := poolOf(db.Statement.ConnPool); p != nil {
		return p, nil
	}
	if _, ok := db.Statement.ConnPool.(gorm.TxCommitter); ok {
		return nil, problem("is a transaction; give the *gorm.DB that transactions are begun on")
	}
	return nil, problem(fmt.Sprintf("goes around the plugin (its pool is a %T): it was made before "+
		"db.Use(outboxgorm.Plugin()), or another plugin has replaced the pool since", db.Statement.ConnPool))
}

// Begin implements [outbox.Transactor]: a transaction, or a savepoint when ctx
// carries an open transaction of the same pool, and a context that carries it.
// [TxFrom] finds its *gorm.DB there. opts are for a transaction and may be nil.
func (a *Adapter) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	if outer, ok := txscope.LevelFrom[level](ctx, a.source); ok {
		inner, err := outer.nest(ctx)
		if err != nil {
			return nil, nil, err
		}
		return txscope.ContextWithLevel(ctx, level{inner, outer.db}), inner, nil
	}
	db := a.db.Session(&gorm.Session{NewDB: true, Context: ctx}).Begin(opts)
	if db.Error != nil {
		return nil, nil, db.Error
	}
	t := txOf(db.Statement.ConnPool)
	if t == nil {
		_ = db.Rollback()
		return nil, nil, fmt.Errorf("%w: it is a %T", outbox.ErrUnmanagedTransaction, db.Statement.ConnPool)
	}
	begun := &transaction{tx: t, ctx: ctx}
	return txscope.ContextWithLevel(ctx, level{begun, db}), begun, nil
}
