package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/outboxkit/outbox-go/outbox"
)

// checkPlain refuses a plain transaction that is over, and one of another pool,
// before anything else is looked at.
func (a *Adapter) checkPlain(tx *sql.Tx) error {
	if plainTxOver(tx) {
		return fmt.Errorf("%w: %w", outbox.ErrNoTransaction, sql.ErrTxDone)
	}
	if own, ok := a.source.(*sql.DB); ok && !mayBeOf(tx, own) {
		return fmt.Errorf("%w: it was begun on another *sql.DB than the adapter's; "+
			"write with the adapter of that one", outbox.ErrForeignTransaction)
	}
	return nil
}

// plainTxOver reports whether the transaction is over, without asking the
// database: a transaction takes no statement of another pool, such as this one
// of none, but first it says that it is over.
func plainTxOver(tx *sql.Tx) bool {
	stmt := tx.StmtContext(context.Background(), new(sql.Stmt))
	return errors.Is(stmt.Close(), sql.ErrTxDone) //nolint:sqlclosecheck // what it returns is the question.
}

// mayBeOf reports whether the transaction was begun on the pool. Only a private
// field of [sql.Tx] tells. Were that to disappear, plain transactions of any pool
// would pass here, and a test would say so.
func mayBeOf(tx *sql.Tx, pool *sql.DB) bool {
	field := reflect.ValueOf(tx).Elem().FieldByName("db")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*sql.DB]() || field.IsNil() {
		return true
	}
	return field.Pointer() == reflect.ValueOf(pool).Pointer()
}
