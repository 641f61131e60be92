package faultrun

import (
	"context"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/outbox"
)

// viaBun writes in transactions of bun.
type viaBun struct {
	db      *bun.DB
	adapter *outboxbun.Adapter
}

func newViaBun(n *node) viaBun {
	var d schema.Dialect
	switch dialect(n.Driver) {
	case inbox.MySQL:
		d = mysqldialect.New()
	case inbox.SQLite:
		d = sqlitedialect.New()
	default:
		d = pgdialect.New()
	}
	db := bun.NewDB(n.pools.db, d)
	return viaBun{db, must(outboxbun.New(db, n.ob.Writer()))}
}

type bunKey struct{}

func (v viaBun) InTx(ctx context.Context, fn func(ctx context.Context, tx transaction) error) error {
	inner := func(ctx context.Context, tx bun.Tx) error {
		return fn(context.WithValue(ctx, bunKey{}, tx), bunTx{v.adapter, tx})
	}
	if tx, ok := ctx.Value(bunKey{}).(bun.Tx); ok {
		return tx.RunInTx(ctx, nil, inner)
	}
	return v.db.RunInTx(ctx, nil, inner)
}

type bunTx struct {
	adapter *outboxbun.Adapter
	tx      bun.Tx
}

func (t bunTx) Exec(ctx context.Context, query string) error {
	_, err := t.tx.ExecContext(ctx, query)
	return err
}

func (t bunTx) Number(ctx context.Context, query string) (number int, err error) {
	return number, t.tx.QueryRowContext(ctx, query).Scan(&number)
}

func (t bunTx) Write(ctx context.Context, envs []outbox.Envelope) ([]string, error) {
	return t.adapter.WriteAll(ctx, t.tx, envs)
}

func (t bunTx) Change(ctx context.Context, which outbox.Waiting, c outbox.Change) (outbox.TakenBack, error) {
	return takeBack[bun.IDB](ctx, t.adapter, t.tx, which, c)
}
