package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of the search for a pooler.
const (
	poolerTries    = 3               // other clients may take the server in between
	poolerPatience = 5 * time.Second // for two connections, which may be in use
)

const poolerWayOut = "; the connections seem to lead through a pooler in transaction mode, such as PgBouncer's, which loses prepared statements: with pgx add default_query_exec_mode=exec to the DSN, or set max_prepared_statements of PgBouncer 1.21 or newer"

// errTwoParts says why a driver cannot work behind a pooler.
var errTwoParts = errors.New("the connections lead through a pooler in transaction mode, such as PgBouncer's, and the driver sends a statement in two parts, between which the pooler may change the server: with lib/pq add binary_parameters=yes to the DSN, with pgx default_query_exec_mode=exec")

// poolerQuestion asks for the server's process; whether this statement was parsed before the
// transaction in which the statement runs, so that the pooler may have changed the server
// meanwhile; and whether the statement has a name, so that the statement outlives the transaction.
// PostgreSQL lists the portal of a statement of the extended protocol as a cursor. The cursor is as
// old as the transaction only if nothing was parsed in the transaction. The argument makes drivers
// use the extended protocol, if they ever do. The number keeps the statement apart from statements
// that other processes, and earlier tries, left behind on the server's connection.
const poolerQuestion = `SELECT pg_backend_pid(),
 EXISTS (SELECT FROM pg_cursors WHERE name = '' AND creation_time = transaction_timestamp()),
 EXISTS (SELECT FROM pg_prepared_statements WHERE NOT from_sql AND statement LIKE '%%outbox asks %d%%' AND $1 <> '')`

// sqlPool is an [outbox.DB] with two further methods of *sql.DB.
type sqlPool interface {
	outbox.DB
	Conn(ctx context.Context) (*sql.Conn, error)
	Stats() sql.DBStats
}

// checkPooler reports a driver that would fail now and then, because the connections lead through a
// pooler that gives each transaction another server. checkPooler returns nil if it cannot find out,
// for example because the pool has no second connection.
func (s *Store) checkPooler(ctx context.Context, db outbox.DB) error {
	pool, ok := db.(sqlPool)
	if !ok || s.d != postgres || pool.Stats().MaxOpenConnections == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, poolerPatience)
	defer cancel()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	for range poolerTries {
		question := fmt.Sprintf(poolerQuestion, rand.Uint64())
		own, err := askForPooler(ctx, conn, question)
		if err != nil || !own.earlier { // in a single part
			return lostStatement(err)
		}
		other, err := askInTx(ctx, pool, question)
		switch {
		case err != nil:
			return lostStatement(err)
		case own.server != other.server: // no pooler, or another client was faster
		case own.named:
			return nil // the second connection found its statement: the pooler keeps statements
		default:
			return errTwoParts
		}
	}
	return nil
}

// lostStatement returns err if err says that a named statement does not exist, or existed before it
// was prepared.
func lostStatement(err error) error {
	if isLostStatement(err) {
		return err
	}
	return nil
}

func isLostStatement(err error) bool {
	return sqlerr.HasState(err, "26000") || sqlerr.HasState(err, "42P05")
}

// servedBy is the answer to poolerQuestion.
type servedBy struct {
	server         int
	earlier, named bool
}

func askForPooler(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, question string,
) (by servedBy, err error) {
	err = db.QueryRowContext(ctx, question, "x").Scan(&by.server, &by.earlier, &by.named)
	return by, err
}

// askInTx asks in a transaction, which keeps the server.
func askInTx(ctx context.Context, db outbox.DB, question string) (servedBy, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return servedBy{}, err
	}
	defer func() { _ = tx.Rollback() }()
	return askForPooler(ctx, tx, question)
}
