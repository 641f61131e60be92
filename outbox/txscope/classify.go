package txscope

import (
	"errors"
	"reflect"
	"slices"
	"strings"
)

// Classify says what a COMMIT that returned err did. Only an answer from the
// server itself is definite: nil is [Committed], an error of PostgreSQL whose
// SQLSTATE is not one of a lost connection or a shutdown is [RolledBack], and
// so are the errors with which MySQL and SQLite refuse a COMMIT. All else is
// [Unknown], [database/sql.ErrTxDone] and [database/sql/driver.ErrBadConn]
// included: the first means that somebody else ended the transaction, the
// second that the connection broke, perhaps after COMMIT took effect.
//
// No driver is imported: the codes are found by the methods and fields that the
// drivers' errors have.
func Classify(err error) Outcome {
	if err == nil {
		return Committed
	}
	outcome := Unknown
	walk(err, func(err error) bool {
		if state, ok := sqlState(err); ok {
			if !indefiniteState(state) {
				outcome = RolledBack
			}
			return true
		}
		if number, ok := mysqlNumber(err); ok {
			if slices.Contains(mysqlRefusals, number) {
				outcome = RolledBack
			}
			return true
		}
		if code, ok := sqliteCode(err); ok {
			if slices.Contains(sqliteRefusals, code&0xff) {
				outcome = RolledBack
			}
			return true
		}
		if refusedFailedTransaction(err) {
			outcome = RolledBack
			return true
		}
		return false
	})
	return outcome
}

// IsDeadlock reports whether err is MySQL's error 1213, with which the server
// has rolled the whole transaction back and not only the statement.
func IsDeadlock(err error) bool {
	return hasMySQLNumber(err, 1213)
}

// EndedByServer reports whether err is an error of MySQL or MariaDB after which
// the transaction is gone while the connection lives on, so that the next
// statement would commit by itself: 1213 deadlock, 1206 lock table full, 1020
// record changed since the snapshot.
func EndedByServer(err error) bool {
	return err != nil && hasMySQLNumber(err, 1213, 1206, 1020)
}

func hasMySQLNumber(err error, numbers ...uint16) bool {
	found := false
	walk(err, func(err error) bool {
		number, ok := mysqlNumber(err)
		found = ok && slices.Contains(numbers, number)
		return ok
	})
	return found
}

// mysqlRefusals are the errors that say that COMMIT did not happen; unlike
// those of PostgreSQL, the codes of MySQL do not tell by their form: deadlock,
// lock timeout, duplicate or missing rows of deferred checks, read-only
// servers, certification of Galera and of group replication, and TiDB's write
// conflicts.
var mysqlRefusals = []uint16{1020, 1062, 1205, 1206, 1213, 1290, 1451, 1452, 1614, 1792, 1836, 3101, 8002, 8022, 8028, 9007}

// sqliteRefusals are BUSY, LOCKED, FULL and CONSTRAINT. SQLite would leave the
// transaction open after most of them; the drivers then roll it back.
var sqliteRefusals = []int{5, 6, 13, 19}

// indefiniteState reports whether the SQLSTATE leaves open what became of the
// transaction: lost connection, shutdown, "statement completion unknown".
func indefiniteState(state string) bool {
	return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P") || state == "40003"
}

// sqlState is the SQLSTATE of an error of pgx, lib/pq (a method SQLState) or
// pgdriver (a method Field that has it under 'C').
func sqlState(err error) (string, bool) {
	var state string
	switch e := err.(type) { //nolint:errorlint // walk visits the wrapped errors one by one.
	case interface{ SQLState() string }:
		state = e.SQLState()
	case interface{ Field(byte) string }:
		state = e.Field('C')
	}
	return state, len(state) == 5
}

// hasState reports whether the error has that SQLSTATE.
func hasState(err error, state string) bool {
	found := false
	walk(err, func(err error) bool {
		got, ok := sqlState(err)
		found = ok && got == state
		return ok
	})
	return found
}

// mysqlNumber is the field Number of go-sql-driver's error.
func mysqlNumber(err error) (uint16, bool) {
	field := structField(err, "Number")
	if !field.IsValid() || field.Kind() != reflect.Uint16 {
		return 0, false
	}
	return uint16(field.Uint()), true //nolint:gosec // the kind is uint16.
}

// sqliteCode is the method Code of modernc's error or the field Code of
// mattn's. Other errors have such ones too, so the package has to be SQLite's.
func sqliteCode(err error) (int, bool) {
	typ := reflect.TypeOf(err)
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if !strings.Contains(typ.PkgPath(), "sqlite") {
		return 0, false
	}
	if coder, ok := err.(interface{ Code() int }); ok { //nolint:errorlint // as in sqlState.
		return coder.Code(), true
	}
	if field := structField(err, "Code"); field.IsValid() && field.CanInt() {
		return int(field.Int()), true
	}
	return 0, false
}

func structField(err error, name string) reflect.Value {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

// refusedFailedTransaction recognises what pgx and lib/pq return when
// PostgreSQL answered COMMIT with ROLLBACK because a statement had failed. It is
// no server error and has no SQLSTATE, only its text.
func refusedFailedTransaction(err error) bool {
	text := err.Error()
	return text == "commit unexpectedly resulted in rollback" ||
		strings.EqualFold(text, "pq: could not complete operation in a failed transaction")
}

// walk visits err and what it wraps until visit returns true.
func walk(err error, visit func(error) bool) bool {
	for err != nil {
		if visit(err) {
			return true
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // this is the walk.
			for _, e := range many.Unwrap() {
				if walk(e, visit) {
					return true
				}
			}
			return false
		}
		err = errors.Unwrap(err)
	}
	return false
}
