package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// dataSource provides a database, and the pool of the database for the outbox, under a name.
func dataSource(name, address, file string) fx.Option {
	open := func(lc fx.Lifecycle) (*database.DB, *sql.DB, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		db, err := database.Open(ctx, address, file)
		if err != nil {
			return nil, nil, fmt.Errorf("the data source %s: %w", name, err)
		}
		lc.Append(fx.StopHook(db.Close))
		return db, db.DB, nil
	}
	tag := fmt.Sprintf("name:%q", name)
	return fx.Provide(fx.Annotate(open, fx.ResultTags(tag, tag)))
}
