package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/internal/sqltable"
)

// Limits of the consumer's name and of the message id, in bytes.
const (
	MaxConsumerLength  = 64
	MaxMessageIDLength = 255
)

// DefaultTable is the table's name unless [Config] has another name.
const DefaultTable = "inbox_message"

// Config makes an [Inbox].
type Config struct {
	// Dialect is [Postgres], [MySQL] (MariaDB too) or [SQLite]. Required.
	Dialect Dialect
	// Table is letters, digits and underscores, optionally with a schema before it.
	// Defaults to [DefaultTable].
	Table string
}

// Execer runs a statement in a transaction: *sql.Tx, bun.Tx, *sqlx.Tx, the
// Statement.ConnPool of a *gorm.DB, an outbox.TxScope.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Inbox remembers in a table which consumer has handled which message. An Inbox is safe for
// concurrent use.
type Inbox struct {
	table  *sqltable.Table
	record string
}

// New makes an inbox, and reports all invalid fields together. New does not touch the database; see
// [Inbox.CreateSchema].
func New(cfg Config) (*Inbox, error) {
	if cfg.Table == "" {
		cfg.Table = DefaultTable
	}
	var errs []error
	d, known := dialects[cfg.Dialect]
	if !known {
		errs = append(errs, fmt.Errorf("inbox: Config.Dialect is %.40q; use inbox.Postgres, inbox.MySQL (MariaDB too) or inbox.SQLite", cfg.Dialect))
	}
	name, err := sqlname.Parse(cfg.Table)
	if err != nil {
		errs = append(errs, fmt.Errorf("inbox: Config.Table %w", err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	table := sqltable.New(sqltable.Config{
		Package: "inbox", Dialect: d.Dialect, Name: name, Schema: d.schema, Key: "consumer, message_id", At: "handled_at",
	})
	return &Inbox{table: table, record: table.SQL(d.record)}, nil
}

// Once records in the caller's transaction that the consumer handles the message, and runs fn. If a
// committed transaction has recorded the message for this consumer before, Once does not run fn;
// first is then false, and the message can be acknowledged. While another transaction with the same
// message is open, Once waits for the end of that transaction.
//
// When fn fails, Once returns the error of fn; roll the transaction back, which removes the record
// too. An error of the database may be a serialization failure, because of the isolation level, or
// a deadlock: roll back and try again, as with every statement.
//
// The consumer's name and the message id are at most [MaxConsumerLength] and
// [MaxMessageIDLength] bytes. A pool or a connection instead of a transaction is
// refused.
func (box *Inbox) Once(ctx context.Context, tx Execer, consumer, messageID string, fn func(ctx context.Context) error) (first bool, err error) {
	if err := check(tx, consumer, messageID, fn == nil); err != nil {
		return false, err
	}
	res, err := tx.ExecContext(ctx, box.record, consumer, messageID)
	if err != nil {
		return false, box.table.Fail(fmt.Sprintf("recording message %q for consumer %q", messageID, consumer), err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return false, box.table.Fail(fmt.Sprintf("recording message %q for consumer %q", messageID, consumer), err)
	}
	if n == 0 {
		return false, nil
	}
	return true, fn(ctx)
}

func check(tx Execer, consumer, messageID string, noFn bool) error {
	var errs []error
	if nilness.IsNil(tx) {
		errs = append(errs, errors.New("inbox: Once needs a transaction; tx is nil"))
	} else if _, pool := tx.(interface{ PingContext(context.Context) error }); pool {
		errs = append(errs, fmt.Errorf("inbox: Once needs a transaction; tx is a %T: begin one, or the record stays when the effect fails", tx))
	}
	if noFn {
		errs = append(errs, errors.New("inbox: Once needs a function; fn is nil"))
	}
	errs = append(errs, checkText("consumer", consumer, MaxConsumerLength), checkText("messageID", messageID, MaxMessageIDLength))
	return errors.Join(errs...)
}

func checkText(field, text string, limit int) error {
	switch {
	case text == "":
		return fmt.Errorf("inbox: %s is empty", field)
	case len(text) > limit:
		return fmt.Errorf("inbox: %s has %d bytes, at most %d are allowed; hash longer ones", field, len(text), limit)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return fmt.Errorf("inbox: %s (%d bytes) is not valid UTF-8 or has a NUL; encode it, for example as hex", field, len(text))
	default:
		return nil
	}
}
