package soak

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/outbox"
)

// filled is the type of the events that the background writer writes.
const filled = outbox.EventType("Filled")

// copyRows is how many rows a COPY writes.
const copyRows = 5000

// copyColumns are the columns that the store's INSERT writes for an event without tenant, headers
// and lease.
var copyColumns = []string{"event_id", "event_type", "aggregate_type", "aggregate_id", "payload", "available_at", "created_at", "status", "attempts"}

// copier writes events by COPY, so that about a number of them are always pending.
type copier struct {
	conn    *sql.Conn
	events  *ledger
	pending int
}

// run writes until the ledger has no more numbers, or ctx ends. run fails if there was no room for
// more events for as long as the patience of a run: the events that are pending may be lost.
func (c *copier) run(ctx context.Context) error {
	step := max(min(copyRows, c.pending/2), 1)
	wrote := time.Now()
	for ctx.Err() == nil {
		if n := c.events.sum().pending(); n+step > c.pending {
			if time.Since(wrote) > patience {
				return fmt.Errorf("%d events are pending, and there was no room for %d more in %v", n, step, patience)
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		first, n := c.events.take(step)
		if n == 0 {
			return nil
		}
		if err := c.write(context.WithoutCancel(ctx), first, n); err != nil {
			return fmt.Errorf("writing events by COPY: %w", err)
		}
		c.events.wrote(first, n, nil)
		wrote = time.Now()
	}
	return nil
}

func (c *copier) write(ctx context.Context, first, n int) error {
	text := payload.String()
	rows := pgx.CopyFromSlice(n, func(i int) ([]any, error) {
		number, now := first+i, time.Now()
		return []any{
			fmt.Sprintf("01SOAK%020d", number), string(filled), string(outbox.Global), strconv.Itoa(number), text,
			now, now, int16(outbox.StatusNew), int32(0),
		}, nil
	})
	return c.conn.Raw(func(driver any) error {
		_, err := driver.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{"outbox_event"}, copyColumns, rows)
		return err
	})
}
