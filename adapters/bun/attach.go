package outboxbun

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// Attach returns db with the query hook that follows its transactions; db itself
// stays as it is. Transactions are to be begun on what it returns, or on what is
// derived from that with bun's With methods. Attaching twice is harmless.
func Attach(db *bun.DB, opts ...AttachOption) *bun.DB {
	if db == nil {
		return nil // New says what is wrong
	}
	if hookOf(db) != nil {
		return db
	}
	h := &hook{source: outbox.PoolOf(db.DB), dialect: dialectOf(db)}
	h.probe = txscope.NeedsProbe(db.DB, h.dialect)
	for _, opt := range opts {
		opt(h)
	}
	return db.WithQueryHook(h)
}

// AttachOption changes what [Attach] installs.
type AttachOption func(*hook)

// WithLogger is the logger that is told of callbacks that panic. Defaults to
// slog.Default().
func WithLogger(log *slog.Logger) AttachOption { return func(h *hook) { h.log = log } }

// hook follows the transactions of one pool.
type hook struct {
	source  any
	dialect string
	probe   bool
	log     *slog.Logger

	// What ran in some transaction with a context that does not say in which:
	// rollbacks to savepoints, and errors with which the database may have ended
	// it.
	strayRollbacks atomic.Uint64
	strayErrors    atomic.Uint64
}

var _ bun.QueryHook = (*hook)(nil)

func dialectOf(db *bun.DB) string {
	switch db.Dialect().Name() {
	case dialect.PG:
		return txscope.Postgres
	case dialect.MySQL:
		return txscope.MySQL
	case dialect.SQLite:
		return txscope.SQLite
	default:
		return ""
	}
}

// question is an argument of a statement that is never sent: the hook answers
// it.
type question struct {
	hook    *hook
	session *session
}

// whoseText is what other hooks see of such a statement.
const whoseText = "/* outbox: which transaction is this? Not sent to the database. ? */"

// hookOf is the hook of a db, or nil.
func hookOf(db *bun.DB) *hook {
	// With a context that has ended, database/sql sends nothing.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var q question
	_, _ = db.ExecContext(ctx, whoseText, &q)
	return q.hook
}

// ask has the hook find the session of a transaction through the context that
// bun keeps in it: the copy has that context, and no connection.
func ask(tx bun.Tx) (s *session) {
	// A bun.Tx that was put together by hand has no db.
	defer func() { _ = recover() }()
	var q question
	tx.Tx = doneTx()
	_, _ = tx.Exec(whoseText, &q)
	return q.session
}

// doneTx is a transaction that has ended, of no database.
var doneTx = sync.OnceValue(func() *sql.Tx {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		panic("outbox: beginning a transaction that does nothing: " + err.Error())
	}
	_ = tx.Rollback()
	return tx
})
