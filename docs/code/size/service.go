// Package size is a service without an outbox. docs/reference/size.md says how much an outbox adds.
package size

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
)

// Order is a row of the service.
type Order struct{ ID, Item string }

// Serve takes orders. Each is placed in a transaction.
func Serve(db *sql.DB, place func(ctx context.Context, tx *sql.Tx, o Order) error) error {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	http.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o Order
		err := json.NewDecoder(r.Body).Decode(&o)
		if err == nil {
			err = inTx(r.Context(), db, func(tx *sql.Tx) error { return place(r.Context(), tx, o) })
		}
		if err != nil {
			slog.ErrorContext(r.Context(), "placing an order", "error", err)
			http.Error(w, "not placed", http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(o)
	})
	return http.ListenAndServe(":8080", nil)
}

func inTx(ctx context.Context, db *sql.DB, run func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := run(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Insert stores an order, if it is new.
func Insert(ctx context.Context, tx *sql.Tx, o Order) error {
	known := false
	err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM orders WHERE id = $1)", o.ID).Scan(&known)
	if err != nil || known {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", o.ID, o.Item)
	return err
}
