package binlog

import (
	"context"
	"fmt"
	"time"
)

// Lag is how far a reader is behind.
type Lag struct {
	// Active reports whether a process reads the log.
	Active bool
	// Transactions is how many transactions of the log are after the stored position. The log is that of all
	// tables and databases of the server. The reader stores its position once a second while it publishes,
	// and else once a minute, so some transactions are always after the position.
	Transactions int64
	// Behind is how long ago the last transaction before the stored position committed, by the server's
	// clock. A reader that is up to date and active is behind by two minutes at most.
	Behind time.Duration
	// Kept is how long the server keeps its log (binlog_expire_logs_seconds), or 0 if it deletes no log by
	// age. A position that is older is lost.
	Kept time.Duration
}

// Lag asks the server how far the reader is behind, on connections that are closed again. Any process with
// the config may ask, also while no reader runs. The errors are also [ErrNoPosition], and
// [ErrPositionLost], in which case Lag has the figures too.
func (r *Reader) Lag(ctx context.Context) (lag Lag, err error) {
	s, err := r.connect(ctx)
	if err != nil {
		return lag, err
	}
	defer s.close()
	was, err := s.load(ctx)
	if err != nil {
		return lag, err
	}
	executed, now, kept := "@@GLOBAL.gtid_executed", int64(0), int64(0)
	if s.mariadb {
		executed = "@@GLOBAL.gtid_binlog_pos"
	}
	var gtids string
	if err := s.conn.QueryRowContext(ctx, "SELECT "+executed+", UNIX_TIMESTAMP(), IS_USED_LOCK(?) IS NOT NULL, "+s.expiry(), r.lockName()).Scan(&gtids, &now, &lag.Active, &kept); err != nil {
		return lag, fmt.Errorf("binlog: reading the server's position: %w", err)
	}
	end, err := parsePosition(s.mariadb, gtids)
	if err != nil {
		return lag, fmt.Errorf("binlog: reading the server's position: %w", err)
	}
	from, err := parsePosition(s.mariadb, was.GTIDs)
	if err != nil {
		return lag, fmt.Errorf("binlog: reading the position: %w", err)
	}
	lag.Transactions = end.after(from)
	lag.Behind = max(0, time.Duration(now-was.At)*time.Second)
	lag.Kept = time.Duration(kept) * time.Second
	tables, err := s.check(ctx)
	if err != nil {
		return lag, err
	}
	return lag, s.probe(ctx, was, tables)
}

// expiry is the variable that says how long the server keeps its log.
func (s *session) expiry() string {
	if s.mariadb {
		return "CAST(@@GLOBAL.expire_logs_days * 86400 AS UNSIGNED)" // also a fraction of a day
	}
	return "@@GLOBAL.binlog_expire_logs_seconds"
}
