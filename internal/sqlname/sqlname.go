// Package sqlname checks and quotes the names of tables.
package sqlname

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Name is a checked table name; Schema may be empty.
type Name struct{ Schema, Name string }

// maxIdentifier is PostgreSQL's limit, the smallest.
const maxIdentifier = 63

const (
	digits  = "0123456789"
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
)

// Parse checks a name of the form table or schema.table. The error is a phrase
// that follows the name of the field.
func Parse(name string) (Name, error) {
	schema, table, qualified := strings.Cut(name, ".")
	if !qualified {
		schema, table = "", name
	}
	if qualified && !valid(schema) || !valid(table) {
		return Name{}, fmt.Errorf("is given %.100q (%d bytes); a table name is letters, digits and underscores, at most %d of them, not starting with a digit, optionally schema.table",
			name, len(name), maxIdentifier)
	}
	return Name{Schema: schema, Name: table}, nil
}

func valid(s string) bool {
	return s != "" && len(s) <= maxIdentifier && !strings.Contains(digits, s[:1]) && strings.Trim(s, letters+digits) == ""
}

func (n Name) String() string {
	if n.Schema != "" {
		return n.Schema + "." + n.Name
	}
	return n.Name
}

// Quoted is the name in quotes of the dialect. A schema that the database named may have
// quotes in it.
func (n Name) Quoted(quote string) string {
	if n.Schema != "" {
		return quote + strings.ReplaceAll(n.Schema, quote, quote+quote) + quote + "." + quote + n.Name + quote
	}
	return quote + n.Name + quote
}

// Index is the name of one of the table's indexes.
func (n Name) Index(suffix string) string { return n.derived("idx_", suffix) }

// Table is another table, named after this table and in the same schema.
func (n Name) Table(suffix string) Name {
	return Name{Schema: n.Schema, Name: n.derived("", suffix)}
}

// derived is a name derived from the table's name. A name that is too long is cut, and a hash makes
// it unique.
func (n Name) derived(prefix, suffix string) string {
	name := prefix + n.Name + "_" + suffix
	if len(name) <= maxIdentifier {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.Name))
	tail := fmt.Sprintf("_%08x_%s", h.Sum32(), suffix)
	return prefix + n.Name[:maxIdentifier-len(prefix)-len(tail)] + tail
}
