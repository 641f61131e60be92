// Package outboxname says which names outboxes have on the dashboard, where they are part of an address.
package outboxname

import (
	"fmt"
	"strings"
)

// MaxLength is the most characters of a name.
const MaxLength = 64

// Rule says which names are valid.
var Rule = fmt.Sprintf("a name has letters, digits, hyphens, underscores and dots, at most %d, and begins with a letter or a digit", MaxLength)

const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// IsValid reports whether the name may be that of an outbox.
func IsValid(name string) bool {
	return name != "" && len(name) <= MaxLength && strings.Contains(alphanumeric, name[:1]) && strings.Trim(name, alphanumeric+"._-") == ""
}
