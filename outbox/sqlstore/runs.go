package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// walkKeys is how many keys a call looks at. Many keys that are held back cost many short
// statements.
const walkKeys = 500

// runRow is a row among the first rows of a key.
type runRow struct {
	row
	key    outbox.EventKey
	status outbox.Status
	lease  sql.NullString
	state  leaseState
	busy   bool // a NEW row of the key has a lease that has not expired
}

// runColumns writes the columns that [runRow.scan] reads.
func (q *query) runColumns(leaseDuration time.Duration) *query {
	q.add("event_id, event_type, aggregate_type, status, ").timeColumn("created_at").add(", ").timeColumn("available_at")
	return q.add(", locked_by, ").leaseState(leaseDuration)
}

// scan reads the given columns, and then the columns of runColumns. Without a row the columns of
// runColumns are NULL, and x.id is empty.
func (x *runRow) scan(rows *sql.Rows, before ...any) error {
	var status count
	err := rows.Scan(append(before, (*rowID)(&x.row), &x.eventType, &x.aggregateType, &status, &x.createdAt, &x.availableAt, &x.lease, &x.state)...)
	x.status = outbox.Status(status)
	return err
}

// leaseState is the state of a row's lease, as [query.leaseState] computes it.
type leaseState int

const (
	leaseFree leaseState = iota
	leaseLive
	leaseExpired
)

// leaseState writes an expression for the state of a row's lease.
func (q *query) leaseState(leaseDuration time.Duration) *query {
	return q.add("CASE WHEN locked_at IS NULL THEN 0 WHEN ").expired(leaseDuration).add(" THEN 2 ELSE 1 END")
}

// keyRows are the first rows of a key. A key whose first row cannot be delivered may have no rows.
type keyRows struct {
	key  outbox.EventKey
	rows []runRow
}

// ReadRuns implements [outbox.RunReader].
func (s *Store) ReadRuns(ctx context.Context, db outbox.DB, r outbox.RunQuery) (outbox.Runs, error) {
	r.Now, r.CreatedBefore = storedTime(r.Now), storedTime(r.CreatedBefore)
	keys, end, err := s.walk(ctx, db, r)
	if err != nil {
		return outbox.Runs{}, err
	}
	if r.Takeovers && end { // takeovers are rare, and no claim waits for them
		if err := s.nameGlobal(ctx, db); err != nil {
			return outbox.Runs{}, err
		}
	}
	runs := outbox.Runs{Next: r.After, End: end}
	left := r.Limit
	for _, k := range keys {
		run, behind := runOf(r, k.rows)
		n := counted(r, run)
		if n > left {
			if left < r.Limit { // there is a run already
				runs.End = false
				break
			}
			run = run[:left]
			n = left
		}
		runs.Next = k.key
		if len(run) > 0 {
			left -= n
			runs.EventIDs = append(runs.EventIDs, run)
			if r.Takeovers {
				runs.Behind = append(runs.Behind, behind)
			}
		}
	}
	return runs, nil
}

// BeginKeys implements [outbox.RunReader]. It reads an index entry or two for each event.
func (s *Store) BeginKeys(ctx context.Context, db outbox.DB, eventIDs []string) (begin []string, err error) {
	q := s.query(1024).add("SELECT head.event_id FROM ").table(s).add(" AS head WHERE ").ids("head.event_id", eventIDs)
	from := "(SELECT event_id FROM " + s.name().Quoted(s.d.quote) + s.byIndex("key") + " WHERE aggregate_type = head.aggregate_type AND "
	if s.d.name == "mysql" {
		first := func(status string) string {
			return from + "aggregate_id = head.aggregate_id AND status = " + status + keyIndexOrder + " LIMIT 1)"
		}
		q.add(" AND (head.aggregate_id IS NULL OR head.event_id = COALESCE(", first("2"), ", ", first("0"), "))")
	} else {
		q.add(" AND head.event_id = ", from, "COALESCE(aggregate_id, event_id) = COALESCE(head.aggregate_id, head.event_id) AND status <> 1 AND status < 3 ORDER BY ", keyOrder, " LIMIT 1)")
	}
	err = s.rows(ctx, db, "reading which events begin their keys", q, func(rows *sql.Rows) error {
		var r row
		err := rows.Scan((*rowID)(&r))
		begin = append(begin, r.id)
		return err
	})
	return begin, err
}

