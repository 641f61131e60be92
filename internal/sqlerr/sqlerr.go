// Package sqlerr recognises the errors of the supported databases by the methods and fields that
// the drivers' errors have. The package imports no driver.
package sqlerr

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// IsDeadlock reports whether the database picked a transaction as the victim of a deadlock, or
// could not serialize it, and rolled it back: a retry may succeed. The errors are PostgreSQL's
// 40P01 and 40001, and MySQL's 1213, which Galera also returns for a failed certification. MySQL's
// group replication has two more errors of COMMIT: 3101 for a failed certification, and 1180 if a
// transaction of another server took the locks.
func IsDeadlock(err error) bool {
	return err != nil && (HasState(err, "40P01") || HasState(err, "40001") || HasNumber(err, 1213, 3101) || Walk(err, lostLocks))
}

// IsDuplicate reports whether a unique index, or a primary key, has the values of a statement already:
// PostgreSQL's 23505, MySQL's 1062, and SQLite's CONSTRAINT_PRIMARYKEY and CONSTRAINT_UNIQUE. mattn's
// error has these codes in a field of its own.
func IsDuplicate(err error) bool {
	return err != nil && (HasState(err, "23505") || HasNumber(err, 1062) || Walk(err, func(err error) bool {
		code, ok := Code(err)
		if extended := structField(err, "ExtendedCode"); ok && extended.IsValid() && extended.CanInt() {
			code = int(extended.Int())
		}
		return ok && (code == 1555 || code == 2067)
	}))
}

// IsConflict reports whether the database refused a statement, or a COMMIT, because of another
// transaction, so that the whole transaction may succeed when it runs again: [IsDeadlock], MySQL's
// 1205 (lock wait timeout) and 1020 (the row was changed after the snapshot), TiDB's 8002, 8022, 8028
// and 9007, and SQLite's BUSY and LOCKED. PostgreSQL's 55P03 and MySQL's 3572 do not count: NOWAIT
// asks for them.
func IsConflict(err error) bool {
	return IsDeadlock(err) || HasNumber(err, 1205, 1020, 8002, 8022, 8028, 9007) || Walk(err, func(err error) bool {
		code, ok := Code(err)
		return ok && (code&0xff == 5 || code&0xff == 6)
	})
}

// lostLocks reports whether err, without the errors that it wraps, is MySQL's 1180 with the
// storage engine's error 149, a deadlock. With other errors of the storage engine, 1180 does
// not say whether the transaction was rolled back. The message has the number in every
// language.
func lostLocks(err error) bool {
	number, ok := Number(err)
	return ok && number == 1180 && strings.Contains(err.Error(), " 149 ")
}

// IsUnreachable reports whether no server answered, or the server answered that it takes no
// connection now: a later attempt may succeed without a change of the program. Such answers are
// PostgreSQL's 57P01 to 57P03, 53300 and class 08, and MySQL's 1040 and 1053. Any other answer,
// such as a wrong password, does not count.
func IsUnreachable(err error) bool {
	answered, later, silent := false, false, false
	Walk(err, func(err error) bool {
		if state, ok := State(err); ok {
			answered = true
			later = later || strings.HasPrefix(state, "08") || slices.Contains([]string{"57P01", "57P02", "57P03", "53300"}, state)
		}
		if number, ok := Number(err); ok {
			answered = true
			later = later || number == 1040 || number == 1053
		}
		if _, ok := err.(net.Error); ok { //nolint:errorlint // Walk visits the wrapped errors one by one.
			silent = true
		}
		switch err { //nolint:errorlint // as above.
		case io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn, context.DeadlineExceeded:
			silent = true
		}
		// go-sql-driver's ErrInvalidConn has no type of its own.
		silent = silent || err.Error() == "invalid connection"
		return false
	})
	return later || silent && !answered
}

// State is the SQLSTATE of an error of pgx, lib/pq (method SQLState) or pgdriver
// (method Field, key 'C').
func State(err error) (string, bool) {
	var state string
	switch e := err.(type) { //nolint:errorlint // Walk visits the wrapped errors one by one.
	case interface{ SQLState() string }:
		state = e.SQLState()
	case interface{ Field(byte) string }:
		state = e.Field('C')
	}
	return state, len(state) == 5
}

// HasState reports whether the error has the given SQLSTATE.
func HasState(err error, state string) bool {
	found := false
	Walk(err, func(err error) bool {
		got, ok := State(err)
		found = ok && got == state
		return ok
	})
	return found
}

// Number is the field Number of go-sql-driver's error.
func Number(err error) (uint16, bool) {
	field := structField(err, "Number")
	if !field.IsValid() || field.Kind() != reflect.Uint16 {
		return 0, false
	}
	return uint16(field.Uint()), true //nolint:gosec // the kind is uint16.
}

// HasNumber reports whether err is a MySQL error with one of the numbers.
func HasNumber(err error, numbers ...uint16) bool {
	found := false
	Walk(err, func(err error) bool {
		number, ok := Number(err)
		found = ok && slices.Contains(numbers, number)
		return ok
	})
	return found
}

// Code is the method Code of modernc's error or the field Code of mattn's error. Other errors have
// such a method or field too, so the error's package must be a SQLite driver's package.
func Code(err error) (int, bool) {
	typ := reflect.TypeOf(err)
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if !strings.Contains(typ.PkgPath(), "sqlite") {
		return 0, false
	}
	if coder, ok := err.(interface{ Code() int }); ok { //nolint:errorlint // as in State.
		return coder.Code(), true
	}
	if field := structField(err, "Code"); field.IsValid() && field.CanInt() {
		return int(field.Int()), true
	}
	return 0, false
}

// HasCode reports whether err is the given SQLite error.
func HasCode(err error, code int) bool {
	found := false
	Walk(err, func(err error) bool {
		got, ok := Code(err)
		found = ok && got == code
		return ok
	})
	return found
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

// Walk visits err and the errors that it wraps until visit returns true.
func Walk(err error, visit func(error) bool) bool {
	for err != nil {
		if visit(err) {
			return true
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // this is the walk.
			for _, e := range many.Unwrap() {
				if Walk(e, visit) {
					return true
				}
			}
			return false
		}
		err = errors.Unwrap(err)
	}
	return false
}

// errAddress stands for an error that quotes a database's address.
var errAddress = errors.New("the database's address is not valid (it is left out here, for it may hold a password); in a URL, percent-encode special characters of the user name and of the password")

// WithoutAddress returns err, or another error if the text of err quotes the address of a database,
// with the password: an error of parsing a URL does, and an error that contains the given address.
// An empty address is unknown.
func WithoutAddress(err error, address string) error {
	parsing := new(url.Error)
	if errors.As(err, &parsing) || err != nil && address != "" && strings.Contains(err.Error(), address) {
		return errAddress
	}
	return err
}
