package outboxfx

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/outboxkit/outbox-go/outbox"
)

// tableUse is the table that an outbox delivers from, as far as it is known.
type tableUse struct {
	outboxName string
	db         *sql.DB
	table      string // empty when the outbox does not deliver, or its store does not tell
	leases     bool
}

// useOf takes the outbox too, so that it is the outbox that an error names when
// something that it needs is missing.
func (m *module) useOf(_ *outbox.Outbox, p parts) tableUse {
	use := tableUse{outboxName: m.name, db: p.db, leases: p.config.Mode == MultiNode}
	if s, tells := p.store.(interface{ Table() string }); tells && p.config.Mode != WriterOnly {
		use.table = s.Table()
	}
	return use
}

// sharedTables reports outboxes that would take each other's events: each
// declares those dead that it has no listener for.
func sharedTables(uses []tableUse) error {
	uses = slices.Clone(uses)
	slices.SortFunc(uses, func(a, b tableUse) int { return cmp.Compare(a.outboxName, b.outboxName) })
	var errs []error
	for i, a := range uses {
		for _, b := range uses[i+1:] {
			if a.db == b.db && a.table != "" && a.table == b.table && (!a.leases || !b.leases) {
				errs = append(errs, fmt.Errorf("outboxfx: %s and %s deliver from one table, %s of the same *sql.DB, and would take each other's events; give one another database or table-name",
					describe(a.outboxName), describe(b.outboxName), a.table))
			}
		}
	}
	return errors.Join(errs...)
}
