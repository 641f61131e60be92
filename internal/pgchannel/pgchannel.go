// Package pgchannel names the channel of an outbox table for LISTEN and NOTIFY on
// PostgreSQL. The name is outbox_ and the table's object identifier, so that the
// search path, quotes and long names make no difference, and tables of one name in
// several schemas have different channels.
package pgchannel

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// Dialect is that of the stores whose tables have a channel.
const Dialect = "postgres"

const channel = "'outbox_' || to_regclass($1)::oid"

// Name asks the database for the channel of a table.
func Name(ctx context.Context, db outbox.DB, table string) (string, error) {
	name, err := queryName(ctx, db, table)
	if err != nil {
		return "", fmt.Errorf("asking for the channel of table %s: %w", table, err)
	}
	return name, nil
}

func queryName(ctx context.Context, db outbox.DB, table string) (string, error) {
	rows, err := db.QueryContext(ctx, "SELECT "+channel, quote(table))
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	var name sql.NullString
	for rows.Next() {
		if err := rows.Scan(&name); err != nil {
			return "", err
		}
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	if !name.Valid {
		return "", errors.New("the table does not exist, or is not in the search path")
	}
	return name.String, nil
}

// Notify sends a notification to the channel of a table.
func Notify(ctx context.Context, db outbox.DB, table string) error {
	if _, err := db.ExecContext(ctx, "SELECT pg_notify("+channel+", '')", quote(table)); err != nil {
		return fmt.Errorf("notifying the channel of table %s: %w", table, err)
	}
	return nil
}

// quote makes table or schema.table an SQL name.
func quote(table string) string {
	return `"` + strings.Replace(strings.ReplaceAll(table, `"`, `""`), ".", `"."`, 1) + `"`
}
