package outboxpgx

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// batch is a [pgx.Batch] that was sent. The server reports the state of the transaction only at the
// end of the batch, so the statements tell what happens within the batch.
type batch struct {
	conn *conn
	ctx  context.Context
	// queued are the events whose INSERT has not been answered yet, in order.
	queued []*queued
	ended  bool
}

type batchKey struct{}

func batchOf(ctx context.Context) *batch {
	b, _ := ctx.Value(batchKey{}).(*batch)
	return b
}

// startBatch notes a batch. The statements of the batch are not rewritten yet.
func (c *conn) startBatch(ctx context.Context, sent *pgx.Batch) context.Context {
	tx := c.current()
	b := &batch{conn: c, ctx: ctx}
	c.batch = b
	// Without a transaction, the end of the batch commits it.
	c.commits.Store(!c.pg.IsClosed() && (tx == nil || slices.ContainsFunc(sent.QueuedQueries, func(q *pgx.QueuedQuery) bool {
		return mayCommit(c.text(q.SQL))
	})))
	return context.WithValue(ctx, batchKey{}, b)
}

// answered takes the answer to a statement.
func (b *batch) answered(sql string, args []any, tag string, err error) {
	if b.ended {
		return
	}
	b.conn.observe(b.ctx, b.conn.text(sql), tag, err)
	if err != nil || len(args) == 0 {
		return
	}
	i := slices.IndexFunc(b.queued, func(q *queued) bool { return len(q.args) > 0 && &q.args[0] == &args[0] })
	if i < 0 {
		return
	}
	q := b.queued[i]
	b.queued = slices.Delete(b.queued, i, i+1)
	tx := b.conn.tx.Load()
	if tx == nil {
		tx = b.conn.begin()
		tx.implicit = true
	}
	q.refused = q.write.Inserted(b.ctx, q.adapter.scope(tx, nil), pgconn.NewCommandTag(tag).RowsAffected())
}

// end takes the end of the batch. Events whose INSERT was not seen to succeed are uncertain: the
// batch was not sent, or a statement before them failed, or the caller read no more answers.
func (b *batch) end(err error) {
	if b.ended {
		return
	}
	b.ended = true
	c := b.conn
	c.batch = nil
	implicit := false
	if tx := c.tx.Load(); tx != nil {
		implicit = tx.implicit
		b.uncertain(tx)
	}
	end := txscope.Classify(err)
	if errors.Is(err, outbox.ErrDuplicateEvent) {
		end = txscope.Unknown // the answers behind the event's were not seen
	}
	c.settle(b.ctx, err, func() txscope.End {
		if err == nil && !implicit {
			return txscope.Unknown // the end of the transaction was not seen
		}
		return end
	})
	// Without a transaction, the events that are left were to commit with the batch.
	b.drop(end, err)
	c.commits.Store(false)
}

// abandon ends a batch whose connection is lost.
func (b *batch) abandon(end txscope.End) {
	b.ended = true
	b.conn.batch = nil
	if tx := b.conn.tx.Load(); tx != nil {
		b.uncertain(tx)
	}
	b.drop(end, nil)
}

func (b *batch) uncertain(tx *transaction) {
	for _, q := range b.queued {
		q.write.Uncertain(b.ctx, q.adapter.scope(tx, nil))
	}
	b.queued = nil
}

func (b *batch) drop(end txscope.End, cause error) {
	if end != txscope.RolledBack {
		cause = errors.Join(outbox.ErrOutcomeUnknown, cause)
	}
	for _, q := range b.queued {
		q.write.Failed(b.ctx, cause)
	}
	b.queued = nil
}
