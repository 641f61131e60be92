package outboxfx

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// tableUse is the table that an outbox delivers from, as far as it is known. Each
// outbox of the app has one, also when it delivers from none.
type tableUse struct {
	outboxName string
	db         *sql.DB
	table      string // empty when the outbox does not deliver, or its store does not tell
	same       string // is equal for two spellings of one table
	leases     bool
	drain      *drain
}

// useOf takes the outbox too, so that it is the outbox that an error names when
// something that it needs is missing.
func (m *module) useOf(_ *outbox.Outbox, p parts) tableUse {
	use := tableUse{outboxName: m.name, db: p.db, leases: p.config.Mode == MultiNode, drain: &drain{}}
	if s, tells := p.store.(interface{ Table() string }); tells && p.config.Mode != WriterOnly {
		use.table = s.Table()
		use.same = tableKey(use.table, p.store)
	}
	return use
}

// tableKey is a table's name without what says nothing: the schema that databases
// look in first, and in SQLite, whose names have no case, the case. MySQL has no
// such schema, and in PostgreSQL names that are quoted, as the store's are, have
// their case.
func tableKey(table string, store outbox.Store) string {
	d, tells := store.(interface{ Dialect() string })
	if !tells {
		return table
	}
	switch d.Dialect() {
	case "sqlite":
		return strings.TrimPrefix(strings.ToLower(table), "main.")
	case "postgres":
		return strings.TrimPrefix(table, "public.")
	default:
		return table
	}
}

// spellings is a table as two outboxes write it.
func spellings(a, b string) string {
	if a == b {
		return a
	}
	return a + " alias " + b
}

// sharedTables reports outboxes that would take each other's events: each
// declares those dead that it has no listener for.
func sharedTables(uses []tableUse) error {
	uses = slices.Clone(uses)
	slices.SortFunc(uses, func(a, b tableUse) int { return cmp.Compare(a.outboxName, b.outboxName) })
	var errs []error
	for i, a := range uses {
		for _, b := range uses[i+1:] {
			if a.db == b.db && a.same != "" && a.same == b.same && (!a.leases || !b.leases) {
				errs = append(errs, fmt.Errorf("outboxfx: %s and %s deliver from one table, %s of the same *sql.DB, and would take each other's events; give one another database or table-name",
					describe(a.outboxName), describe(b.outboxName), spellings(a.table, b.table)))
			}
		}
	}
	return errors.Join(errs...)
}
