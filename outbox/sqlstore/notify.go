package sqlstore

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of listening.
const (
	listenPause   = 20 * time.Millisecond // between two reads of the row
	listenTimeout = 5 * time.Second       // of a read
)

// Notify implements [outbox.Notifier]. Notify changes a row of the control table with a single
// statement.
func (s *Store) Notify(ctx context.Context, db outbox.DB, table string) error {
	s = s.of(table)
	q := s.query(256)
	q.add("INSERT INTO ").control(s).add(" (kind, name, value) VALUES ('notify', 'table', ").
		arg(strconv.FormatUint(rand.Uint64(), 10)).add(")").orReplace("value") //nolint:gosec // the value only has to differ from the value before
	_, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "notifying the other processes", q) })
	return err
}

// Listen implements [outbox.Notifier]. Listen reads the row of Notify by primary key, 20 ms after
// the read before, on any connection of db.
func (s *Store) Listen(ctx context.Context, db outbox.DB, table string, wake func()) error {
	s = s.of(table)
	heard, err := s.notification(ctx, db)
	if err != nil {
		return err
	}
	wake()
	for {
		select {
		case <-time.After(listenPause):
		case <-ctx.Done():
			return ctx.Err()
		}
		latest, err := s.notification(ctx, db)
		if err != nil {
			return err
		}
		if latest != heard {
			heard = latest
			wake()
		}
	}
}

// notification reads the value of the latest notification; empty: no notification yet.
func (s *Store) notification(ctx context.Context, db outbox.DB) (value string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	q := s.query(128)
	q.add("SELECT value FROM ").control(s).add(" WHERE kind = 'notify' AND name = 'table'")
	var text sql.NullString
	err = s.rows(ctx, db, "listening for notifications", q, scanInto(&text))
	return text.String, err
}

// of returns the store of another table, which takes turns with this store. A notifier is given the
// table of each outbox that it serves.
func (s *Store) of(table string) *Store {
	schema, name := "", table
	if i := strings.LastIndexByte(table, '.'); i >= 0 {
		schema, name = table[:i], table[i+1:]
	}
	other := newStore(s.d, []Option{WithTable(name)})
	other.turn = s.turn
	other.asGiven.table.Schema = schema // the schema as the database names it
	return other
}
