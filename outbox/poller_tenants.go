package outbox

import (
	"context"
	"time"
)

// lockedRows is how soon the poller looks again when rows that it read were locked or
// taken, mostly by another node.
const lockedRows = 50 * time.Millisecond

// tenantRows claims free rows tenant by tenant; see [ClaimOptions].TenantsInTurn.
type tenantRows struct {
	p      *poller
	store  TenantReader
	after  string // the tenant that the last claim ended with
	length int    // how many events of a tenant that claim took at most
	rounds int    // over all tenants since a tenant had an event that is due
}

func (s *tenantRows) check(ctx context.Context) error { return s.store.CheckTenants(ctx, s.p.db) }

func (s *tenantRows) begin() {}

func (s *tenantRows) room(limit int) int { return limit }

// read claims the first events tenant by tenant.
func (s *tenantRows) read(ctx context.Context, limit int) (f found, err error) {
	p := s.p
	events, more, err := s.readTenants(ctx, TenantQuery{Now: p.asOf, CreatedBefore: p.createdBefore(), Except: p.except, Limit: limit})
	if err != nil {
		return f, err
	}
	if f, err = p.claimThese(ctx, p.asOf, events.EventIDs); err != nil {
		return f, err
	}
	s.after = events.Next
	ids, n := len(events.EventIDs), f.len()
	more = more && (ids == 0 || n > 0)
	if n < ids && !more {
		p.agenda.Note(p.clock.Now().Add(lockedRows))
	}
	p.more = more || n == limit
	f.all = !p.more
	return f, nil
}

// readTenants reads as many events of each tenant as fill half of the batch together, so that no
// tenant is left out for the many events of another tenant: readTenants doubles the number of
// events per tenant, up to the whole batch. more is false when no other tenant has events that are
// due.
func (s *tenantRows) readTenants(ctx context.Context, q TenantQuery) (read Tenants, more bool, err error) {
	q.After = s.after
	found := 0
	for q.Length = min(max(1, s.length/2), q.Limit); ; q.Length = min(2*q.Length, q.Limit) {
		err = s.p.statement(ctx, func(ctx context.Context) (err error) {
			read, err = s.store.ReadTenants(ctx, s.p.db, q)
			return err
		})
		n := len(read.EventIDs)
		if err != nil {
			return read, false, err
		}
		if s.length = q.Length; !read.End || 2*n >= q.Limit {
			break
		}
		if n == found || q.Length == q.Limit {
			return read, false, nil
		}
		found = n
	}
	if len(read.EventIDs) > 0 {
		s.rounds = 0
	} else if read.Wrapped {
		s.rounds++
	}
	if more = s.rounds < 2; !more { // a whole round found nothing
		s.rounds = 0
	}
	return read, more, nil
}

// leaseTakeovers claims rows whose lease expired, and free rows beside them, from the start of the
// table, beside [tenantRows].
type leaseTakeovers struct{ p *poller }

func (s *leaseTakeovers) begin() {}

func (s *leaseTakeovers) room(limit int) int {
	if s.p.takeoverAt.After(time.Now()) {
		return 0
	}
	return min(limit, s.p.takeoverRoom())
}

func (s *leaseTakeovers) read(ctx context.Context, limit int) (found, error) {
	p, began := s.p, time.Now()
	f, b, err := p.claim(ctx, ClaimQuery{Now: p.asOf, CreatedBefore: p.createdBefore(), Except: p.except, Limit: limit})
	if err != nil {
		return f, err
	}
	p.takeoverAt = began.Add(p.sweepPause()) // unless there are some
	if f.all = b.Len() < limit; f.all {
		p.more = false // the batch came from all rows, rows without a lease included
	}
	now := p.clock.Now()
	for i := range f.ds { // an event that was taken over has an attempt, and was due before it was leased
		dl := &f.ds[i]
		dl.takeover = dl.env.Attempts > 0 && now.Sub(dl.env.AvailableAt) >= p.dispatcher.leases.lasts/2
		if dl.takeover {
			p.takeoverAt = time.Time{}
		}
	}
	return f, nil
}
