package sqlerr

import "reflect"

// IsRefused reports whether the database refused a statement because of a value in it or in the row
// that it makes: a character that the character set does not have, a text longer than the column, a
// check, another constraint, an error that a trigger raises. A retry with the same values fails in
// the same way.
func IsRefused(err error) bool {
	return Walk(err, func(err error) bool {
		if state, ok := State(err); ok {
			return refusedState(state)
		}
		if number, ok := Number(err); ok {
			switch number {
			case 1265, 1366, 1644, 3819, 3988: // the states of these numbers say nothing
				return true
			}
			return refusedState(numberState(err))
		}
		if code, ok := Code(err); ok {
			switch code & 0xff { // SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH
			case 18, 19, 20:
				return true
			}
		}
		return false
	})
}

// refusedState reports whether a SQLSTATE is a refusal: data exceptions, violated constraints,
// values too long for an index, and errors that procedures raise, on PostgreSQL and on MySQL.
func refusedState(state string) bool {
	switch {
	case len(state) != 5:
		return false
	case state == "54000":
		return true
	}
	switch state[:2] {
	case "22", "23", "44", "45", "P0":
		return true
	}
	return false
}

// numberState is the field SQLState of go-sql-driver's error.
func numberState(err error) string {
	field := structField(err, "SQLState")
	if !field.IsValid() || field.Kind() != reflect.Array || field.Type().Elem().Kind() != reflect.Uint8 {
		return ""
	}
	state := make([]byte, field.Len())
	reflect.Copy(reflect.ValueOf(state), field)
	return string(state)
}
