package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// MySQL and MariaDB: the index of [WithKeyIndex] has one status after the other, and MariaDB has no
// LATERAL. A statement finds the next keys and the first row of each key; another statement finds
// the rows behind the first rows. Events without an aggregate id are a single group in the index,
// which is read as a claim reads due rows.

// keyIndexOrder is the order of the index. An order by the last columns alone makes the database
// sort the rows of a key.
const keyIndexOrder = " ORDER BY status, aggregate_type, aggregate_id, available_at, created_at, event_id"

// firstRow is the first row of a key, with facts about the other rows of the key.
type firstRow struct {
	runRow
	group sql.NullString // the aggregate id; NULL stands for all events without an aggregate id
	dead  bool           // the key has a DEAD row
	more  bool           // the key has further rows
}

// walkLoosely is walk for MySQL. A few keys are read first, which suffice if they have many rows.
func (s *Store) walkLoosely(ctx context.Context, db outbox.DB, r outbox.RunQuery) (keys []keyRows, end bool, err error) {
	if place, ok := placeOf(r.After); ok {
		keys, err = s.unordered(ctx, db, r, r.After.AggregateType, place, r.Limit)
		if err != nil || len(keys) == r.Limit {
			return keys, false, err
		}
		r.After.ID = ""
	}
	found := len(keys)
	left, limit := walkKeys, walkKeys
	if !r.Takeovers {
		limit = min(walkKeys, max(20, 2*r.Limit/r.Length))
	}
	for left > 0 && found < r.Limit {
		firsts, err := s.firstRows(ctx, db, r, limit)
		if err != nil {
			return nil, false, err
		}
		next, whole, n, err := s.behind(ctx, db, r, firsts, r.Limit-found)
		if keys, found = append(keys, next...), found+n; err != nil || !whole || len(firsts) < limit {
			return keys, whole, err
		}
		r.After = firsts[limit-1].key
		left -= limit
		limit = min(left, 4*limit)
	}
	return keys, false, nil
}

// behind reads the rows of keys until it has found enough rows of runs. whole says that all keys
// were read.
func (s *Store) behind(ctx context.Context, db outbox.DB, r outbox.RunQuery, firsts []firstRow, limit int) (keys []keyRows, whole bool, found int, err error) {
	perKey := r.Length // how many rows a key is expected to have
	if r.Takeovers {
		perKey = 1 // only first rows count
	}
	for len(firsts) > 0 && found < limit {
		if first := &firsts[0]; !first.group.Valid {
			rows, err := s.unordered(ctx, db, r, first.key.AggregateType, outbox.Cursor{}, limit-found)
			keys = append(keys, rows...)
			if found += len(rows); err != nil || found == limit {
				return keys, false, found, err
			}
			firsts = firsts[1:]
			continue
		}
		next, err := s.someKeys(ctx, db, r, firsts, 1+(limit-found)/perKey)
		if err != nil {
			return nil, false, 0, err
		}
		keys, firsts = append(keys, next...), firsts[len(next):]
		many := 0
		for _, k := range next {
			run, _ := runOf(r, k.rows)
			if found += counted(r, run); len(run) > 0 {
				many++
			}
		}
		if many > 0 {
			perKey = max(1, min(perKey, found/many))
		}
	}
	return keys, len(firsts) == 0, found, nil
}

// firstRows are the first rows of the next keys.
func (s *Store) firstRows(ctx context.Context, db outbox.DB, r outbox.RunQuery, limit int) ([]firstRow, error) {
	q := s.query(4096)
	from := " FROM " + s.name().Quoted(s.d.quote) + s.byIndex("key") + " WHERE status = "
	same := " AND aggregate_type = t AND aggregate_id = k" + keyIndexOrder + " LIMIT 1"
	q.add("SELECT t, k, dead, retry IS NOT NULL OR more IS NOT NULL, ").runColumns(r.LeaseDuration)
	q.add(" FROM (SELECT t, k, EXISTS (SELECT 1", from, "3 AND aggregate_type = t AND aggregate_id = k) AS dead, (SELECT event_id", from, "2", same,
		") AS retry, (SELECT event_id", from, "0", same, ") AS fresh, (SELECT event_id", from, "0", same, " OFFSET 1) AS more FROM (")
	// GROUP BY makes a loose index scan for each status.
	for i, status := range []string{"2", "0"} {
		for j, behind := range []string{" AND aggregate_type >= ", " AND aggregate_type > "} {
			if i+j > 0 {
				q.add(" UNION ")
			}
			q.add("(SELECT aggregate_type AS t, aggregate_id AS k", from, status, behind).arg(string(r.After.AggregateType))
			if j == 0 { // = would make MySQL group in a temporary table
				q.add(" AND aggregate_type <= ").arg(string(r.After.AggregateType)).add(" AND aggregate_id > ").arg(r.After.ID)
			}
			q.add(" GROUP BY status, aggregate_type, aggregate_id LIMIT ").arg(limit).add(")")
		}
	}
	q.add(" ORDER BY t, k LIMIT ").arg(limit).add(") AS walk) AS heads LEFT JOIN ").table(s).
		add(" ON event_id = COALESCE(retry, fresh) ORDER BY t, k")
	var firsts []firstRow
	err := s.rows(ctx, db, "reading runs of events", q, func(rows *sql.Rows) error {
		var x firstRow
		err := x.scan(rows, &x.key.AggregateType, &x.group, &x.dead, &x.more)
		x.key.ID = x.group.String
		firsts = append(firsts, x)
		return err
	})
	return firsts, err
}

