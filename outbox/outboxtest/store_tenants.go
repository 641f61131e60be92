package outboxtest

import (
	"cmp"
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

// ReadTenants implements [outbox.TenantReader].
func (s *Store) ReadTenants(ctx context.Context, _ outbox.DB, q outbox.TenantQuery) (outbox.Tenants, error) {
	if err := s.lock(ctx, "reading events of tenants"); err != nil {
		return outbox.Tenants{}, err
	}
	defer s.mu.Unlock()
	passed := func(r *memRow) int { // tenants up to q.After come last
		if r.env.TenantID > q.After {
			return 0
		}
		return 1
	}
	rows := s.visible(func(a, b *memRow) int {
		return cmp.Or(cmp.Compare(passed(a), passed(b)), cmp.Compare(a.env.TenantID, b.env.TenantID), dueFirst(a, b))
	}, func(r *memRow) bool {
		return r.due(q.Now, q.CreatedBefore) && !r.leased() && !r.isOneOf(q.Except)
	})
	tenants := outbox.Tenants{Next: q.After, End: true}
	counts := map[string]int{}
	for _, r := range rows {
		if counts[r.env.TenantID]++; counts[r.env.TenantID] > q.Length {
			continue
		}
		if len(tenants.EventIDs) == q.Limit {
			tenants.End = false
			break
		}
		tenants.EventIDs, tenants.Next = append(tenants.EventIDs, r.env.EventID), r.env.TenantID
		tenants.Wrapped = passed(r) > 0
	}
	tenants.Wrapped = tenants.Wrapped || tenants.End
	return tenants, nil
}

// CheckTenants implements [outbox.TenantReader].
func (s *Store) CheckTenants(ctx context.Context, _ outbox.DB) error { return s.Check(ctx, nil, true) }
