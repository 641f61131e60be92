// Package systems_test holds the code of docs/reliability/SYSTEMS.md.
package systems_test

import (
	"fmt"

	_ "github.com/go-sql-driver/mysql"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

func Example_galera() {
	db, err := sqltx.Open("mysql", "app@tcp(balancer:3306)/shop?wsrep_sync_wait=7")
	if err != nil {
		panic(err)
	}
	fmt.Println(db.Close())
	// Output: <nil>
}
