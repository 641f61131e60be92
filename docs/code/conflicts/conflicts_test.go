// Package conflicts_test has the code of docs/how-to/conflicts.md.
package conflicts_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/uptrace/bun"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/txretry"
)

type shop struct {
	a      *sqltx.Adapter
	writer *outbox.Writer
	mail   func(text string)
}

func open() *shop {
	db, err := sqltx.Open("sqlite", "file:/conflicts?vfs=memdb")
	check(err)
	for _, statement := range []string{"CREATE TABLE stock (item TEXT PRIMARY KEY, n INTEGER NOT NULL)", "INSERT INTO stock VALUES ('tea', 3)"} {
		_, err = db.ExecContext(context.Background(), statement)
		check(err)
	}
	store := sqlstore.SQLite()
	check(store.CreateSchema(context.Background(), db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	return &shop{a: a, writer: ob.Writer(), mail: func(text string) { fmt.Println("mail:", text) }}
}

// sell is called within [txretry.Do].
func (s *shop) sell(ctx context.Context, item string) error {
	tx, _ := s.a.TxFrom(ctx)
	_, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE item = ?", item)
	if err != nil {
		return err
	}
	_, err = s.writer.Write(ctx, outbox.Envelope{EventType: "Sold", AggregateType: "Item", Payload: outbox.JSON(item)})
	return err
}

func (s *shop) order(ctx context.Context, item string) error {
	return txretry.Do(ctx, 3, func(ctx context.Context) error {
		return outbox.InTx(ctx, s.a, func(ctx context.Context) error {
			return s.sell(ctx, item)
		})
	})
}

func orderWithBun(ctx context.Context, db *bun.DB, order *Order) error {
	return txretry.Do(ctx, 3, func(ctx context.Context) error {
		return db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable}, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewInsert().Model(order).Exec(ctx)
			return err
		})
	})
}

// Order is a row.
type Order struct{ ID int64 }

func (s *shop) middleware() (func(http.Handler) http.Handler, error) {
	return httptx.TransactionConfig{Transactor: s.a, Retries: 3}.ToMiddleware()
}

func (s *shop) serve(w http.ResponseWriter, r *http.Request) {
	if txretry.Attempt(r.Context()) > 1 {
		w.Header().Set("Attempt", fmt.Sprint(txretry.Attempt(r.Context())))
	}
	if err := s.sell(r.Context(), "tea"); err != nil {
		http.Error(w, "not sold", http.StatusInternalServerError)
		return
	}
	txretry.Stop(r.Context()) // from here on, nothing may happen twice
	s.mail("a tea is about to be sold")
	w.WriteHeader(http.StatusCreated)
}

var _ = orderWithBun

func Example() {
	s := open()
	check(s.order(context.Background(), "tea"))
	mw, err := s.middleware()
	check(err)
	recorder := httptest.NewRecorder()
	mw(http.HandlerFunc(s.serve)).ServeHTTP(recorder, httptest.NewRequest("POST", "/orders", nil))
	fmt.Println(recorder.Code)
	// Output:
	// mail: a tea is about to be sold
	// 201
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
