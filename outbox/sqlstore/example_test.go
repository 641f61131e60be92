package sqlstore_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A service asks its database for the store, makes the tables, and gives both to the
// outbox. To deliver, open db with an adapter, such as sqltx.Open.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:/service?vfs=memdb")
	check(err)
	defer db.Close()

	store, err := sqlstore.Detect(ctx, db)
	check(err)
	check(store.CreateSchema(ctx, db)) // or ship store.Schema() with your migrations
	ob, err := outbox.New(outbox.Config{DB: db, Store: store})
	check(err)
	stats, err := ob.Stats(ctx)
	fmt.Println(store.Dialect(), store.Table(), stats.Pending, err)
	// Output:
	// sqlite outbox_event 0 <nil>
}

// Detect is for a program that runs on several databases.
func ExampleDetect() {
	db, err := sql.Open("sqlite", ":memory:")
	check(err)
	defer db.Close()
	store, err := sqlstore.Detect(context.Background(), db, sqlstore.WithTable("shop_outbox"))
	check(err)
	fmt.Println(store.Dialect(), store.Table())
	// Output:
	// sqlite shop_outbox
}

// A program that knows its database names the store, without a connection.
func ExamplePostgres() {
	store := sqlstore.Postgres(sqlstore.WithTable("app.outbox_event"))
	fmt.Println(store.Dialect(), store.Table(), store.Validate())
	// Output:
	// postgres app.outbox_event <nil>
}

// MariaDB and TiDB speak this dialect too.
func ExampleMySQL() {
	fmt.Println(sqlstore.MySQL().Dialect())
	// Output:
	// mysql
}

func ExampleSQLite() {
	fmt.Println(sqlstore.SQLite().Dialect())
	// Output:
	// sqlite
}

// CreateSchema may run in each process at each start.
func ExampleStore_CreateSchema() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:/created?vfs=memdb")
	check(err)
	defer db.Close()
	store := sqlstore.SQLite()
	check(store.CreateSchema(ctx, db))
	check(store.CreateSchema(ctx, db)) // changes nothing
	fmt.Println(store.Check(ctx, db, false))
	// Output:
	// <nil>
}

// Schema is the DDL for a migration.
func ExampleStore_Schema() {
	for line := range strings.Lines(sqlstore.Postgres().Schema()) {
		if strings.HasPrefix(line, "CREATE TABLE") {
			fmt.Print(line)
		}
	}
	// Output:
	// CREATE TABLE IF NOT EXISTS "outbox_event" (
	// CREATE TABLE IF NOT EXISTS "outbox_event_control" (
}

// The function Schema writes a migration from a name, such as that of a flag.
func ExampleSchema() {
	ddl, err := sqlstore.Schema("mariadb", "outbox_event", sqlstore.WithAgeIndex())
	fmt.Println(len(ddl) > 0, err)
	_, err = sqlstore.Schema("oracle", "outbox_event")
	fmt.Println(err)
	// Output:
	// true <nil>
	// outbox: sqlstore.Schema dialect is "oracle"; known are postgres, mysql, mariadb and sqlite
}

// A bad name is an error of every method, so a program may check it early.
func ExampleWithTable() {
	fmt.Println(sqlstore.Postgres(sqlstore.WithTable("app.outbox_event")).Validate())
	fmt.Println(sqlstore.Postgres(sqlstore.WithTable("outbox event")).Validate() != nil)
	// Output:
	// <nil>
	// true
}

// indexes counts the indexes of a schema.
func indexes(opts ...sqlstore.Option) int {
	return strings.Count(sqlstore.Postgres(opts...).Schema(), "CREATE INDEX")
}

// [outbox.OrderedByKey] needs one index more.
func ExampleWithKeyIndex() {
	fmt.Println(indexes(sqlstore.WithKeyIndex()) - indexes())
	// Output:
	// 1
}

// Undelivered of [outbox.PurgeOptions] needs one index more.
func ExampleWithAgeIndex() {
	fmt.Println(indexes(sqlstore.WithAgeIndex()) - indexes())
	// Output:
	// 1
}

// TenantsInTurn of [outbox.ClaimOptions] needs one index more.
func ExampleWithTenantIndex() {
	fmt.Println(indexes(sqlstore.WithTenantIndex()) - indexes())
	// Output:
	// 1
}

// fast stands for a codec on a faster JSON library.
type fast struct{}

func (fast) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (fast) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// The codec of the store decodes what the poller reads.
func ExampleWithCodec() {
	store := sqlstore.Postgres(sqlstore.WithCodec(fast{}))
	fmt.Println(store.Validate())
	// Output:
	// <nil>
}
