package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

var tenantTests = []storeTest{
	{"TheFirstFreeDueEventsOfEach", tenantsFirst},
	{"EachHasItsTurn", tenantsTurns},
	{"TenantsWithoutAFreeEventArePassed", tenantsPassed},
	{"ManyKindsAreLeftOutForManyTenants", tenantsManyKinds},
	{"TheIndexIsThere", func(s *storeSuite) { s.ok("CheckTenants", s.Store.(outbox.TenantReader).CheckTenants(s.ctx, s.DB)) }},
}

// ofTenant are events of a tenant.
func (s *storeSuite) ofTenant(tenant string, n int) []outbox.Envelope {
	envs := s.events(n)
	for i := range envs {
		envs[i].TenantID = tenant
	}
	return envs
}

func (s *storeSuite) tenants(q outbox.TenantQuery) outbox.Tenants {
	s.t.Helper()
	q.Now = suiteTime.Add(later)
	page, err := s.Store.(outbox.TenantReader).ReadTenants(s.ctx, s.DB, q)
	s.ok("ReadTenants", err)
	if page.End && !page.Wrapped {
		s.t.Fatal("every tenant was looked at, but the read did not wrap")
	}
	slices.Sort(page.EventIDs)
	return page
}

func tenantsFirst(s *storeSuite) {
	except := []outbox.EventKind{{AggregateType: outbox.Global, EventType: "Paused"}}
	var want, all []string
	for _, tenant := range []string{"", "b", "B", "é", "a b"} {
		envs := s.ofTenant(tenant, 8)
		envs[0].AvailableAt = suiteTime.Add(2 * later)
		envs[1].EventType = "Paused"
		envs[2].AvailableAt = suiteTime.Add(time.Minute) // behind the other events
		s.insert(envs...)
		s.edit(envs[3].EventID, func(r *RawRow) { r.LockedBy, r.LockedAt = "node-1/1", s.now() })
		s.edit(envs[4].EventID, func(r *RawRow) { r.Status = outbox.StatusRetry })
		s.edit(envs[5].EventID, func(r *RawRow) { r.Status, r.DoneAt = outbox.StatusDead, suiteTime })
		want = append(want, envs[4].EventID, envs[6].EventID)
		all = append(all, envs[4].EventID, envs[6].EventID, envs[7].EventID, envs[2].EventID)
	}
	slices.Sort(want)
	slices.Sort(all)
	for _, after := range []string{"", "b", "a", "zz"} {
		page := s.tenants(outbox.TenantQuery{After: after, Length: 2, Limit: 100, Except: except})
		s.sameIDs("two of each, behind "+after, page.EventIDs, want)
		if !page.End {
			s.t.Fatalf("not the end, of a round behind %q", after)
		}
	}
	s.sameIDs("all", s.tenants(outbox.TenantQuery{Length: 100, Limit: 100, Except: except}).EventIDs, all)
}

// tenantsTurns reads page after page and marks the rows of each page.
func tenantsTurns(s *storeSuite) {
	var want []string
	for tenant, n := range map[string]int{"flood": 40, "b": 2, "": 3, "zz": 1} {
		envs := s.ofTenant(tenant, n)
		s.insert(envs...)
		want = append(want, idsOf(envs)...)
	}
	q := outbox.TenantQuery{Length: 2, Limit: 3}
	var got []string
	for len(got) < len(want) {
		page := s.tenants(q)
		if len(page.EventIDs) > q.Limit || len(page.EventIDs) == 0 {
			s.t.Fatalf("a page of %d rows behind %q, want 1 to %d", len(page.EventIDs), q.After, q.Limit)
		}
		for _, id := range page.EventIDs {
			s.mark(outbox.OutcomeDone, "", outbox.Mark{EventID: id})
		}
		if got = append(got, page.EventIDs...); len(got) <= 8 && len(got)+q.Limit > 8 {
			left := s.tenants(outbox.TenantQuery{After: "flood", Length: 100, Limit: 100}).EventIDs
			if len(left) < 34 {
				s.t.Fatalf("of the first eight, %d were of the tenant with the most", 40-len(left))
			}
		}
		q.After = page.Next
	}
	slices.Sort(got)
	slices.Sort(want)
	s.sameIDs("what all pages read", got, want)
	if page := s.tenants(q); !page.End || len(page.EventIDs) > 0 {
		s.t.Fatalf("at the end: %+v", page)
	}
}

// tenantsPassed has a free event behind more tenants without free events than a call looks at.
func tenantsPassed(s *storeSuite) {
	const n = 1201
	var envs []outbox.Envelope
	for i := range n {
		envs = append(envs, s.ofTenant(fmt.Sprintf("%05d", i), 1)...)
	}
	s.insertFor("node-1/1", envs...)
	free := s.ofTenant("last", 1)
	s.insert(free...)
	q := outbox.TenantQuery{Length: 2, Limit: 10}
	for range n {
		page := s.tenants(q)
		if len(page.EventIDs) > 0 {
			s.sameIDs("the free event", page.EventIDs, idsOf(free))
			return
		}
		if page.End {
			break
		}
		q.After = page.Next
	}
	s.t.Fatalf("the free event was not read")
}

// tenantsManyKinds has more parameters than a statement may have, if each tenant costs a parameter
// for each kind.
func tenantsManyKinds(s *storeSuite) {
	var envs []outbox.Envelope
	for i := range 150 {
		envs = append(envs, s.ofTenant(fmt.Sprint("tenant ", i), 1)...)
	}
	s.insert(envs...)
	q := outbox.TenantQuery{Length: 1, Limit: 1000}
	for i := range 200 {
		q.Except = append(q.Except, outbox.EventKind{AggregateType: "Order", EventType: outbox.EventType(fmt.Sprint("Kind", i))})
	}
	s.sameIDs("all", s.tenants(q).EventIDs, idsOf(envs))
}
