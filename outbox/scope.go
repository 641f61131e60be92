package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// Execer runs a statement, as *sql.Tx, *sql.Conn and *sql.DB do.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// TextQuerier is a transaction that can read without the QueryContext of *sql.Tx.
type TextQuerier interface {
	// QueryTexts runs a query whose rows have a single column, a text, and returns the texts.
	QueryTexts(ctx context.Context, query string, args ...any) ([]string, error)
}

// QueryTexts reads in a transaction for a store, as [Store].InsertOnce has to: the rows of the query
// have a single column, a text. The transaction has the QueryContext of *sql.Tx, or is a [TextQuerier];
// otherwise QueryTexts fails.
func QueryTexts(ctx context.Context, tx Execer, query string, args ...any) (texts []string, err error) {
	if own, ok := tx.(TextQuerier); ok {
		return own.QueryTexts(ctx, query, args...)
	}
	reader, ok := tx.(interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	})
	if !ok {
		return nil, fmt.Errorf("a %T has no QueryContext, so the transaction cannot be asked which event is there", tx)
	}
	rows, err := reader.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, rows.Err()
}

// TxScope is a live transaction as the outbox sees it. Adapters make scopes. A scope is safe for
// concurrent use.
type TxScope interface {
	// Execer runs statements on the transaction's own connection.
	Execer
	// Active reports whether the transaction is still open.
	Active() bool
	// Source is the connection pool that the transaction was begun on: the *sql.DB, also when a
	// framework is used above it. The value is comparable.
	Source() any
	// AtCommit registers fn to run once, within the call that commits, as soon as the transaction
	// is known to have committed. The transaction still holds its connection: fn must neither use
	// the database nor wait. AtCommit fails with [ErrNoTransaction] when the transaction is over.
	AtCommit(fn func()) error
	// AfterCommit registers fn to run once, after the transaction is known to have committed and
	// the connection went back to the pool. AfterCommit fails with [ErrNoTransaction] when the
	// transaction is over.
	AfterCommit(fn func(ctx context.Context)) error
	// AfterRollback registers fn to run once, when the transaction, or the savepoint under which fn
	// was registered, was rolled back. The cause is nil, the error that led to the rollback, or an
	// error for which errors.Is(cause, [ErrOutcomeUnknown]) holds. AfterRollback fails with
	// [ErrNoTransaction] when the transaction is over.
	AfterRollback(fn func(ctx context.Context, cause error)) error
	// Writes is where writers remember the events of the transaction. A scope embeds a [TxWrites],
	// which has this method.
	Writes() *TxWrites
}

// TxWrites are the events that writers have written in an open transaction, so that the transaction
// can take them back. The zero value has no events. TxWrites is safe for concurrent use.
type TxWrites struct {
	mu    sync.Mutex
	first []Envelope
	more  [][]Envelope
	taken map[string]int // by event id: changes of the event in the transaction that wrote it
	ended bool           // the transaction has committed
}

// Writes implements [TxScope].
func (t *TxWrites) Writes() *TxWrites { return t }

// add remembers the events of a write. They do not change until the transaction has ended.
func (t *TxWrites) add(envs []Envelope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = envs
	} else {
		t.more = append(t.more, envs)
	}
}

// idsOf are the ids of the events that are chosen.
func (t *TxWrites) idsOf(chooses func(env *Envelope) bool) (ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(envs []Envelope) {
		for i := range envs {
			if chooses(&envs[i]) {
				ids = append(ids, envs[i].EventID)
			}
		}
	}
	add(t.first)
	for _, envs := range t.more {
		add(envs)
	}
	return ids
}

// take notes, for n of 1, that the transaction changes or cancels events, and for n of -1 that it does
// not after all.
func (t *TxWrites) take(ids []string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	if t.taken == nil {
		t.taken = map[string]int{}
	}
	for _, id := range ids {
		t.taken[id] += n
	}
}

// end is called when the transaction has committed, and returns the events that the transaction
// itself has taken back. The map does not change any more.
func (t *TxWrites) end() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.more, t.ended = nil, nil, true
	return t.taken
}

