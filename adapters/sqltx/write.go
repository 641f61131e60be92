package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/outboxkit/outbox-go/outbox"
)

// AnyTx is a *[Tx], a plain *sql.Tx, or another transaction that has their
// methods, such as ent's, of a pool that was opened with [WrapConnector].
type AnyTx interface {
	outbox.Execer
	Commit() error
	Rollback() error
}

// Write writes one event in the transaction and returns its id; "" and no error
// when a hook suppressed it. A plain *sql.Tx is the one inside a [Tx], or one of
// a pool that was opened with [WrapConnector]; of any other the adapter cannot
// tell when it commits, which is [outbox.ErrUnmanagedTransaction] without the
// option [AllowUnmanaged]. Other errors are [outbox.ErrNoTransaction],
// [outbox.ErrForeignTransaction] for a transaction of another pool, and
// [outbox.ErrInvalidEnvelope].
func (a *Adapter) Write(ctx context.Context, tx AnyTx, env outbox.Envelope) (string, error) {
	ids, err := a.WriteAll(ctx, tx, []outbox.Envelope{env})
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}

// WriteAll writes events in the transaction, all or none, and returns their ids
// in order. Errors are those of [Adapter.Write].
func (a *Adapter) WriteAll(ctx context.Context, tx AnyTx, envs []outbox.Envelope) ([]string, error) {
	if a.err != nil {
		return nil, a.err
	}
	scope, err := a.scopeOf(ctx, tx)
	if plain, ok := tx.(*sql.Tx); ok && a.allowUnmanaged && errors.Is(err, outbox.ErrUnmanagedTransaction) {
		return a.writeUnmanaged(ctx, plain, envs)
	}
	if err != nil {
		return nil, err
	}
	return a.writer.WriteScope(ctx, scope, envs)
}

func (a *Adapter) writeUnmanaged(ctx context.Context, tx *sql.Tx, envs []outbox.Envelope) ([]string, error) {
	ids, err := a.writer.WriteUnmanaged(ctx, tx, envs)
	if errors.Is(err, sql.ErrTxDone) {
		err = fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	}
	return ids, err
}

// scopeOf finds the scope of the transaction.
func (a *Adapter) scopeOf(ctx context.Context, tx AnyTx) (outbox.TxScope, error) {
	if isNil(tx) {
		return nil, fmt.Errorf("%w: the transaction is nil (%T)", outbox.ErrNoTransaction, tx)
	}
	switch tx := tx.(type) {
	case *Tx:
		if tx.session == nil {
			return nil, fmt.Errorf("%w: the *sqltx.Tx was not made by an adapter", outbox.ErrNoTransaction)
		}
		if tx.done.Load() {
			return nil, fmt.Errorf("%w: it has ended", outbox.ErrNoTransaction)
		}
		return tx.session.Scope(), nil
	case *sql.Tx:
		if s := sessions.find(tx); s != nil {
			return s.Scope(), nil
		}
		if err := a.checkPlain(tx); err != nil {
			return nil, err
		}
		if a.allowUnmanaged && a.connector == 0 {
			return nil, outbox.ErrUnmanagedTransaction // there is nobody to ask
		}
		return a.capture(ctx, tx, "begin it with RunInTx or BeginTx of the sqltx.Adapter, "+
			"open the pool with sqltx.WrapConnector, "+
			"or give sqltx.New the option AllowUnmanaged and let the poller deliver its events")
	default:
		return a.capture(ctx, embeddedTx(tx), fmt.Sprintf("a %T is neither a *sqltx.Tx nor a *sql.Tx; "+
			"hand over the *sql.Tx inside it, or open the pool with sqltx.WrapConnector", tx))
	}
}

// capture asks the transaction's connection for its scope. Without an answer the
// transaction is unmanaged, and remedy says what to do.
func (a *Adapter) capture(ctx context.Context, tx AnyTx, remedy string) (outbox.TxScope, error) {
	asked := &capture{dialect: a.dialect, log: a.log}
	askCtx := ctx
	if a.connector != 0 && ctx.Err() != nil {
		askCtx = context.WithoutCancel(ctx) // database/sql would not even look
	}
	// Without an answer this tells a transaction that is over from one that nobody
	// knows. Which of the two mistakes it is matters to who reads the error.
	_, err := tx.ExecContext(context.WithValue(askCtx, captureKey{}, asked), captureQuery)
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return nil, fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	case asked.connector == 0 && ctx.Err() != nil:
		return nil, ctx.Err()
	case asked.connector == 0:
		return nil, fmt.Errorf("%w: %s", outbox.ErrUnmanagedTransaction, remedy)
	case asked.connector != a.connector:
		return nil, fmt.Errorf("%w: it was begun on another pool than the adapter's, "+
			"or there is another wrapper around the connector of sqltx.WrapConnector, which has to be the outermost",
			outbox.ErrForeignTransaction)
	}
	asked.scope.source, asked.scope.execer = a.source, tx
	return asked.scope, nil
}

// embeddedTx is the *sql.Tx that tx embeds, else tx: a library's own ExecContext
// may rewrite the store's statements.
func embeddedTx(tx AnyTx) AnyTx {
	v := reflect.ValueOf(tx)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return tx
	}
	field, ok := v.Type().FieldByName("Tx")
	if !ok || !field.Anonymous || len(field.Index) != 1 {
		return tx
	}
	if plain, ok := v.Field(field.Index[0]).Interface().(*sql.Tx); ok && plain != nil {
		return plain
	}
	return tx
}