// nameGlobal stores [outbox.Global] in rows whose aggregate type is NULL, as another program
// may write them. Decoding reads NULL as Global, but no walk over the keys finds such rows,
// because no comparison with NULL is true.
func (s *Store) nameGlobal(ctx context.Context, db outbox.DB) error {
	open := []string{"status <> 1"}
	if s.d.name == "mysql" { // with a list, MySQL may read the whole index
		open = []string{"status = 0", "status = 2", "status = 3"}
	}
	for _, rows := range open {
		if err := s.nameGlobalOf(ctx, db, rows+" AND aggregate_type IS NULL"); err != nil {
			return err
		}
	}
	return nil
}

// nameGlobalOf changes with a statement as many rows as a mark does, so that no writer waits long.
func (s *Store) nameGlobalOf(ctx context.Context, db outbox.DB, where string) error {
	const what = "naming the aggregate type of events that have none"
	for {
		var ids []string
		q := s.query(128).add("SELECT event_id FROM ").table(s).add(s.byIndex("key"), " WHERE ", where, " LIMIT ", strconv.Itoa(markRows))
		err := s.rows(ctx, db, what, q, func(rows *sql.Rows) error {
			var r row
			err := rows.Scan((*rowID)(&r))
			if s.keyed(&r) {
				ids = append(ids, r.id)
			}
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		q = s.query(128).add("UPDATE ").table(s).add(" SET aggregate_type = ").arg(string(outbox.Global)).add(" WHERE ").ids("event_id", ids).add(" AND aggregate_type IS NULL")
		n, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, q) })
		if err != nil || n == 0 || len(ids) < markRows {
			return err
		}
	}
}

func storedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// counted is the part of r.Limit that a run takes.
func counted(r outbox.RunQuery, run []string) int {
	if r.Takeovers {
		return min(len(run), 1)
	}
	return len(run)
}

// runOf is the run that the first rows of a key make.
func runOf(r outbox.RunQuery, rows []runRow) (run []string, behind []outbox.Lease) {
	sortRows(rows, func(x, y runRow) int { return cmp.Or(cmp.Compare(y.status, x.status), byDue(x.row, y.row)) })
	// RETRY rows that were DEAD may be in front of NEW rows that are in delivery.
	fresh := slices.IndexFunc(rows, func(x runRow) bool { return x.status == outbox.StatusNew })
	if fresh >= 0 && rows[fresh].state == leaseLive {
		return nil, nil
	}
	rows = rows[:min(len(rows), r.Length)]
	if slices.ContainsFunc(rows, func(x runRow) bool { return x.busy || x.state == leaseLive }) {
		return nil, nil
	}
	for i := range rows {
		x := &rows[i]
		if x.status == outbox.StatusDead || (x.state == leaseExpired) != r.Takeovers || !x.isDue(r) {
			break
		}
		run = append(run, x.id)
	}
	if len(run) == 0 || !r.Takeovers {
		return run, nil
	}
	for i := range rows[1:] {
		if x := &rows[1+i]; x.state == leaseExpired {
			behind = append(behind, outbox.Lease{EventID: x.id, Name: x.lease.String})
		}
	}
	return run, behind
}

// isDue reports whether a row may be delivered now, apart from its lease.
func (x *runRow) isDue(r outbox.RunQuery) bool {
	kind := outbox.EventKind{AggregateType: outbox.AggregateType(cmp.Or(x.aggregateType.String, string(outbox.Global))), EventType: outbox.EventType(x.eventType.String)}
	return !x.availableAt.After(r.Now) && (r.CreatedBefore.IsZero() || !x.createdAt.After(r.CreatedBefore)) && !slices.Contains(r.Except, kind)
}

const (
	keyColumns = "aggregate_type, COALESCE(aggregate_id, event_id)"
	keyOrder   = "status DESC, available_at, created_at, event_id"
)

