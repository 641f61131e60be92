package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

const endTransaction = "end it if you know what it is; idle_in_transaction_session_timeout ends forgotten ones"

// transactions looks for old transactions. On PostgreSQL, vacuum removes no row version that ended
// after the snapshot of the oldest transaction was taken. On MySQL, the same holds for purging.
func (p *patient) transactions(ctx context.Context) error {
	if p.dialect == "mysql" {
		return p.innoDBTransactions(ctx)
	}
	var n, hidden int
	var age float64
	var pid sql.NullInt64
	var state sql.NullString
	err := p.one(ctx, `SELECT COUNT(*) FILTER (WHERE old), COUNT(*) FILTER (WHERE hidden), COALESCE(MAX(age) FILTER (WHERE old), 0)::float8,
 (array_agg(pid ORDER BY age DESC) FILTER (WHERE old))[1], (array_agg(state ORDER BY age DESC) FILTER (WHERE old))[1] FROM (
 SELECT pid, state, EXTRACT(EPOCH FROM clock_timestamp() - xact_start) AS age, backend_type IS NULL AS hidden,
  xact_start < clock_timestamp() - CAST($1 AS bigint) * INTERVAL '1 microsecond' AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL OR state LIKE 'idle in%') AS old
 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type IS DISTINCT FROM 'autovacuum worker') AS sessions`,
		[]any{p.Limits.Transaction.Microseconds()}, &n, &hidden, &age, &pid, &state)
	if err != nil {
		return err
	}
	if n > 0 {
		p.report(Warning, fmt.Sprintf("%d transactions are older than %s; the oldest has been open for %s (pid %d, %s), and vacuum removes nothing newer",
			n, p.Limits.Transaction, wholeSeconds(age), pid.Int64, state.String), endTransaction)
	}
	if hidden > 0 {
		p.report(Note, fmt.Sprintf("%d sessions of other users are hidden", hidden), "GRANT pg_read_all_stats to the user of the address")
	}
	others, err := p.otherSnapshots(ctx)
	if err != nil {
		return err
	}
	if n+hidden+others == 0 {
		p.report(OK, fmt.Sprintf("no transaction is older than %s", p.Limits.Transaction), "")
	}
	return nil
}

// otherSnapshots looks for snapshots that no session has.
func (p *patient) otherSnapshots(ctx context.Context) (found int, err error) {
	var prepared, slots int
	err = p.one(ctx, `SELECT (SELECT COUNT(*) FROM pg_prepared_xacts WHERE database = current_database() AND prepared < clock_timestamp() - CAST($1 AS bigint) * INTERVAL '1 microsecond'),
 (SELECT COUNT(*) FROM pg_replication_slots WHERE xmin IS NOT NULL AND age(xmin) > 1000000)`, []any{p.Limits.Transaction.Microseconds()}, &prepared, &slots)
	if err != nil {
		return 0, err
	}
	if prepared > 0 {
		p.report(Warning, fmt.Sprintf("%d prepared transactions are older than %s, and vacuum removes nothing newer", prepared, p.Limits.Transaction), "SELECT gid, prepared FROM pg_prepared_xacts; then COMMIT PREPARED or ROLLBACK PREPARED")
	}
	if slots > 0 {
		p.report(Warning, fmt.Sprintf("%d replication slots hold a snapshot that is over a million transactions old", slots), "SELECT slot_name, active, age(xmin) FROM pg_replication_slots; drop those that nothing uses, and look at the queries on standbys")
	}
	return prepared + slots, nil
}

func (p *patient) innoDBTransactions(ctx context.Context) error {
	var n int
	var age float64
	// trx_started is in the time zone of the server's machine, NOW() is in the time zone of the
	// session.
	const serverNow = "CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')"
	err := p.one(ctx, "SELECT COUNT(*), COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, "+serverNow+")), 0) FROM information_schema.innodb_trx"+
		" WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_started <= "+serverNow+" - INTERVAL ? SECOND", []any{int64(p.Limits.Transaction / time.Second)}, &n, &age)
	// MySQL cannot read that table while a session runs a statement with a character outside of
	// utf8mb3, such as an emoji: error 3854, whatever columns are selected.
	if sqlerr.HasNumber(err, 3854) {
		err = p.one(ctx, "SELECT COUNT(*), COALESCE(MAX(TIMER_WAIT), 0) / 1e12 FROM performance_schema.events_transactions_current"+
			" WHERE STATE = 'ACTIVE' AND THREAD_ID <> PS_CURRENT_THREAD_ID() AND TIMER_WAIT >= ? * 1e12", []any{p.Limits.Transaction.Seconds()}, &n, &age)
	}
	if err != nil {
		return err
	}
	if n == 0 {
		p.report(OK, fmt.Sprintf("no transaction is older than %s", p.Limits.Transaction), "")
		return nil
	}
	p.report(Warning, fmt.Sprintf("%d transactions are older than %s; the oldest has been open for %s, and InnoDB keeps all older versions of rows for it", n, p.Limits.Transaction, wholeSeconds(age)),
		"SELECT trx_mysql_thread_id, trx_started FROM information_schema.innodb_trx; KILL the connection if you know what it is")
	return nil
}

