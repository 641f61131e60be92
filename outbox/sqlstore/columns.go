package sqlstore

import (
	"database/sql"
	"fmt"
	"strconv"
	"time"
)

// The types below read a stored column through any driver, and never fail: a row with a value that
// its column should not have must not fail the read of the other rows. A value that does not fit
// becomes a value that no valid row has; [Store.problem] looks for such values.

var _, _, _ sql.Scanner = (*timestamp)(nil), (*count)(nil), (*rowID)(nil)

// timestamp reads a time, and is zero for NULL, and for a value that is not a time in the years 1
// to 9999: JSON has no form for other times.
type timestamp struct{ time.Time }

// timeText is the form of the text of MySQL's DATE_FORMAT.
const timeText = "2006-01-02 15:04:05.999999"

// Scan takes microseconds, a time, or the text of MySQL's DATE_FORMAT, which is in UTC.
func (t *timestamp) Scan(src any) error {
	t.Time = time.Time{}
	var at time.Time
	switch v := src.(type) {
	case int64:
		at = time.UnixMicro(v).UTC()
	case time.Time:
		at = v.UTC()
	case []byte:
		at, _ = time.Parse(timeText, string(v)) // zero if v is not a time
	case string:
		at, _ = time.Parse(timeText, v)
	}
	if year := at.Year(); year >= 1 && year <= 9999 {
		t.Time = at
	}
	return nil
}

// count reads a whole number that is not negative. Anything else becomes -1.
type count int

// Scan takes a number, or its text.
func (c *count) Scan(src any) error {
	n, err := int64(-1), error(nil)
	switch v := src.(type) {
	case int64:
		n = v
	case []byte:
		n, err = strconv.ParseInt(string(v), 10, 64)
	case string:
		n, err = strconv.ParseInt(v, 10, 64)
	}
	if err != nil {
		n = -1
	}
	*c = count(max(n, -1))
	return nil
}

// rowID reads the event id of a row. SQLite may have NULL in a primary key, and in any column
// bytes, which equal no text.
type rowID row

// Scan takes any value.
func (r *rowID) Scan(src any) error {
	switch v := src.(type) {
	case string:
		r.id, r.bytesID = v, false
	case []byte:
		r.id, r.bytesID = string(v), true
	case nil:
		r.id, r.bytesID = "", false
	default:
		r.id, r.bytesID = fmt.Sprint(v), false
	}
	return nil
}
