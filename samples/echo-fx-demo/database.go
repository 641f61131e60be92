package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"go.uber.org/fx"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// openDatabase opens the pool. The pool closes when everything else has stopped.
func openDatabase(lc fx.Lifecycle, s Settings) (*database.DB, *sql.DB, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	db, err := database.Open(ctx, s.DatabaseURL, filepath.Join(s.DataDir, "demo.db"))
	if err != nil {
		return nil, nil, err
	}
	lc.Append(fx.StopHook(func() {
		if err := db.Close(); err != nil { // the server has closed a connection before
			slog.Info("closing the database", "error", err)
		}
	}))
	return db, db.DB, nil
}

// openGORM uses the pool with GORM and creates the table of orders.
func openGORM(pool *database.DB) (*gorm.DB, error) {
	db, err := gorm.Open(pool.Dialector(), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	if err := db.Set("gorm:table_options", pool.TableOptions()).AutoMigrate(&Order{}); err != nil {
		return nil, fmt.Errorf("creating the table of orders in %s: %w", pool.Where, err)
	}
	return db, nil
}