func wholeSeconds(s float64) time.Duration { return time.Duration(s) * time.Second }

// connections checks how many connections are left, to everybody and to this user.
func (p *patient) connections(ctx context.Context) error {
	bounds, err := p.connectionBounds(ctx)
	if err != nil {
		return err
	}
	found := len(p.findings)
	for _, b := range bounds {
		if b.most >= 0 && b.most-b.used < p.Limits.FreeConnections {
			p.report(Warning, fmt.Sprintf("%d of %d connections are in use%s", b.used, b.most, b.whose),
				"raise "+b.setting+", or lower SetMaxOpenConns of the services: docs/how-to/connections.md says how many an outbox needs")
		}
	}
	if len(p.findings) == found {
		p.report(OK, fmt.Sprintf("%d of %d connections are in use", bounds[0].used, bounds[0].most), "")
	}
	return nil
}

// connectionBound is a bound of connections; most is negative if there is none.
type connectionBound struct {
	most, used     int
	whose, setting string
}

func (p *patient) connectionBounds(ctx context.Context) (list []connectionBound, err error) {
	all := connectionBound{setting: "max_connections"}
	if p.dialect == "mysql" {
		var name string
		if err := p.one(ctx, "SELECT @@GLOBAL.max_connections", nil, &all.most); err != nil {
			return nil, err
		}
		if err := p.one(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'", nil, &name, &all.used); err != nil {
			return nil, err
		}
		own := connectionBound{whose: " by this user", setting: "MAX_USER_CONNECTIONS of the user, and max_user_connections of the server"}
		// The session's value is that of the user, or else that of the server; zero is no bound.
		if err := p.one(ctx, "SELECT @@SESSION.max_user_connections", nil, &own.most); err != nil || own.most == 0 {
			return []connectionBound{all}, err
		}
		own.used, err = p.ownConnections(ctx)
		return []connectionBound{all, own}, err
	}
	role := connectionBound{whose: " by this role", setting: "CONNECTION LIMIT of the role"}
	database := connectionBound{whose: " in this database", setting: "CONNECTION LIMIT of the database"}
	err = p.one(ctx, `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int, COUNT(*) FILTER (WHERE backend_type IS NULL OR backend_type = 'client backend'),
 (SELECT CASE WHEN rolsuper THEN -1 ELSE rolconnlimit END FROM pg_roles WHERE rolname = session_user), COUNT(*) FILTER (WHERE usename = session_user),
 (SELECT datconnlimit FROM pg_database WHERE datname = current_database()), COUNT(*) FILTER (WHERE datname = current_database() AND (backend_type IS NULL OR backend_type = 'client backend'))
 FROM pg_stat_activity`, nil, &all.most, &all.used, &role.most, &role.used, &database.most, &database.used)
	return []connectionBound{all, role, database}, err
}

// ownConnections counts the connections of this user on MySQL. It does not read the information schema,
// which fails while a session runs a statement with a character outside of utf8mb3, as in
// innoDBTransactions.
func (p *patient) ownConnections(ctx context.Context) (n int, err error) {
	var account string
	if err := p.one(ctx, "SELECT USER()", nil, &account); err != nil {
		return 0, err
	}
	name, _, _ := strings.Cut(account, "@")
	err = p.each(ctx, "SHOW PROCESSLIST", nil, func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		var user string
		into := make([]any, len(columns))
		for i := range into {
			into[i] = new(sql.RawBytes)
		}
		into[1] = &user
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if user == name {
			n++
		}
		return nil
	})
	return n, err
}
