package outboxgorm

import (
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/outbox"
)

// txOf is our transaction below a handle's connection pool, or nil.
func txOf(connPool gorm.ConnPool) *tx {
	for {
		switch v := connPool.(type) {
		case *tx:
			return v
		case *gorm.PreparedStmtTX:
			if v == nil {
				return nil
			}
			connPool = v.Tx
		case *unprepared:
			return v.tx
		default:
			return nil
		}
	}
}

// anyTx is what GORM takes for a transaction.
type anyTx interface {
	gorm.ConnPool
	gorm.TxCommitter
}

// plainTx is the transaction below a handle's connection pool that is not ours,
// or nil.
func plainTx(connPool gorm.ConnPool) anyTx {
	for {
		if isNil(connPool) {
			return nil
		}
		switch v := connPool.(type) {
		case *tx:
			return nil
		case *gorm.PreparedStmtTX:
			connPool = v.Tx
		case anyTx:
			return v
		default:
			return nil
		}
	}
}

// handleOf is a handle's connection pool. It is an error when the handle is none.
func handleOf(db *gorm.DB) (gorm.ConnPool, error) {
	if db == nil || db.Config == nil || db.Statement == nil {
		return nil, fmt.Errorf("%w: the *gorm.DB is nil or was not made by gorm.Open", outbox.ErrNoTransaction)
	}
	return db.Statement.ConnPool, nil
}

// errNoTransaction says why the handle is in no transaction.
func errNoTransaction(db *gorm.DB) error {
	switch {
	case db.Error != nil: // such as that of a BEGIN
		return fmt.Errorf("%w: the *gorm.DB has an error: %w", outbox.ErrNoTransaction, db.Error)
	case db.SkipDefaultTransaction:
		return fmt.Errorf("%w: the *gorm.DB is not in one, and in a model hook there is none either "+
			"as SkipDefaultTransaction is set; begin one with Transaction or Begin", outbox.ErrNoTransaction)
	default:
		return fmt.Errorf("%w: the *gorm.DB is not in one; write with the *gorm.DB that Transaction, Begin or a model hook gives", outbox.ErrNoTransaction)
	}
}

// SQLTx is the *sql.Tx below a transaction of GORM, for code that knows only
// that type; with the plugin, the assertion tx.Statement.ConnPool.(*sql.Tx) does
// not hold any more. Leave Commit and Rollback to GORM: when they are called on
// the result, the outcome of the events is unknown. Statements about savepoints
// that run on it are not seen. The error is [outbox.ErrNoTransaction] when there
// is none.
func SQLTx(db *gorm.DB) (*sql.Tx, error) {
	connPool, err := handleOf(db)
	if err != nil {
		return nil, err
	}
	var inner anyTx
	if t := txOf(connPool); t != nil {
		inner = t.Tx
	} else {
		inner = plainTx(connPool)
	}
	switch inner := inner.(type) {
	case *sql.Tx:
		return inner, nil
	case nil:
		return nil, errNoTransaction(db)
	default:
		return nil, fmt.Errorf("%w of database/sql: another plugin has put a %T in its place", outbox.ErrNoTransaction, inner)
	}
}
