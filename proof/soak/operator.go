package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxkit/outbox-go/outbox"
)

// operator does the daily work of an operator in a run by events: replaying dead letters, adding
// partitions, and dropping the partitions whose events are all delivered.
type operator struct {
	db    *database
	dead  *outbox.DeadLetters
	every time.Duration // the time of a partition
	keep  time.Duration // how long a partition stays after that time
	drops *meter        // how long the drops take from the lock of the table on
	parts []partition
	next  time.Time // where the next partition begins
}

// partition is a part of the table.
type partition struct {
	name string
	upto time.Time
}

// ahead is the least time for which there are partitions.
const ahead = 2 * time.Second

// partitioned replaces the empty table by a table in partitions with the same columns, and returns
// the storage parameters, which each partition gets. The primary key of each partition is the event
// id. With the key (event_id, created_at) of the whole table, PostgreSQL expects many rows with the
// same id in a partition without statistics, and reads the whole partition to store outcomes.
func (db *database) partitioned(ctx context.Context) (settings string, err error) {
	err = db.QueryRowContext(ctx, "SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE oid = 'outbox_event'::regclass").Scan(&settings)
	if err != nil {
		return "", err
	}
	for _, statement := range []string{
		"ALTER TABLE outbox_event RENAME TO outbox_plain",
		"CREATE TABLE outbox_event (LIKE outbox_plain INCLUDING DEFAULTS) PARTITION BY RANGE (created_at)",
		"DROP TABLE outbox_plain",
		"CREATE TABLE outbox_event_default PARTITION OF outbox_event (PRIMARY KEY (event_id)) DEFAULT WITH (" + settings + ")",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return "", err
		}
	}
	return settings, db.store.CreateSchema(ctx, db.DB) // the indexes
}

// run does the work until ctx ends, and completes a step that it began. As soon as ended ends,
// nothing has to grow old.
func (p *operator) run(ctx, ended context.Context) error {
	ticks := time.NewTicker(max(p.every/10, 50*time.Millisecond))
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		keep := p.keep
		if ended.Err() != nil {
			keep = 0
		}
		if err := p.step(context.WithoutCancel(ctx), keep); err != nil {
			return err
		}
	}
}

// step does the work that is to be done now. Dead letters are replayed in half the time that
// partitions stay.
func (p *operator) step(ctx context.Context, keep time.Duration) error {
	if err := p.add(ctx); err != nil {
		return fmt.Errorf("adding a partition: %w", err)
	}
	if _, err := p.dead.ReplayAll(ctx, outbox.DeadFilter{Until: time.Now().Add(-keep / 2)}, 0); err != nil {
		return err
	}
	if err := p.drop(ctx, time.Now().Add(-keep)); err != nil {
		return fmt.Errorf("dropping a partition: %w", err)
	}
	return nil
}

// add adds partitions until there are some for the time ahead. Where the default partition has rows
// already, there is no partition.
func (p *operator) add(ctx context.Context) error {
	if p.next.IsZero() {
		p.next = time.Now().Truncate(time.Second)
	}
	for upto := time.Now().Add(max(2*p.every, ahead)); p.next.Before(upto); p.next = p.next.Add(p.every) {
		from, part := p.next, partition{name: fmt.Sprintf("outbox_event_%d", p.next.UnixMilli()), upto: p.next.Add(p.every)}
		done, err := p.locked(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, fmt.Sprintf("CREATE TABLE %s PARTITION OF outbox_event (PRIMARY KEY (event_id)) FOR VALUES FROM ('%s') TO ('%s') WITH (%s)",
				part.name, from.UTC().Format(time.RFC3339Nano), part.upto.UTC().Format(time.RFC3339Nano), p.db.settings))
			return err
		})
		var pg *pgconn.PgError
		switch {
		case done:
			p.parts = append(p.parts, part)
		case !errors.As(err, &pg) || pg.Code != "23514": // a row of the default partition belongs there
			return err
		}
	}
	return nil
}

// drop drops the partitions whose time was over by then, except those with events that are not
// delivered and with dead letters.
func (p *operator) drop(ctx context.Context, by time.Time) error {
	var stay []partition
	defer func() { p.parts = append(stay, p.parts...) }()
	for len(p.parts) > 1 && !p.parts[0].upto.After(by) {
		part := p.parts[0]
		dropped, err := p.dropOne(ctx, part.name)
		if err != nil {
			return err
		}
		p.parts = p.parts[1:]
		if !dropped {
			stay = append(stay, part)
		}
	}
	return nil
}

// undelivered asks whether a partition has to stay. The order makes PostgreSQL read an index for
// each half, also when the statistics are old.
const undelivered = "SELECT EXISTS (SELECT FROM (SELECT FROM %[1]s WHERE status IN (0, 2) ORDER BY available_at LIMIT 1) AS due)" +
	" OR EXISTS (SELECT FROM (SELECT FROM %[1]s WHERE status = 3 ORDER BY COALESCE(done_at, created_at) LIMIT 1) AS dead)"

var errStays = errors.New("the partition has to stay")

// dropOne asks before it locks the table: the first reader of the index passes the entries of all
// delivered events, and marks them for the second reader, who keeps writers waiting.
func (p *operator) dropOne(ctx context.Context, name string) (bool, error) {
	stay := func(row func(ctx context.Context, query string, args ...any) *sql.Row) error {
		var stays bool
		err := row(ctx, fmt.Sprintf(undelivered, name)).Scan(&stays)
		if err == nil && stays {
			err = errStays
		}
		return err
	}
	err := stay(p.db.QueryRowContext)
	if err != nil {
		return false, ignore(err, errStays)
	}
	// Otherwise an autovacuum of the partition would keep the lock of the whole table waiting for
	// deadlock_timeout, a second, until PostgreSQL cancels the autovacuum.
	if _, err := p.db.ExecContext(ctx, "ALTER TABLE "+name+" SET (autovacuum_enabled = false)"); err != nil {
		return false, err
	}
	var began time.Time
	dropped, err := p.locked(ctx, func(tx *sql.Tx) error {
		// Parent first, as queries lock.
		if _, err := tx.ExecContext(ctx, "LOCK TABLE ONLY outbox_event IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		began = time.Now()
		if _, err := tx.ExecContext(ctx, "LOCK TABLE "+name+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		if err := stay(tx.QueryRowContext); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DROP TABLE "+name)
		return err
	})
	if dropped {
		p.drops.add(time.Since(began))
	}
	return dropped, ignore(err, errStays)
}

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// locked runs a transaction that locks the table. done is false without an error when the table
// was busy for too long: the next step tries again.
func (p *operator) locked(ctx context.Context, fn func(tx *sql.Tx) error) (done bool, err error) {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	_, err = tx.ExecContext(ctx, "SET LOCAL lock_timeout = '2s'")
	if err == nil {
		err = fn(tx)
	}
	if err == nil {
		err = tx.Commit()
		return err == nil, err
	}
	_ = tx.Rollback()
	var pg *pgconn.PgError
	if errors.As(err, &pg) && strings.Contains("55P03 40P01", pg.Code) { // lock_timeout, a deadlock
		return false, nil
	}
	return false, err
}
