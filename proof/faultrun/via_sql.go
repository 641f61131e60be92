package faultrun

import (
	"context"
	"database/sql"
	"errors"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// viaSQL writes through sqltx, which begins the transactions.
type viaSQL struct{ n *node }

func (v viaSQL) InTx(ctx context.Context, fn func(ctx context.Context, tx transaction) error) error {
	return v.n.adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, sqlTx{v.n, tx}) })
}

type sqlTx struct {
	n  *node
	tx *sql.Tx
}

func (t sqlTx) Exec(ctx context.Context, query string) error {
	_, err := t.tx.ExecContext(ctx, query)
	return err
}

func (t sqlTx) Number(ctx context.Context, query string) (number int, err error) {
	return number, t.tx.QueryRowContext(ctx, query).Scan(&number)
}

func (t sqlTx) Write(ctx context.Context, envs []outbox.Envelope) ([]string, error) {
	return t.n.adapter.WriteAll(ctx, t.tx, envs)
}

func (t sqlTx) Change(ctx context.Context, which outbox.Waiting, c outbox.Change) (outbox.TakenBack, error) {
	return takeBack[sqltx.AnyTx](ctx, t.n.adapter, t.tx, which, c)
}

// viaRaw writes in transactions and savepoints that the application begins and ends.
type viaRaw struct{ n *node }

type rawKey struct{}

func (v viaRaw) InTx(ctx context.Context, fn func(ctx context.Context, tx transaction) error) error {
	if tx, ok := ctx.Value(rawKey{}).(*sql.Tx); ok {
		return v.inSavepoint(ctx, tx, fn)
	}
	tx, err := v.n.pools.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(context.WithValue(ctx, rawKey{}, tx), sqlTx{v.n, tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (v viaRaw) inSavepoint(ctx context.Context, tx *sql.Tx, fn func(ctx context.Context, tx transaction) error) error {
	inner := sqlTx{v.n, tx}
	if err := inner.Exec(ctx, "SAVEPOINT by_hand"); err != nil {
		return err
	}
	failed := fn(ctx, inner)
	if failed == nil {
		return inner.Exec(ctx, "RELEASE SAVEPOINT by_hand")
	}
	if err := inner.Exec(ctx, "ROLLBACK TO SAVEPOINT by_hand"); err != nil {
		return err
	}
	return failed
}
