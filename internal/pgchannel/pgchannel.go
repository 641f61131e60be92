// Package pgchannel names the channel of an outbox table for LISTEN and NOTIFY on PostgreSQL. The
// name is outbox_ and the table's name with the schema, which both sides know without asking the
// server. So the channel stays the same when another table takes the name, and tables with the same
// name in several schemas have different channels.
package pgchannel

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// Dialect is the dialect of the stores whose tables have a channel.
const Dialect = "postgres"

// longest is PostgreSQL's limit of a name, in bytes.
const longest = 63

// Name is the channel of a table. A long name is cut, and a hash makes it unique.
func Name(table string) string {
	name := "outbox_" + table
	if len(name) <= longest {
		return name
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(table))
	tail := fmt.Sprintf("_%016x", h.Sum64())
	return strings.ToValidUTF8(name[:longest-len(tail)], "") + tail
}

// Quoted is the name in SQL.
func Quoted(table string) string { return `"` + strings.ReplaceAll(Name(table), `"`, `""`) + `"` }

// Notify sends a notification to the channel of a table.
func Notify(ctx context.Context, db outbox.DB, table string) error {
	if _, err := db.ExecContext(ctx, "SELECT pg_notify($1, '')", Name(table)); err != nil {
		return fmt.Errorf("notifying the channel of table %s: %w", table, err)
	}
	return nil
}
