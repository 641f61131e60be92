package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// decodeError is a codec's error without what it may quote of the payload, or of
// headers, such as the number that does not fit or the text that is no date.
type decodeError struct{ err error }

func (e *decodeError) Unwrap() error { return e.err }

func (e *decodeError) Error() string {
	var mismatch *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(e.err, &mismatch):
		kind, _, _ := strings.Cut(mismatch.Value, " ") // "number 4111…"
		field := ""
		if mismatch.Field != "" {
			field = " field " + mismatch.Field
		}
		return fmt.Sprintf("a JSON %s at offset %d does not fit%s of type %s", kind, mismatch.Offset, field, mismatch.Type)
	case errors.As(e.err, &syntax):
		return fmt.Sprintf("a JSON syntax error at offset %d", syntax.Offset)
	default:
		return fmt.Sprintf("%T (what it says is left out, for it may quote what it decoded)", e.err)
	}
}
