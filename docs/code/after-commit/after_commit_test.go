// Package aftercommit_test has the code of docs/how-to/after-commit.md.
package aftercommit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// cache is a cache of prices.
type cache struct{}

func (cache) forget(item string) { fmt.Println("forgot the price of", item) }

type shop struct {
	a      *sqltx.Adapter
	prices cache
}

func open() *shop {
	db, err := sqltx.Open("sqlite", "file:/after-commit?vfs=memdb&_txlock=immediate")
	check(err)
	_, err = db.ExecContext(context.Background(), "CREATE TABLE prices (item TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
	check(err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.SQLite()})
	check(err)
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	return &shop{a: a}
}

func (s *shop) setPrice(ctx context.Context, item string, cents int) error {
	return s.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO prices (item, cents) VALUES (?, ?)", item, cents)
		if err != nil {
			return err
		}
		return s.a.AfterCommit(ctx, tx, func(context.Context) { s.prices.forget(item) })
	})
}

func (s *shop) setPriceFromFile(ctx context.Context, tx *sql.Tx, item string, remove func() error) error {
	return s.a.AfterRollback(ctx, tx, func(_ context.Context, cause error) {
		if errors.Is(cause, outbox.ErrOutcomeUnknown) {
			return // the transaction may have committed
		}
		if err := remove(); err != nil {
			log.Printf("removing the picture of %s: %v", item, err)
		}
	})
}

func Example() {
	s, ctx := open(), context.Background()
	check(s.setPrice(ctx, "tea", 300))
	fmt.Println("again:", s.setPrice(ctx, "tea", 310) != nil)
	undo := errors.New("undo")
	err := s.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		check(s.setPriceFromFile(ctx, tx, "tea", func() error { fmt.Println("removed the picture"); return nil }))
		return undo
	})
	fmt.Println(err)
	// Output:
	// forgot the price of tea
	// again: true
	// removed the picture
	// undo
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
