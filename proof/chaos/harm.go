package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

// disconnect ends all connections of the run's database.
func (b *base) disconnect(ctx context.Context) error {
	if b.kind == "postgres" {
		return b.exec(ctx, fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'", b.name))
	}
	of := "processlist WHERE db = '" + b.name + "'"
	rows, err := b.admin.QueryContext(ctx, "SELECT id FROM information_schema."+of)
	if sqlerr.HasNumber(err, 3854) { // MySQL, while a statement has a character outside of utf8mb3
		rows, err = b.admin.QueryContext(ctx, "SELECT id FROM performance_schema."+of)
	}
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		_ = b.exec(ctx, fmt.Sprintf("KILL %d", id)) // the connection may have ended
	}
	return rows.Err()
}

// lock holds the outbox's table for a time, or until ctx ends.
func (b *base) lock(ctx context.Context, d time.Duration) error {
	statements := map[string][]string{
		"postgres": {"BEGIN", "LOCK TABLE outbox_event IN ACCESS EXCLUSIVE MODE", "ROLLBACK"},
		"mysql":    {"SET SESSION lock_wait_timeout = 10", "LOCK TABLES outbox_event WRITE", "UNLOCK TABLES"},
		"sqlite":   {"SELECT 1", "BEGIN IMMEDIATE", "ROLLBACK"},
	}[b.kind]
	free := context.WithoutCancel(ctx)
	conn, err := b.db.Conn(free)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, s := range statements[:2] {
		if _, err := conn.ExecContext(free, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	wait(ctx, d)
	_, err = conn.ExecContext(free, statements[2])
	return err
}

// fill keeps the disk full for a time, or until ctx ends.
func (b *base) fill(ctx context.Context, d time.Duration) error {
	name := filepath.Join(b.folder, "ballast")
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(name) }()
	defer func() { _ = file.Close() }()
	block := make([]byte, 4<<10)
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		if _, err := file.Write(block); err != nil { // the file also fills the space that others have freed
			wait(ctx, 10*time.Millisecond)
		}
	}
	return nil
}

// wait waits, until ctx ends at the latest.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