// someKeys reads the rows of the next keys that have an aggregate id, up to limit keys that may
// have a run.
func (s *Store) someKeys(ctx context.Context, db outbox.DB, r outbox.RunQuery, firsts []firstRow, limit int) (keys []keyRows, err error) {
	q := s.query(4096)
	from := " FROM " + s.name().Quoted(s.d.quote) + s.byIndex("key") + " WHERE status = "
	for i := range firsts {
		first := &firsts[i]
		if limit == 0 || !first.group.Valid {
			break
		}
		keys = append(keys, keyRows{key: first.key})
		run, _ := runOf(r, []runRow{first.runRow})
		if len(run) == 0 || first.dead && !r.SkipDead {
			continue
		}
		limit--
		if !first.more || r.Length == 1 && first.status == outbox.StatusNew {
			keys[i].rows = []runRow{first.runRow}
			continue
		}
		for status := first.status; ; status -= outbox.StatusRetry { // RETRY, then NEW
			if len(q.args) > 0 {
				q.add(" UNION ALL ")
			}
			q.add("(SELECT ", strconv.Itoa(i), ", ").runColumns(r.LeaseDuration).add(from, strconv.Itoa(int(status)), " AND aggregate_type = ").
				arg(string(first.key.AggregateType)).add(" AND aggregate_id = ").arg(first.key.ID).add(dueOrder).arg(r.Length).add(")")
			if status == outbox.StatusNew {
				break
			}
		}
	}
	if len(q.args) == 0 {
		return keys, nil
	}
	err = s.rows(ctx, db, "reading runs of events", q, func(rows *sql.Rows) error {
		var x runRow
		var i int
		err := x.scan(rows, &i)
		keys[i].rows = append(keys[i].rows, x)
		return err
	})
	// A first row may have been delivered, and have failed, since it was read. The row is then a
	// RETRY row, which is not among these rows, and the rows behind it must wait.
	for i := range keys {
		first := &firsts[i]
		same := func(x runRow) bool { return x.id == first.id && x.status == first.status }
		if !slices.ContainsFunc(keys[i].rows, same) {
			keys[i].rows = nil
		}
	}
	return keys, err
}

// unordered reads events of a type without an aggregate id. Each such event is a key.
func (s *Store) unordered(ctx context.Context, db outbox.DB, r outbox.RunQuery, aggregate outbox.AggregateType, after outbox.Cursor, limit int) ([]keyRows, error) {
	var all []runRow
	for _, pending := range s.pending() {
		q := s.query(512)
		q.add("SELECT ").runColumns(r.LeaseDuration).add(" FROM ").table(s).
			add(s.byIndex("key"), " WHERE ", pending, " AND aggregate_type = ").arg(string(aggregate)).
			add(" AND ").due("aggregate_id IS NULL", r.Now, r.CreatedBefore)
		if r.Takeovers {
			q.add(" AND ").expired(r.LeaseDuration)
		} else {
			q.add(" AND locked_at IS NULL")
		}
		q.except(r.Except).after(after).add(dueOrder).arg(limit)
		err := s.rows(ctx, db, "reading runs of events", q, func(rows *sql.Rows) error {
			var x runRow
			err := x.scan(rows)
			all = append(all, x)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	sortRows(all, func(x, y runRow) int { return byDue(x.row, y.row) })
	keys := make([]keyRows, 0, limit)
	for _, x := range all[:min(len(all), limit)] {
		keys = append(keys, keyRows{keyOfPlace(aggregate, x.cursor()), []runRow{x}})
	}
	return keys, nil
}

// keyOfPlace stands for an event without an aggregate id: the event id alone would not say where
// the next read begins. No aggregate id contains NUL.
func keyOfPlace(aggregate outbox.AggregateType, c outbox.Cursor) outbox.EventKey {
	return outbox.EventKey{AggregateType: aggregate, ID: fmt.Sprintf("\x00%d %d %s", c.AvailableAt.UnixMicro(), c.CreatedAt.UnixMicro(), c.EventID)}
}

// placeOf is the inverse of keyOfPlace.
func placeOf(key outbox.EventKey) (c outbox.Cursor, ok bool) {
	text, ok := strings.CutPrefix(key.ID, "\x00")
	if !ok {
		return c, false
	}
	var available, created int64
	_, err := fmt.Sscanf(text, "%d %d ", &available, &created)
	_, text, _ = strings.Cut(text, " ")
	_, c.EventID, _ = strings.Cut(text, " ")
	c.AvailableAt, c.CreatedAt = time.UnixMicro(available).UTC(), time.UnixMicro(created).UTC()
	return c, err == nil
}
