package cdc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxkit/outbox-go/internal/logread"
)

// setupSuffix ends the name of the slot that exists while Setup runs.
const setupSuffix = "_setup"

// failoverVersion is the first version of PostgreSQL with failover slots.
const failoverVersion = 170000

// Setup makes the publication and the slot, and publishes the events that are in the tables and not DONE
// or DEAD. Run Setup once, as a role that owns the tables and may create a publication (CREATE on the
// database), beside the migrations. If the slot exists, Setup checks it and the publication, adds tables
// that the publication leaves out, and publishes nothing.
//
// The slot begins where the tables were read: each event is either among the events that Setup publishes
// or in the log after the slot's position. If Setup fails or the process dies, there is no slot, and
// Setup can run again; it then publishes all events again. Setup waits for transactions that began
// before it, which the server needs to make a slot. Meanwhile the tables can be written.
//
// After [ErrNoSlot] and [ErrSlotLost] Setup is the way out: it publishes each event that is still in
// a table, again those that were published from the log. Set the status of rows that were published for
// certain to 1 before, and keep rows long enough (outbox.PurgeOptions). Events whose rows are deleted and
// whose log is lost are gone.
func (r *Reader) Setup(ctx context.Context) error {
	c, err := r.pg.connect(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	tables, err := c.tables(ctx)
	if err != nil {
		return err
	}
	if err := c.publish(ctx, tables); err != nil {
		return err
	}
	_, err = c.slot(ctx, r.pg.Slot)
	if err == nil {
		_, err = c.check(ctx)
		return err
	}
	if !errors.Is(err, ErrNoSlot) {
		return err
	}
	n, err := r.pending(ctx, c, tables)
	if err != nil {
		return fmt.Errorf("cdc: making slot %q: %w", r.pg.Slot, err)
	}
	r.out.Logger.InfoContext(ctx, "cdc: the slot was made", "slot", r.pg.Slot, "published", n)
	return nil
}

// publish makes the publication, or adds tables to it.
func (c *connection) publish(ctx context.Context, tables []table) error {
	inserts, missing, err := c.publication(ctx, tables)
	if err != nil {
		return err
	}
	list := make([]string, len(tables))
	for i, t := range tables {
		list[i] = t.quoted()
	}
	statement := "CREATE PUBLICATION " + c.quoted() + " FOR TABLE " + strings.Join(list, ", ") + " WITH (publish = 'insert', publish_via_partition_root = true)"
	switch {
	case inserts != nil && len(missing) == 0:
		return nil
	case inserts != nil:
		statement = "ALTER PUBLICATION " + c.quoted() + " ADD TABLE " + strings.Join(missing, ", ")
	}
	if _, err := c.conn.Exec(ctx, statement); err != nil {
		var e *pgconn.PgError
		if errors.As(err, &e) && e.Code == "42501" {
			return fmt.Errorf("cdc: %w", notSetUp("the role may not make the publication: %w; run as the tables' owner, with CREATE on the database: %s", err, statement))
		}
		return fmt.Errorf("cdc: making the publication %q: %w", c.pg.Slot, err)
	}
	return nil
}

// pending makes the slot and publishes the events that were committed before its position. A temporary slot
// holds the position meanwhile: if the process dies, the server drops it.
func (r *Reader) pending(ctx context.Context, c *connection, tables []table) (n int, err error) {
	temporary := pgx.Identifier{r.pg.Slot + setupSuffix}.Sanitize()
	if err := c.run(ctx,
		"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
		"CREATE_REPLICATION_SLOT "+temporary+" TEMPORARY LOGICAL pgoutput USE_SNAPSHOT"); err != nil {
		return 0, err
	}
	for _, t := range tables {
		if err := r.snapshot(ctx, c, t, &n); err != nil {
			return n, fmt.Errorf("publishing the events of %s: %w", t.quoted(), err)
		}
	}
	statements := []string{
		"COMMIT",
		fmt.Sprintf("SELECT pg_copy_logical_replication_slot('%s', '%s', false)", r.pg.Slot+setupSuffix, r.pg.Slot),
	}
	if c.version >= failoverVersion && !r.pg.NoFailover {
		statements = append(statements, "ALTER_REPLICATION_SLOT "+c.quoted()+" (FAILOVER true)")
	}
	return n, c.run(ctx, statements...)
}

func (c *connection) run(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := c.conn.PgConn().Exec(ctx, statement).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

// snapshot publishes the events of a table as it was at the slot's position, in the order in which they
// happened.
func (r *Reader) snapshot(ctx context.Context, c *connection, t table, n *int) error {
	if err := c.run(ctx, "DECLARE pending NO SCROLL CURSOR FOR SELECT "+logread.Columns+
		" FROM "+t.quoted()+" WHERE status IN (0, 2) ORDER BY created_at, event_id"); err != nil {
		return err
	}
	for {
		batch, err := c.fetch(ctx, r.out.BatchSize)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return c.run(ctx, "CLOSE pending")
		}
		*n += len(batch)
		if err := r.out.All(ctx, batch); err != nil {
			return err
		}
	}
}

// fetch reads the next events of the cursor.
func (c *connection) fetch(ctx context.Context, limit int) (batch []logread.Event, err error) {
	result := c.conn.PgConn().Exec(ctx, fmt.Sprintf("FETCH %d FROM pending", limit))
	for result.NextResult() {
		rows := result.ResultReader()
		for rows.NextRow() {
			var r logread.Row
			for i, value := range rows.Values() {
				if value != nil {
					logread.Setters[rows.FieldDescriptions()[i].Name](&r, string(value))
				}
			}
			batch = append(batch, r.Event(layout))
		}
	}
	return batch, result.Close()
}
