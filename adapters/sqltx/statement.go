package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// Exec is [sql.Tx.Exec].
func (tx *Tx) Exec(query string, args ...any) (sql.Result, error) {
	return tx.ExecContext(context.Background(), query, args...)
}

// ExecContext is [sql.Tx.ExecContext]. Statements about savepoints are followed.
// SAVEPOINT is [outbox.ErrNoTransaction] when the database has ended the
// transaction: on SQLite it would begin another one.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := tx.before(ctx, query); err != nil {
		return nil, err
	}
	result, err := tx.Tx.ExecContext(ctx, query, args...)
	tx.session.Scope().Observe(ctx, query, err)
	return result, err
}

// Query is [sql.Tx.Query].
func (tx *Tx) Query(query string, args ...any) (*sql.Rows, error) {
	return tx.QueryContext(context.Background(), query, args...)
}

// QueryContext is [sql.Tx.QueryContext], with SAVEPOINT as in [Tx.ExecContext].
func (tx *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := tx.before(ctx, query); err != nil {
		return nil, err
	}
	rows, err := tx.Tx.QueryContext(ctx, query, args...)
	tx.session.Scope().Observe(ctx, query, err)
	if err == nil {
		tx.mayFailUnseen(query)
	}
	return rows, err
}

// QueryRow is [sql.Tx.QueryRow].
func (tx *Tx) QueryRow(query string, args ...any) *sql.Row {
	return tx.QueryRowContext(context.Background(), query, args...)
}

// QueryRowContext is [sql.Tx.QueryRowContext], with SAVEPOINT as in
// [Tx.ExecContext].
func (tx *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := tx.before(ctx, query); err != nil {
		return tx.Tx.QueryRowContext(refusing{ctx, err}, query, args...)
	}
	row := tx.Tx.QueryRowContext(ctx, query, args...)
	tx.session.Scope().Observe(ctx, query, row.Err())
	if row.Err() == nil {
		tx.mayFailUnseen(query)
	}
	return row
}

// before finds out, before a statement, whether a transaction that is suspected
// of it is gone, and refuses a savepoint then.
func (tx *Tx) before(ctx context.Context, query string) error {
	scope := tx.session.Scope()
	scope.Verify(ctx)
	cause := scope.Doomed()
	if cause == nil || txscope.Parse(query).Op != txscope.Savepoint {
		return nil
	}
	return fmt.Errorf("%w: the database rolled it back: %w", outbox.ErrNoTransaction, cause)
}

// mayFailUnseen has SQLite asked, before the next statement or COMMIT, whether
// the transaction is still there: the error of a statement that writes may come
// with its rows, or with the execution of what was prepared, where nobody looks.
func (tx *Tx) mayFailUnseen(query string) {
	if tx.session.dialect == txscope.SQLite && !reads(query) {
		tx.session.Scope().Suspect(txscope.RolledBack, errUnseen)
	}
}

// reads reports whether the statement is plainly one that only reads.
func reads(query string) bool {
	const word = "SELECT"
	query = strings.TrimLeft(query, " \t\r\n")
	return len(query) >= len(word) && strings.EqualFold(query[:len(word)], word)
}

var errUnseen = errors.New("a statement failed with its rows, or after it was prepared")

// Prepare is [sql.Tx.Prepare], with the limit of [Tx.PrepareContext].
func (tx *Tx) Prepare(query string) (*sql.Stmt, error) {
	return tx.PrepareContext(context.Background(), query)
}

// PrepareContext is [sql.Tx.PrepareContext]. A statement about savepoints or the
// transaction's end is refused, for nobody could tell when it runs: execute it
// directly.
func (tx *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if tx.controls(query) {
		return nil, errPrepare
	}
	stmt, err := tx.Tx.PrepareContext(ctx, query)
	tx.session.Scope().ObserveError(err)
	if err == nil {
		tx.mayFailUnseen(query)
	}
	return stmt, err
}

// Stmt is [sql.Tx.Stmt], with the limit of [Tx.PrepareContext].
func (tx *Tx) Stmt(stmt *sql.Stmt) *sql.Stmt { return tx.StmtContext(context.Background(), stmt) }

// StmtContext is [sql.Tx.StmtContext], with the limit of [Tx.PrepareContext]: it
// is the execution of the result that fails.
func (tx *Tx) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	if query := preparedQuery(stmt); tx.controls(query) {
		ctx = refusing{ctx, errPrepare}
	} else {
		tx.mayFailUnseen(query)
	}
	return tx.Tx.StmtContext(ctx, stmt)
}

// controls reports whether the statement is about savepoints or the
// transaction's end.
func (tx *Tx) controls(query string) bool {
	switch txscope.Parse(query).Op {
	case txscope.None:
		return false
	case txscope.Begin, txscope.ImplicitCommit:
		return tx.session.dialect == txscope.MySQL
	default:
		return true
	}
}

var errPrepare = errors.New("outbox: a statement that controls the transaction cannot be prepared in it; execute it with ExecContext")

// preparedQuery is the text of a prepared statement, which only a private field
// of [sql.Stmt] tells. Were that to disappear, no prepared statement would be
// refused, and a test would say so.
func preparedQuery(stmt *sql.Stmt) string {
	if stmt == nil {
		return ""
	}
	field := reflect.ValueOf(stmt).Elem().FieldByName("query")
	if field.Kind() != reflect.String {
		return ""
	}
	return field.String()
}

// refusing is a context that has ended for a reason of ours: what database/sql
// is asked for with it fails with that.
type refusing struct {
	context.Context
	err error
}

func (refusing) Done() <-chan struct{} { return ended }

func (r refusing) Err() error { return r.err }

// ended is closed.
var ended = func() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()
