// Package main is the service without an outbox.
package main

import (
	"database/sql"
	"log/slog"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/docs/code/size"
)

func main() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err == nil {
		err = size.Serve(db, size.Insert)
	}
	slog.Error("the service ended", "error", err)
}