type scopesKey struct{}

// scopeContext is a context with a scope, and with the scopes of its parent context.
type scopeContext struct {
	context.Context
	scope TxScope
}

// Value returns the context itself for scopesKey.
func (c *scopeContext) Value(key any) any {
	if key == (scopesKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// ContextWithScope returns a context that carries the scope for writers of the
// scope's data source, beside the scopes of other sources that ctx has.
func ContextWithScope(ctx context.Context, scope TxScope) context.Context {
	return &scopeContext{Context: ctx, scope: scope}
}

// ScopeFromContext finds the innermost scope of the data source in ctx, whether
// still active or not.
func ScopeFromContext(ctx context.Context, source any) (TxScope, bool) {
	return findScope(ctx, func(scope TxScope) bool { return scope.Source() == source })
}

// InnermostScope finds the innermost scope in ctx, of any data source, whether still active or not.
func InnermostScope(ctx context.Context) (TxScope, bool) {
	return findScope(ctx, func(TxScope) bool { return true })
}

// hasForeignScope reports whether ctx carries an active scope of any source.
func hasForeignScope(ctx context.Context) bool {
	_, found := findScope(ctx, TxScope.Active)
	return found
}

// findScope finds the innermost scope in ctx that matches.
func findScope(ctx context.Context, matches func(TxScope) bool) (TxScope, bool) {
	c, ok := ctx.Value(scopesKey{}).(*scopeContext)
	for ok && !matches(c.scope) {
		c, ok = c.Context.Value(scopesKey{}).(*scopeContext)
	}
	if !ok {
		return nil, false
	}
	return c.scope, true
}

type noTxKey struct{}

// ContextWithoutTx returns a context in which a writer that finds no transaction gives the reason
// in its error. A middleware calls ContextWithoutTx for a request for which the middleware begins
// no transaction.
func ContextWithoutTx(ctx context.Context, reason string) context.Context {
	return context.WithValue(ctx, noTxKey{}, reason)
}

// Transactor opens transactions for code that need not know which database library is below: the
// web middlewares and [InTx]. Every adapter is a Transactor.
type Transactor interface {
	// Begin opens a transaction, or a savepoint when ctx already carries a transaction of the same
	// source, and returns a context that carries the new transaction. opts may be nil.
	Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, Transaction, error)
}

// Transaction is a transaction or a savepoint that [Transactor.Begin] opened. Commit and Rollback
// of a transaction that has ended change nothing and return [sql.ErrTxDone], as the methods of a
// *sql.Tx do.
type Transaction interface {
	Commit() error
	Rollback() error
}

// InTx runs fn in a transaction of t: committed when fn returns nil, rolled back when fn returns an
// error, panics or ends its goroutine. Within another InTx of the same source, the transaction is a
// savepoint.
func InTx(ctx context.Context, t Transactor, fn func(ctx context.Context) error) error {
	txCtx, tx, err := t.Begin(ctx, nil)
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished { // fn panicked or called runtime.Goexit
			_ = tx.Rollback()
		}
	}()
	err = fn(txCtx)
	finished = true
	if err != nil {
		if failed := tx.Rollback(); failed != nil && !errors.Is(failed, sql.ErrTxDone) {
			err = errors.Join(err, failed)
		}
		return err
	}
	return tx.Commit()
}

// PoolOf is the *sql.DB behind a handle that embeds a *sql.DB, such as *sqlx.DB; any other handle
// is its own pool. Adapters use PoolOf so that a transaction begun on the handle and a transaction
// begun on the pool have the same source.
func PoolOf(db any) any {
	v := reflect.ValueOf(db)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return db
	}
	field, ok := v.Elem().Type().FieldByName("DB")
	if !ok || !field.Anonymous || len(field.Index) != 1 {
		return db
	}
	if pool := v.Elem().Field(field.Index[0]); pool.Kind() == reflect.Pointer && !pool.IsNil() {
		return pool.Interface()
	}
	return db
}
