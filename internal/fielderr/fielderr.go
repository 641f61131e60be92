// Package fielderr is for constructors that call another constructor of this module.
package fielderr

import (
	"errors"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// Rename makes the errors of a constructor name the function that the user called: in each
// [*outbox.FieldError] of err, the field "from db" becomes "to db". The errors must be the
// caller's own: Rename changes them.
func Rename(err error, from, to string) error {
	errs := []error{err}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		errs = joined.Unwrap()
	}
	for _, err := range errs {
		var field *outbox.FieldError
		if errors.As(err, &field) {
			if parameter, ok := strings.CutPrefix(field.Field, from+" "); ok {
				field.Field = to + " " + parameter
			}
		}
	}
	return err
}
