package faultrun

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/outbox"
)

// viaPGX writes in transactions of pgx, which the application begins and ends.
type viaPGX struct {
	n       *node
	adapter *outboxpgx.Adapter
	batch   bool // events go through Queue
}

func newViaPGX(n *node, batch bool) viaPGX {
	return viaPGX{n, must(outboxpgx.New(n.pools.pgx, n.ob.Writer())), batch}
}

type pgxKey struct{}

func (v viaPGX) InTx(ctx context.Context, fn func(ctx context.Context, tx transaction) error) error {
	committing := false
	inner := func(tx pgx.Tx) error {
		err := fn(context.WithValue(ctx, pgxKey{}, tx), pgxTx{v, tx})
		committing = err == nil
		return err
	}
	if tx, ok := ctx.Value(pgxKey{}).(pgx.Tx); ok {
		return pgx.BeginFunc(ctx, tx, inner)
	}
	err := pgx.BeginFunc(ctx, v.n.pools.pgx, inner)
	// pgx returns the connection's error. Unless the server has answered, the user of pgx cannot
	// know the outcome of the COMMIT.
	var refused *pgconn.PgError
	if err != nil && committing && !errors.As(err, &refused) && !errors.Is(err, pgx.ErrTxCommitRollback) {
		return fmt.Errorf("%w: %w", outbox.ErrOutcomeUnknown, err)
	}
	return err
}

type pgxTx struct {
	viaPGX
	tx pgx.Tx
}

func (t pgxTx) Exec(ctx context.Context, query string) error {
	_, err := t.tx.Exec(ctx, query)
	return err
}

func (t pgxTx) Number(ctx context.Context, query string) (number int, err error) {
	return number, t.tx.QueryRow(ctx, query).Scan(&number)
}

func (t pgxTx) Write(ctx context.Context, envs []outbox.Envelope) ([]string, error) {
	if !t.batch || envs[0].UniqueKey != "" { // Queue refuses unique keys
		return t.adapter.WriteAll(ctx, t.tx, envs)
	}
	var batch pgx.Batch
	ids := make([]string, len(envs))
	for i, env := range envs {
		var err error
		if ids[i], err = t.adapter.Queue(ctx, &batch, env); err != nil {
			return nil, err
		}
	}
	return ids, t.tx.SendBatch(ctx, &batch).Close()
}

// queues reports whether the change is queued in a batch, which says only how many events were changed.
func (t pgxTx) queues(c outbox.Change) bool { return t.batch && c.Cancel }

func (t pgxTx) Change(ctx context.Context, which outbox.Waiting, c outbox.Change) (got outbox.TakenBack, err error) {
	if !t.queues(c) {
		return takeBack[pgx.Tx](ctx, t.adapter, t.tx, which, c)
	}
	var batch pgx.Batch
	if err := t.adapter.QueueCancel(ctx, &batch, which, func(n int) error { got.Changed = n; return nil }); err != nil {
		return got, err
	}
	return got, t.tx.SendBatch(ctx, &batch).Close()
}
