package outbox

import (
	"context"
	"fmt"
	"time"
)

// lockedRows is how soon the poller looks again when rows that it read were locked or
// taken, mostly by another node.
const lockedRows = 50 * time.Millisecond

// tenantPolling is what a poller needs for [ClaimOptions].TenantsInTurn. It belongs to
// whoever holds the poller's token.
type tenantPolling struct {
	reader TenantReader
	after  string // the tenant that the last claim ended with
	length int    // how many events of one tenant it took at most
	rounds int    // over all tenants since one had an event that is due
	others bool   // may have events that are due: read on
}

// more reports whether the poller reads on; a nil t does not read tenants in turn.
func (t *tenantPolling) more() bool { return t != nil && t.others }

// requireTenantReader reports a store that cannot read tenants in turn.
func requireTenantReader(v *validator, inTurn bool, store Store) {
	if _, can := store.(TenantReader); inTurn && store != nil && !can {
		v.add("Store", fmt.Sprintf("is a %T, which has no ReadTenants, so it cannot read tenants in turn; take one from package sqlstore, or leave Claim.TenantsInTurn out", store))
	}
}

// claimTenants claims the first events of one tenant after the other.
func (p *Poller) claimTenants(ctx context.Context, q TenantQuery) (b Batch, lease string, err error) {
	read, more, err := p.readTenants(ctx, q)
	if err != nil {
		return Batch{}, "", fmt.Errorf("outbox: reading events of tenants: %w", err)
	}
	if b, lease, err = p.claimThese(ctx, q.Now, read.EventIDs); err != nil {
		return b, lease, err
	}
	p.tenants.after = read.Next
	ids := len(read.EventIDs)
	p.tenants.others = more && (ids == 0 || b.Len() > 0)
	if b.Len() < ids && !p.tenants.others {
		p.agenda.Note(p.clock.Now().Add(lockedRows))
	}
	return b, lease, nil
}

// readTenants reads as many events of each tenant as fill half of the batch together,
// so that no tenant is left out for the many events of another one: it doubles how many it
// takes of a tenant, up to the whole batch. more is false when there are no others that are due.
func (p *Poller) readTenants(ctx context.Context, q TenantQuery) (read Tenants, more bool, err error) {
	t := p.tenants
	q.After = t.after
	found := 0
	for q.Length = min(max(1, t.length/2), q.Limit); ; q.Length = min(2*q.Length, q.Limit) {
		err = p.statement(ctx, func(ctx context.Context) (err error) {
			read, err = t.reader.ReadTenants(ctx, p.db, q)
			return err
		})
		n := len(read.EventIDs)
		if err != nil {
			return read, false, err
		}
		if t.length = q.Length; !read.End || 2*n >= q.Limit {
			break
		}
		if n == found || q.Length == q.Limit {
			return read, false, nil
		}
		found = n
	}
	if len(read.EventIDs) > 0 {
		t.rounds = 0
	} else if read.Wrapped {
		t.rounds++
	}
	if more = t.rounds < 2; !more { // a whole round found nothing
		t.rounds = 0
	}
	return read, more, nil
}
