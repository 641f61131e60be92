package sqlstore

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/outboxkit/outbox-go/outbox"
)

// tenantKey is the first column of the index of [WithTenantIndex], but not on MySQL.
const tenantKey = "COALESCE(tenant_id, '')"

// ReadTenants implements [outbox.TenantReader].
func (s *Store) ReadTenants(ctx context.Context, db outbox.DB, t outbox.TenantQuery) (outbox.Tenants, error) {
	read := s.walkTenants
	if s.d.name == "mysql" {
		read = s.walkTenantsLoosely
	}
	all := outbox.Tenants{Next: t.After}
	for _, wrapped := range []bool{false, true} {
		ids, last, end, err := read(ctx, db, t, wrapped)
		if err != nil {
			return outbox.Tenants{}, err
		}
		all.EventIDs, all.Wrapped = append(all.EventIDs, ids...), wrapped
		if last.Valid {
			all.Next = last.String
		}
		if t.Limit -= len(ids); !end || t.Limit == 0 {
			return all, nil
		}
	}
	all.End = true
	return all, nil
}

// walkTenants reads events of the tenants behind t.After or, if wrapped, of the tenants up to
// t.After, as walkQuery does with keys.
func (s *Store) walkTenants(ctx context.Context, db outbox.DB, t outbox.TenantQuery, wrapped bool) (ids []string, last sql.NullString, end bool, err error) {
	q := s.query(2048)
	from := " FROM " + s.name().Quoted(s.d.quote) + s.byIndex("tenant") + " WHERE status IN (0, 2)"
	next := " ORDER BY " + tenantKey + " LIMIT 1)"
	q.add("WITH RECURSIVE walk (n, k) AS (SELECT 1, (SELECT ", tenantKey, from)
	if !wrapped {
		q.add(" AND ", tenantKey, " > ").arg(t.After)
	}
	q.add(next, " UNION ALL SELECT walk.n + 1, (SELECT ", tenantKey, from, " AND ", tenantKey, " > walk.k", next,
		" FROM walk WHERE walk.k IS NOT NULL AND walk.n < ", strconv.Itoa(walkKeys), ") SELECT walk.n, walk.k, event_id FROM")
	if s.d == postgres {
		q.planned().add(" walk LEFT JOIN LATERAL (")
	} else {
		q.add(" walk LEFT JOIN ").table(s).add(" ON event_id IN (")
	}
	q.add("SELECT event_id", from, " AND ", tenantKey, " = walk.k AND CASE WHEN locked_at IS NULL THEN TRUE ELSE FALSE END AND ").
		due("1 = 1", t.Now, t.CreatedBefore).except(t.Except).add(dueOrder).hiddenLimit(t.Length).add(")")
	if s.d == postgres {
		q.add(" AS first ON TRUE")
	}
	q.add(" WHERE (event_id IS NOT NULL OR walk.n = ", strconv.Itoa(walkKeys), ")")
	if wrapped {
		q.add(" AND walk.k <= ").arg(t.After)
	}
	q.add(" LIMIT ").arg(t.Limit)
	n := 0
	err = s.rows(ctx, db, "reading events of tenants", q, func(rows *sql.Rows) error {
		var tenant, id sql.NullString
		err := rows.Scan(&n, &tenant, &id)
		if tenant.Valid {
			last = tenant
		}
		if id.Valid {
			ids = append(ids, id.String)
		}
		return err
	})
	return ids, last, n < walkKeys && len(ids) < t.Limit, err
}

// walkTenantsLoosely is walkTenants for MySQL: a loose index scan for each status finds the next
// tenants.
func (s *Store) walkTenantsLoosely(ctx context.Context, db outbox.DB, t outbox.TenantQuery, wrapped bool) (ids []string, last sql.NullString, end bool, err error) {
	limit := min(walkKeys, max(100, t.Limit))
	q := s.query(1024)
	for i, status := range []string{"2", "0"} {
		if i > 0 {
			q.add(" UNION ")
		}
		q.add("(SELECT tenant_id AS k FROM ").table(s).add(s.byIndex("tenant"), " WHERE status = ", status)
		if wrapped {
			q.add(" AND tenant_id <= ").arg(t.After)
		} else {
			q.add(" AND tenant_id > ").arg(t.After)
		}
		q.add(" GROUP BY status, tenant_id LIMIT ").arg(limit).add(")")
	}
	q.add(" ORDER BY k LIMIT ").arg(limit)
	var tenants []sql.NullString
	if wrapped {
		tenants = append(tenants, sql.NullString{}) // events without a tenant
	}
	err = s.rows(ctx, db, "reading events of tenants", q, func(rows *sql.Rows) error {
		var tenant sql.NullString
		err := rows.Scan(&tenant)
		tenants = append(tenants, tenant)
		return err
	})
	end = len(tenants) < limit
	for err == nil && len(tenants) > 0 && len(ids) < t.Limit {
		// A statement has at most 65,535 parameters.
		most := max(1, 30_000/(4+2*len(t.Except)))
		some := tenants[:min(len(tenants), most, max(8, (t.Limit-len(ids))/t.Length))]
		tenants = tenants[len(some):]
		var found [][]string
		found, err = s.firstOfTenants(ctx, db, t, some)
		for i, of := range found {
			if len(ids) == t.Limit {
				return ids, last, false, nil
			}
			ids, last = append(ids, of[:min(len(of), t.Limit-len(ids))]...), sql.NullString{String: some[i].String, Valid: true}
		}
	}
	return ids, last, end && len(tenants) == 0, err
}

// firstOfTenants reads the first events of each tenant.
func (s *Store) firstOfTenants(ctx context.Context, db outbox.DB, t outbox.TenantQuery, tenants []sql.NullString) ([][]string, error) {
	q := s.query(4096)
	for i, tenant := range tenants {
		for _, pending := range s.pending() {
			if len(q.args) > 0 {
				q.add(" UNION ALL ")
			}
			q.add("(SELECT ", strconv.Itoa(i), ", event_id, ").timeColumn("created_at").add(", ").timeColumn("available_at").
				add(" FROM ").table(s).add(s.byIndex("tenant"), " WHERE tenant_id ")
			if tenant.Valid {
				q.add("= ").arg(tenant.String)
			} else {
				q.add("IS NULL")
			}
			q.add(" AND locked_at IS NULL AND ").due(pending, t.Now, t.CreatedBefore).except(t.Except).add(dueOrder).arg(t.Length).add(")")
		}
	}
	all := make([][]row, len(tenants))
	err := s.rows(ctx, db, "reading events of tenants", q, func(rows *sql.Rows) error {
		var i int
		var r row
		err := rows.Scan(&i, &r.id, &r.createdAt, &r.availableAt)
		all[i] = append(all[i], r)
		return err
	})
	ids := make([][]string, len(tenants))
	for i, rows := range all {
		sortRows(rows, byDue)
		for _, r := range rows[:min(len(rows), t.Length)] {
			ids[i] = append(ids[i], r.id)
		}
	}
	return ids, err
}