// walk reads the first rows of the keys behind r.After, in the order of the keys, for PostgreSQL
// and SQLite. A recursive query steps from the first row of a key to the first row of the next key,
// so that it reads a single index entry for each key, and joins the first rows of a key that may
// have a run. Both databases run the recursion only as far as the outer LIMIT asks for rows. end
// says that there is no further key.
func (s *Store) walk(ctx context.Context, db outbox.DB, r outbox.RunQuery) (keys []keyRows, end bool, err error) {
	if s.d.name == "mysql" {
		return s.walkLoosely(ctx, db, r)
	}
	// An extra row shows whether the last key is cut.
	limit := r.Limit + 1
	if r.Takeovers { // Limit counts only the first rows
		limit = r.Limit*r.Length + 1
	}
	n, rows := 0, 0
	err = s.rows(ctx, db, "reading runs of events", s.walkQuery(r, limit), func(scan *sql.Rows) error {
		var x runRow
		err := x.scan(scan, &n, &x.key.AggregateType, &x.key.ID, &x.busy)
		if len(keys) == 0 || keys[len(keys)-1].key != x.key {
			keys = append(keys, keyRows{key: x.key})
		}
		rows++
		if last := &keys[len(keys)-1]; x.id != "" {
			last.rows = append(last.rows, x)
		}
		return err
	})
	full := rows == limit
	if full && len(keys) > 1 {
		keys = keys[:len(keys)-1]
	}
	return keys, !full && n < walkKeys, err
}

// walkQuery returns rows of keys, and the last key even if the key has no rows.
func (s *Store) walkQuery(r outbox.RunQuery, limit int) *query {
	q := s.query(2048)
	q.add("WITH RECURSIVE walk (n, t, k, open) AS (SELECT 0, CAST(").arg(string(r.After.AggregateType)).add(" AS VARCHAR), CAST(").
		arg(r.After.ID).add(" AS VARCHAR), FALSE UNION ALL SELECT walk.n + 1, ")
	from := " FROM " + s.name().Quoted(s.d.quote) + s.byIndex("key") + " WHERE status <> 1 AND "
	next := " ORDER BY " + keyColumns + ", " + keyOrder + " LIMIT 1)"
	if s.d == postgres {
		q.add("head.* FROM walk CROSS JOIN LATERAL (SELECT ", keyColumns, ", ").open(r).
			add(from, "(", keyColumns, ") > (walk.t, walk.k)", next, " AS head WHERE ")
	} else {
		q.add(keyColumns, ", ").open(r).add(" FROM walk CROSS JOIN ").table(s).add(" WHERE event_id = COALESCE((SELECT event_id", from,
			"aggregate_type = walk.t AND COALESCE(aggregate_id, event_id) > walk.k", next,
			", (SELECT event_id", from, "aggregate_type > walk.t", next, ") AND ")
	}
	q.add("walk.n < ", strconv.Itoa(walkKeys), ") SELECT walk.n, walk.t, walk.k, ")
	key := from + "aggregate_type = walk.t AND COALESCE(aggregate_id, event_id) = walk.k"
	// The first NEW row of a key may be in delivery while RETRY rows that were DEAD before are in
	// front of the NEW row.
	q.add("CASE WHEN status = 2 THEN CASE (SELECT ").leaseState(r.LeaseDuration).
		add(key, " AND status < 1 ORDER BY ", keyOrder, " LIMIT 1) WHEN 1 THEN 1 ELSE 0 END ELSE 0 END, ").runColumns(r.LeaseDuration).add(" FROM")
	if r.SkipDead {
		key += " AND status < 3"
	}
	if s.d == postgres {
		q.planned().add(" walk LEFT JOIN LATERAL (SELECT *", key, " AND walk.open ORDER BY ", keyOrder,
			" LIMIT ").hiddenLimit(r.Length).add(") AS first ON TRUE")
	} else {
		q.add(" walk LEFT JOIN ").table(s).add(" ON walk.open AND event_id IN (SELECT event_id", key, " ORDER BY ", keyOrder, " LIMIT ").arg(r.Length).add(")")
	}
	return q.add(" WHERE event_id IS NOT NULL OR walk.n = ", strconv.Itoa(walkKeys), " LIMIT ").arg(limit)
}

// open writes whether the key of a first row may have a run.
func (q *query) open(r outbox.RunQuery) *query {
	free := "0"
	if r.Takeovers {
		free = "2"
	}
	q.add("CASE WHEN status = 3 THEN ", map[bool]string{false: "FALSE", true: "TRUE"}[r.SkipDead], " WHEN available_at > ").time(r.Now)
	if !r.CreatedBefore.IsZero() {
		q.add(" OR created_at > ").time(r.CreatedBefore)
	}
	return q.add(" THEN FALSE").notOf(r.Except).add(" ELSE ").leaseState(r.LeaseDuration).add(" = ", free, " END")
}
