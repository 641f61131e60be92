package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/internal/logread"
	"github.com/outboxkit/outbox-go/internal/sqlname"
)

// Setup stores the position, and publishes the events that are in the tables and not DONE or DEAD. Run Setup
// once, beside the migrations. If the position exists, Setup checks it and the server, and publishes nothing.
//
// The position is where the tables were read. Each event is among the events that Setup publishes, or in the
// log after the position; on MySQL an event that is written meanwhile may be in both. If Setup fails or
// the process dies, there is no position, and Setup can run again; it then publishes all events again.
// Meanwhile the tables can be written.
//
// After [ErrNoPosition] and [ErrPositionLost] Setup is the way out: it publishes each event that is still in a
// table, also an event that was published from the log. Set the status of rows that were published for
// certain to 1 before, and keep rows long enough (outbox.PurgeOptions). Events whose rows are deleted and
// whose log is lost are gone.
func (r *Reader) Setup(ctx context.Context) error {
	s, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	tables, err := s.check(ctx)
	if err != nil {
		return err
	}
	was, err := s.load(ctx)
	if err == nil {
		return s.probe(ctx, was, tables)
	}
	if !errors.Is(err, ErrNoPosition) {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	n, err := s.pending(ctx, tables)
	if err != nil {
		return fmt.Errorf("setting up reader %q: %w", r.cfg.Name, err)
	}
	r.out.Logger.InfoContext(ctx, "cdc: the position was stored", "reader", r.cfg.Name, "published", n)
	return nil
}

// probe asks for the log after a position, and takes nothing of it.
func (s *session) probe(ctx context.Context, p stored, tables map[string]bool) error {
	from, err := parsePosition(s.mariadb, p.GTIDs)
	if err != nil {
		return fmt.Errorf("binlog: reading the position: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, silence*s.r.cfg.Keepalive)
	defer cancel()
	d, err := s.dump(ctx, anyServerID(), from, tables) // the reader may be running
	if err != nil {
		return err
	}
	d.close()
	return nil
}

// pending publishes the events of the tables as they are at a position, and stores the position.
func (s *session) pending(ctx context.Context, tables map[string]bool) (n int, err error) {
	gtids, err := s.snapshot(ctx)
	if err != nil {
		return 0, fmt.Errorf("binlog: reading the position: %w", err)
	}
	p := stored{GTIDs: gtids}
	if err := s.conn.QueryRowContext(ctx, "SELECT UNIX_TIMESTAMP()").Scan(&p.At); err != nil {
		return 0, fmt.Errorf("binlog: reading the position: %w", err)
	}
	if err := s.probe(ctx, p, tables); err != nil { // before anything is published
		return 0, err
	}
	for i := range s.r.tables {
		if err := s.publish(ctx, s.r.tables[i], &n); err != nil {
			return n, fmt.Errorf("binlog: publishing the events of %s: %w", s.r.cfg.Tables[i], err)
		}
	}
	if _, err := s.conn.ExecContext(ctx, "COMMIT"); err != nil {
		return n, fmt.Errorf("binlog: %w", err)
	}
	return n, s.begin(ctx, p)
}

// snapshot begins a transaction that sees each event before a position, and returns the position.
//
// MySQL adds a transaction to gtid_executed after it has committed, so the position is read before the
// tables. MariaDB adds a transaction to gtid_binlog_pos before it commits, and has a snapshot whose position
// is exact.
func (s *session) snapshot(ctx context.Context) (gtids string, err error) {
	if !s.mariadb {
		if err := s.conn.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&gtids); err != nil {
			return "", err
		}
	}
	for _, statement := range []string{
		fmt.Sprintf("SET SESSION net_write_timeout = %d", patience), // the broker may be away between two rows
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
		"START TRANSACTION WITH CONSISTENT SNAPSHOT",
	} {
		if _, err := s.conn.ExecContext(ctx, statement); err != nil {
			return "", err
		}
	}
	if s.mariadb {
		var file, offset string
		for name, target := range map[string]*string{"binlog_snapshot_file": &file, "binlog_snapshot_position": &offset} {
			if err := s.conn.QueryRowContext(ctx, "SHOW SESSION STATUS LIKE '"+name+"'").Scan(&name, target); err != nil {
				return "", err
			}
		}
		var found sql.NullString
		if err := s.conn.QueryRowContext(ctx, "SELECT BINLOG_GTID_POS(?, ?)", file, offset).Scan(&found); err != nil {
			return "", err
		}
		if !found.Valid {
			return "", fmt.Errorf("the server has no GTID for %s, %s of its log", file, offset)
		}
		gtids = found.String
	}
	p, err := parsePosition(s.mariadb, gtids)
	return p.String(), err
}

// publish publishes the events of a table, in the order in which they happened.
func (s *session) publish(ctx context.Context, table sqlname.Name, n *int) error {
	rows, err := s.conn.QueryContext(ctx, "SELECT "+logread.Columns+" FROM "+table.Quoted("`")+" WHERE status IN (0, 2) ORDER BY created_at, event_id")
	if err != nil {
		return s.tableError("reading the table", err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, targets := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	var batch []logread.Event
	bytes := 0
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		var r logread.Row
		for i, column := range columns {
			if values[i] != nil {
				logread.Setters[column](&r, string(values[i]))
			}
		}
		event := r.Event(layout)
		batch, bytes = append(batch, event), bytes+event.Size()
		if len(batch) >= s.r.out.BatchSize || bytes >= s.r.out.BatchBytes {
			if err := s.r.publishAll(ctx, batch); err != nil {
				return err
			}
			*n += len(batch)
			batch, bytes = nil, 0
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	*n += len(batch)
	return s.r.publishAll(ctx, batch)
}
