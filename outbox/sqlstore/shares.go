package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/outboxkit/outbox-go/outbox"
)

// sharesRow is the row of the control table with the shares of processes in the limits of a kind.
func sharesRow(kind outbox.EventKind) sharedRow { return sharedRow{"shares", kindName(kind)} }

// Shares implements [outbox.Store].
func (s *Store) Shares(ctx context.Context, db outbox.DB, kind outbox.EventKind) (outbox.Shares, error) {
	version, value, now, err := s.readShared(ctx, db, "reading the shares of "+kind.String(), sharesRow(kind))
	return outbox.Shares{Version: version.String, Now: now, Value: value.String}, err
}

// AllShares implements [outbox.Store].
func (s *Store) AllShares(ctx context.Context, db outbox.DB) ([]outbox.Shares, error) {
	var list []outbox.Shares
	q := s.query(256).add("SELECT ")
	if s.d.now == "" {
		q.now()
	} else {
		q.timeColumn(s.d.now)
	}
	q.add(", owner, value FROM ").control(s).add(" WHERE kind = 'shares' AND owner IS NOT NULL")
	err := s.rows(ctx, db, "reading the shares of all kinds", q, func(rows *sql.Rows) error {
		var clock timestamp
		var version, value sql.NullString
		err := rows.Scan(&clock, &version, &value)
		list = append(list, outbox.Shares{Version: version.String, Now: clock.Time, Value: value.String})
		return err
	})
	return list, err
}

// SetShares implements [outbox.Store].
func (s *Store) SetShares(ctx context.Context, db outbox.DB, kind outbox.EventKind, was string, next outbox.Shares) (bool, error) {
	what, err := "setting the shares of "+kind.String(), error(nil)
	if next.Version == "" {
		err = errors.New("they have no version")
	}
	if err = cmp.Or(s.err, err); err != nil {
		return false, s.fail(what, err)
	}
	return s.setShared(ctx, db, what, sharesRow(kind), was, next.Version, next.Value, func(*query) {})
}
