package outboxpgx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxkit/outbox-go/outbox"
)

// Queue queues the INSERT of an event in a batch, which saves the round trip of the INSERT, and
// returns the event's id; "" and no error when a hook suppressed the event. The event is sealed and
// the BeforeWrite hooks run now; nothing else happens unless the batch is sent. The AfterWrite
// hooks run while the batch's answers are read: they must not use the transaction.
//
// If the table has an event with the id of the envelope, nothing is written and the transaction goes
// on: Close of the batch's results returns [outbox.ErrDuplicateEvent]. Close then reads no more
// answers, so the poller delivers the events behind that event. If you read the answers with Exec, the
// answer to the INSERT has no row. A row that another unique index of yours keeps out counts as a
// duplicate, too. An envelope with a UniqueKey is refused.
//
// The transaction is the transaction in which the batch is sent. Without a transaction, PostgreSQL
// runs the batch as a transaction, and the event is part of that. A batch with queued events must
// be sent once, on a followed connection of the adapter's pool; otherwise sending the batch fails
// with an error that is [outbox.ErrForeignTransaction] or [outbox.ErrUnmanagedTransaction],
// whatever the adapter's options.
func (a *Adapter) Queue(ctx context.Context, batch *pgx.Batch, env outbox.Envelope) (string, error) {
	if batch == nil {
		return "", &outbox.FieldError{Field: "outboxpgx.Queue batch", Problem: "is nil"}
	}
	write, err := a.writer.Stage(ctx, []outbox.Envelope{env})
	if err != nil || write == nil {
		return "", err
	}
	ids := write.EventIDs()
	for _, one := range ids[1:] { // a hook may have added events
		return "", fmt.Errorf("outbox: a BeforeWrite hook added event %s; Queue takes one event for each call: use WriteAll", one)
	}
	q := &queued{adapter: a, write: write}
	batch.Queue("", q).Exec(func(pgconn.CommandTag) error { return q.refused })
	return ids[0], nil
}

// queued is an event in a batch. pgx calls RewriteQuery when the batch is sent.
type queued struct {
	adapter *Adapter
	write   *outbox.StagedWrite
	args    []any // of the INSERT; their address tells the answer from others
	refused error // an event with this id is there
}

var _ pgx.QueryRewriter = (*queued)(nil)

// RewriteQuery makes the INSERT.
func (q *queued) RewriteQuery(ctx context.Context, pg *pgx.Conn, _ string, _ []any) (string, []any, error) {
	if _, err := q.adapter.follows(pg); err != nil {
		return "", nil, err
	}
	b := batchOf(ctx)
	if b == nil {
		return "", nil, fmt.Errorf("%w: a tracer drops the context of SendBatch", outbox.ErrUnmanagedTransaction)
	}
	var insert statement
	if err := q.write.Send(ctx, &insert); err != nil {
		return "", nil, err
	}
	q.args = insert.args
	b.queued = append(b.queued, q)
	if insert.count != 1 || len(insert.args) == 0 {
		return "", nil, fmt.Errorf("outbox: the store inserts one event with %d statements; Queue needs one with parameters", insert.count)
	}
	return insert.query, insert.args, nil
}

// statement is an [outbox.Execer] that keeps the statement.
type statement struct {
	query string
	args  []any
	count int
}

func (s *statement) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	s.query, s.args = query, args
	s.count++
	return driver.RowsAffected(1), nil
}
