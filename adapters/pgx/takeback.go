package outboxpgx

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxkit/outbox-go/outbox"
)

// Cancel deletes events that wait, in the transaction: see [outbox.Writer.Cancel]. The errors are the
// same as for [Adapter.Write], and a [*outbox.FieldError] for an invalid choice.
func (a *Adapter) Cancel(ctx context.Context, tx pgx.Tx, which outbox.Waiting) (outbox.TakenBack, error) {
	return a.change(ctx, tx, which, outbox.Change{Cancel: true})
}

// Reschedule makes events that wait due at another time, in the transaction: see
// [outbox.Writer.Reschedule]. The errors are the same as for [Adapter.Cancel].
func (a *Adapter) Reschedule(ctx context.Context, tx pgx.Tx, which outbox.Waiting, at time.Time) (outbox.TakenBack, error) {
	return a.change(ctx, tx, which, outbox.Change{AvailableAt: at})
}

// Replace gives an event that waits another content, in the transaction: see [outbox.Writer.Replace].
// The errors are the same as for [Adapter.Cancel].
func (a *Adapter) Replace(ctx context.Context, tx pgx.Tx, eventID string, with outbox.Replacement) (outbox.TakenBack, error) {
	return a.change(ctx, tx, outbox.Waiting{EventIDs: []string{eventID}}, with.Change())
}

func (a *Adapter) change(ctx context.Context, tx pgx.Tx, which outbox.Waiting, c outbox.Change) (outbox.TakenBack, error) {
	found, err := a.find(ctx, tx)
	if a.allowUnmanaged && errors.Is(err, outbox.ErrUnmanagedTransaction) {
		return a.writer.ChangeUnmanaged(ctx, execer{tx}, which, c)
	}
	if err != nil {
		return outbox.TakenBack{}, err
	}
	return a.writer.ChangeScope(ctx, found, which, c)
}

// maxQueued is the most ids of a [Adapter.QueueCancel], which queues only the first statement of the store:
// a store changes at least as many rows with a statement.
const maxQueued = 1000

// QueueCancel queues the DELETE of events that wait in a batch: see [outbox.Writer.Cancel]. When the
// answer is read, as Close of the batch's results does, cancelled gets the number of the events that are
// deleted if the transaction commits. The other events were in hand, delivered or dead: the batch does
// not say which. An event that is due at once is not cancelled, even if the transaction itself wrote
// it. An error of cancelled is an error of Close. cancelled may be nil.
//
// The choice has at most 1,000 EventIDs. An invalid choice is a [*outbox.FieldError].
func (a *Adapter) QueueCancel(ctx context.Context, batch *pgx.Batch, which outbox.Waiting, cancelled func(n int) error) error {
	if batch == nil {
		return &outbox.FieldError{Field: "outboxpgx.QueueCancel batch", Problem: "is nil"}
	}
	if len(which.EventIDs) > maxQueued {
		return &outbox.FieldError{Field: "Waiting.EventIDs", Problem: "has more than 1,000 ids; queue them in several statements"}
	}
	var s unsent
	if _, err := a.writer.ChangeUnmanaged(ctx, &s, which, outbox.Change{Cancel: true}); !errors.Is(err, errNotSent) {
		return err
	}
	batch.Queue(s.query, s.args...).Exec(func(tag pgconn.CommandTag) error {
		if cancelled == nil {
			return nil
		}
		return cancelled(int(tag.RowsAffected()))
	})
	return nil
}

// unsent keeps the statement of a store, which is sent later.
type unsent struct {
	query string
	args  []any
}

var _ outbox.TextQuerier = (*unsent)(nil)

// errNotSent ends the work of the store after its first statement.
var errNotSent = errors.New("the statement is sent with a batch")

func (s *unsent) QueryTexts(_ context.Context, query string, args ...any) ([]string, error) {
	s.query, s.args = query, args
	return nil, errNotSent
}

func (s *unsent) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errNotSent
}
