// Quickstart places orders in transactions and prints the outcome of each order and of its event.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type order struct{ ID, Item string }

var (
	orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")
	delivered   = make(chan struct{}, 3)
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	url := flag.String("db", "", "postgres://… or mysql://…; by default a SQLite file in a temporary directory")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db := must(open(*url))
	store := must(sqlstore.Detect(ctx, db, sqlstore.WithTable("quickstart_outbox")))
	check(store.CreateSchema(ctx, db))
	_ = must(db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS quickstart_orders (id VARCHAR(64), item VARCHAR(64))"))
	ob := must(outbox.New(outbox.Config{DB: db, Store: store, RetryPolicy: outbox.ExponentialBackoff(50*time.Millisecond, time.Second)}))
	check(ob.Register(orderPlaced.Listen(onOrderPlaced)))
	check(ob.Start(ctx))
	a := must(sqltx.New(db, ob.Writer()))
	place := func(item string, delay time.Duration, fail error) error {
		o := order{ID: fmt.Sprintf("%s-%d", item, time.Now().UnixMilli()), Item: item}
		return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO quickstart_orders VALUES ('"+o.ID+"', '"+o.Item+"')") // the business row
			env := orderPlaced.Envelope(o.ID, o)
			env.DeliverAfter = delay
			_, werr := a.Write(ctx, tx, env) // the event, in the same transaction
			log.Printf("%-6s  order and event written, not yet committed", item)
			return errors.Join(err, werr, fail)
		})
	}
	check(place("tea", 0, nil))
	log.Printf("mate    rolled back, no order and no event: %v", place("mate", 0, errors.New("out of stock")))
	check(place("coffee", 700*time.Millisecond, nil)) // delayed
	check(place("cocoa", 0, nil))                     // the listener fails twice
	for range 3 {
		<-delivered
	}
	check(ob.Close(ctx)) // stores the last outcomes
	rows := must(db.QueryContext(ctx, "SELECT aggregate_id, status, attempts FROM quickstart_outbox ORDER BY created_at"))
	for fmt.Printf("\n%-24s %-6s %s\n", "event of", "status", "failed attempts"); rows.Next(); {
		var id, attempts string
		var status outbox.Status
		check(rows.Scan(&id, &status, &attempts))
		fmt.Printf("%-24s %-6s %s\n", id, status, attempts)
	}
	check(errors.Join(rows.Err(), rows.Close(), db.Close()))
}

func onOrderPlaced(_ context.Context, o order, env outbox.Envelope) error {
	if o.Item == "cocoa" && env.Attempts < 2 {
		log.Printf("%-6s  delivery %d fails and will be tried again", o.Item, env.Attempts+1)
		return errors.New("the mail server is down")
	}
	log.Printf("%-6s  delivered %s after it was placed", o.Item, time.Since(env.OccurredAt).Round(10*time.Microsecond))
	delivered <- struct{}{}
	return nil
}

func open(url string) (*sql.DB, error) {
	driver, dsn := "sqlite", ""
	if strings.HasPrefix(url, "postgres") {
		driver, dsn = "pgx", url
	} else if rest, ok := strings.CutPrefix(url, "mysql://"); ok { // user:password@host/database
		driver, dsn = "mysql", strings.Replace(strings.Replace(rest, "@", "@tcp(", 1), "/", ")/", 1)
	} else {
		dsn = "file:" + must(os.MkdirTemp("", "quickstart")) + "/outbox.db?_pragma=busy_timeout(5000)&_txlock=immediate"
	}
	return sqltx.Open(driver, dsn)
}

func must[T any](v T, err error) T { check(err); return v }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
