package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// tables checks the tables, their columns and their version.
func (p *patient) tables(ctx context.Context) error {
	if err := p.Store.Check(ctx, p.DB, false); err != nil {
		if ctx.Err() != nil {
			return err
		}
		seen, wayOut := cutWayOut(err)
		p.report(Failure, seen, wayOut)
		return nil
	}
	version, err := p.Store.SchemaVersion(ctx, p.DB)
	if err != nil {
		return err
	}
	if version > sqlstore.SchemaVersion {
		p.report(Note, fmt.Sprintf("the table has version %d of the schema, which this version %d may use", version, sqlstore.SchemaVersion), "update this command, so that doctor knows the newer schema")
		return nil
	}
	p.report(OK, fmt.Sprintf("%s has all columns, and version %d of the schema", p.table, version), "")
	return nil
}

// cutWayOut splits the text of a store's error: the text ends with the way out.
func cutWayOut(err error) (seen, way string) {
	seen = strings.TrimPrefix(err.Error(), "outbox: ")
	if before, after, found := strings.Cut(seen, "; "); found {
		return before, after
	}
	if at := strings.LastIndex(seen, ": "); at > 0 && strings.Contains(seen[:at], "version") {
		return seen[:at], seen[at+2:]
	}
	return seen, wayOut(err)
}

// claims checks that several processes can claim.
func (p *patient) claims(ctx context.Context) error {
	if p.dialect == "sqlite" {
		p.report(OK, "SQLite has one writer at a time, so claims exclude each other", "")
		return nil
	}
	if err := p.Store.Check(ctx, p.DB, true); err != nil {
		if ctx.Err() != nil {
			return err
		}
		seen, way := cutWayOut(err)
		p.report(Warning, "several processes cannot deliver: "+seen, way+", or deliver with outbox.SingleNode or outbox.Ordered")
		return nil
	}
	p.report(OK, "several processes can deliver", "")
	return nil
}
