package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
)

// level is the transaction that [Adapter.Begin] opened, or a savepoint in a transaction.
type level struct {
	tx        *transaction
	ctx       context.Context    // a savepoint ends with the context
	ends      outbox.Transaction // nil for a savepoint
	savepoint string
	done      atomic.Bool
}

// nest makes a savepoint.
func nest(ctx context.Context, outer *transaction) (*level, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := outer.Refusal(); err != nil {
		return nil, err
	}
	l := &level{tx: outer, ctx: ctx, savepoint: "outbox_" + strconv.FormatInt(outer.savepoints.Add(1), 10)}
	if err := l.control("SAVEPOINT " + l.savepoint); err != nil {
		return nil, fmt.Errorf("outbox: opening a savepoint: %w", err)
	}
	return l, nil
}

// Commit commits the transaction, or releases the savepoint. When the context of this level has
// ended, Commit rolls back and returns the context's error.
func (l *level) Commit() error {
	if !l.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if l.savepoint != "" {
		return l.release()
	}
	err := l.tx.EndWith(func() error {
		err := l.ends.Commit()
		if err != nil {
			_ = l.ends.Rollback() // database/sql has not rolled back when the context has ended
		}
		return err
	})
	if errors.Is(err, sql.ErrTxDone) && l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	return err
}

// Rollback rolls back the transaction, or the changes since the savepoint.
func (l *level) Rollback() error { return l.rollback(nil) }

func (l *level) rollback(cause error) error {
	if !l.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if l.savepoint != "" {
		if l.tx.Ended() {
			return sql.ErrTxDone
		}
		return l.rollbackTo()
	}
	l.tx.Because(cause)
	return l.tx.EndWith(l.ends.Rollback)
}

func (l *level) release() error {
	if l.tx.Ended() {
		return sql.ErrTxDone
	}
	if err := l.tx.Doomed(); err != nil {
		return fmt.Errorf("outbox: the transaction was rolled back by the database: %w", err)
	}
	if err := l.ctx.Err(); err != nil {
		_ = l.rollbackTo()
		return err
	}
	err := l.tx.Failed() // pgdriver gives the connection up when RELEASE is refused
	if err == nil {
		err = l.control("RELEASE SAVEPOINT " + l.savepoint)
	}
	if err != nil {
		// On PostgreSQL a statement failed and the error was ignored. Without the rollback, the
		// transaction around the savepoint could not go on.
		_ = l.rollbackTo()
		return fmt.Errorf("outbox: releasing a savepoint: %w", err)
	}
	return nil
}

func (l *level) rollbackTo() error {
	if err := l.control("ROLLBACK TO SAVEPOINT " + l.savepoint); err != nil {
		return fmt.Errorf("outbox: rolling back to a savepoint: %w", err)
	}
	// The savepoint still exists; it is not needed.
	_ = l.control("RELEASE SAVEPOINT " + l.savepoint)
	return nil
}

// control runs a savepoint statement, also when the level's context has ended.
func (l *level) control(statement string) error {
	_, err := l.tx.above.execer.ExecContext(context.WithoutCancel(l.ctx), statement)
	return err
}
