package txscope

import (
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

// Classify returns the end of a transaction whose COMMIT returned err. Only an answer from the
// server itself is definite: nil is [Committed], an error of PostgreSQL is [RolledBack] unless its
// SQLSTATE means a lost connection or a shutdown, and the errors with which MySQL and SQLite refuse
// a COMMIT are [RolledBack], too. Any other error is [Unknown], [database/sql.ErrTxDone] and
// [database/sql/driver.ErrBadConn] included: the first means that other code ended the transaction,
// the second that the connection broke, perhaps after COMMIT took effect.
//
// No driver is imported: the codes are found by the methods and fields that the
// drivers' errors have.
func Classify(err error) End {
	if err == nil {
		return Committed
	}
	end := Unknown
	sqlerr.Walk(err, func(err error) bool {
		refused, answer := refusesCommit(err)
		if refused {
			end = RolledBack
		}
		return answer
	})
	return end
}

// refusesCommit reports whether err, without the errors that it wraps, says that
// COMMIT did not happen, and whether err is the server's answer at all.
func refusesCommit(err error) (refused, answer bool) {
	if state, ok := sqlerr.State(err); ok {
		return !indefiniteState(state), true
	}
	if number, ok := sqlerr.Number(err); ok {
		return slices.Contains(mysqlRefusals, number) || sqlerr.IsDeadlock(err), true
	}
	if code, ok := sqlerr.Code(err); ok {
		return slices.Contains(sqliteRefusals, code&0xff), true
	}
	refused = refusedFailedTransaction(err)
	return refused, refused
}

// refusesSavepoint reports whether err says that there is no such savepoint, so
// that a ROLLBACK TO undid nothing: 1305 on MySQL, an error of the statement on
// SQLite, any definite error on PostgreSQL.
func refusesSavepoint(err error) bool {
	return Classify(err) == RolledBack || sqlerr.HasNumber(err, 1305) || sqlerr.HasCode(err, 1)
}

// EndedByServer reports whether err is an error of MySQL or MariaDB after which
// the transaction is gone while the connection lives on, so that the next
// statement would commit by itself: 1213 deadlock, 1206 lock table full, 1020
// record changed since the snapshot.
func EndedByServer(err error) bool {
	return err != nil && sqlerr.HasNumber(err, 1213, 1206, 1020)
}

// mysqlRefusals are the errors that say that COMMIT did not happen, apart from the errors of
// [sqlerr.IsDeadlock]; the form of a code of MySQL does not say so, unlike a SQLSTATE of
// PostgreSQL: lock timeout, duplicate or missing rows of deferred checks, read-only servers,
// transactions that group replication does not send to the group (3100), and TiDB's write
// conflicts.
var mysqlRefusals = []uint16{1020, 1062, 1205, 1206, 1290, 1451, 1452, 1614, 1792, 1836, 3100, 8002, 8022, 8028, 9007}

// sqliteRefusals are BUSY, LOCKED, FULL and CONSTRAINT. SQLite would leave the transaction open
// after most of these errors; the drivers then roll the transaction back.
var sqliteRefusals = []int{5, 6, 13, 19}

// indefiniteState reports whether the SQLSTATE leaves the end of the transaction open: lost
// connection, shutdown, "statement completion unknown".
func indefiniteState(state string) bool {
	return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P") || state == "40003"
}

// refusedFailedTransaction recognises the error that pgx and lib/pq return when PostgreSQL answered
// COMMIT with ROLLBACK because a statement had failed. The error is no server error and has no
// SQLSTATE, only a text.
func refusedFailedTransaction(err error) bool {
	text := err.Error()
	return text == "commit unexpectedly resulted in rollback" ||
		strings.EqualFold(text, "pq: could not complete operation in a failed transaction")
}
