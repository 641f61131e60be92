package sqlstore

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// table is a checked table name.
type table struct{ schema, name string }

// maxIdentifier is PostgreSQL's limit, the smallest.
const maxIdentifier = 63

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func parseTable(name string) (table, error) {
	t := table{name: name}
	if schema, rest, qualified := strings.Cut(name, "."); qualified {
		t = table{schema: schema, name: rest}
		if !validIdentifier(schema) {
			return table{}, badTable(name)
		}
	}
	if !validIdentifier(t.name) {
		return table{}, badTable(name)
	}
	return t, nil
}

func validIdentifier(s string) bool { return len(s) <= maxIdentifier && identifier.MatchString(s) }

func badTable(name string) error {
	return &outbox.FieldError{Field: "sqlstore.WithTable", Problem: fmt.Sprintf(
		"is given %.100q (%d bytes); a table name is letters, digits and underscores, at most %d of them, not starting with a digit, optionally schema.table",
		name, len(name), maxIdentifier)}
}

func (t table) String() string {
	if t.schema != "" {
		return t.schema + "." + t.name
	}
	return t.name
}

// quoted is the name in quotes of the dialect.
func (t table) quoted(quote string) string {
	if t.schema != "" {
		return quote + t.schema + quote + "." + quote + t.name + quote
	}
	return quote + t.name + quote
}

// index is the name of one of the table's indexes.
func (t table) index(suffix string) string { return t.derived("idx_", suffix) }

// control is the control table, in the schema of the table.
func (t table) control() table { return table{schema: t.schema, name: t.derived("", "control")} }

// derived is a name derived from the table's. A name that is too long is cut, and
// a hash makes it unique.
func (t table) derived(prefix, suffix string) string {
	name := prefix + t.name + "_" + suffix
	if len(name) <= maxIdentifier {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.name))
	tail := fmt.Sprintf("_%08x_%s", h.Sum32(), suffix)
	return prefix + t.name[:maxIdentifier-len(prefix)-len(tail)] + tail
}
