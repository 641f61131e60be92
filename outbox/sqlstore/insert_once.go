package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// onceTries is how often InsertOnce inserts: again when the row that was in the way is gone before
// InsertOnce has found it, as when its event was delivered in the meantime.
const onceTries = 10

// errKept says that a unique index kept rows out.
var errKept = errors.New("a unique index has a value of the rows already")

// InsertOnce implements [outbox.Store]. On PostgreSQL and SQLite the INSERT leaves rows out, and their
// number shows that: an error would end PostgreSQL's transaction. On MySQL an error undoes only its
// statement, and INSERT IGNORE would hide other errors. Several statements, and several rows of a
// statement that may leave rows out, have a savepoint. If another unique index keeps a row out, the last
// INSERT fails with the error of the database.
func (s *Store) InsertOnce(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) (ids []string, err error) {
	if err := s.findOnce(ctx); err != nil {
		return nil, err
	}
	w := onceWrite{s: s, tx: tx, envs: envs, keyed: byKey(envs), lease: lease, due: due}
	if len(w.keyed) > 0 && !s.hasOption(uniqueIndex) {
		return nil, s.needsUniqueIndex()
	}
	rest := envs
	if len(w.keyed) > 0 {
		rest = slices.DeleteFunc(slices.Clone(envs), hasKey)
	}
	w.chunks = s.chunks(rest, lease, due)
	// A statement undoes itself if it fails, but not if it leaves rows out.
	alone := len(w.chunks)+len(w.keyed) == 1 && (len(envs) == 1 || s.d == mysql) && !envs[0].KeepLatest
	for try := range onceTries {
		w.last = try == onceTries-1
		if alone {
			ids, err = w.insert(ctx)
		} else {
			err = s.together(ctx, tx, func() (err error) {
				ids, err = w.insert(ctx)
				return err
			})
		}
		if err == nil {
			return ids, nil
		}
		if !errors.Is(err, errKept) {
			return nil, err
		}
		there, failed := s.there(ctx, tx, envs)
		switch {
		case failed != nil:
			return nil, failed
		case len(there) > 0:
			return nil, &outbox.DuplicateEventError{EventID: there[0], EventIDs: there}
		}
	}
	return nil, err
}

// onceWrite is a call of InsertOnce.
type onceWrite struct {
	s      *Store
	tx     outbox.Execer
	envs   []outbox.Envelope
	chunks []chunk // of the envelopes without a unique key
	keyed  []int   // see byKey
	lease  string
	due    time.Time
	last   bool // the database is to say which index is in the way
}

// insert inserts the envelopes without a unique key together, and the others one by one.
func (w *onceWrite) insert(ctx context.Context) ([]string, error) {
	ids := make([]string, len(w.envs))
	for i := range w.envs {
		ids[i] = w.envs[i].EventID
	}
	for _, c := range w.chunks {
		if err := w.insertNew(ctx, c); err != nil {
			return nil, err
		}
	}
	for _, i := range w.keyed {
		c := w.s.chunks(w.envs[i:i+1], w.lease, w.due)[0]
		c.key = true
		if w.envs[i].KeepLatest {
			c.lease = ""
		}
		if err := w.insertKeyed(ctx, c, &w.envs[i], &ids[i]); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// insertKeyed inserts the row of an envelope with a unique key, or replaces the id of the envelope by
// that of the event that has the key. With KeepLatest, an INSERT that leaves an existing row as it is
// comes first: on MySQL it locks the row exclusively, whereas the lock of a failed INSERT is shared, and
// a read that finds no row locks a gap; both lead to deadlocks of writers of the same key.
func (w *onceWrite) insertKeyed(ctx context.Context, c chunk, env *outbox.Envelope, id *string) error {
	for range onceTries {
		kept := w.insertNew(ctx, c)
		if !errors.Is(kept, errKept) {
			return kept
		}
		if !env.KeepLatest {
			return w.s.holder(ctx, w.tx, env, id, kept)
		}
		replaced, freed, err := w.s.keepLatest(ctx, w.tx, env)
		switch {
		case err != nil:
			return err
		case replaced != "":
			*id = replaced
			return nil
		case !freed:
			return kept
		}
	}
	return errKept
}

// keepLatest gives the content of an envelope to the row that has its unique key, and returns the id of
// the row. If a process has the row in hand or may have, keepLatest frees the key instead.
func (s *Store) keepLatest(ctx context.Context, tx outbox.Execer, env *outbox.Envelope) (id string, freed bool, err error) {
	const what = "replacing the event with a unique key"
	ofKey := func(q *query) *query { return q.ofKey(env).add(" AND ", waits) }
	ids, err := s.changeWaiting(ctx, tx, what, outbox.Change{AvailableAt: env.AvailableAt, Content: env}, ofKey)
	if err != nil || len(ids) > 0 {
		return strings.Join(ids, ""), false, err
	}
	q := s.query(256).add("UPDATE ").table(s).add(" SET unique_key = NULL WHERE ").ofKey(env).
		add(" AND event_id <> ").arg(env.EventID).add(" AND CASE WHEN ", waits, " THEN 0 ELSE 1 END = 1")
	n, err := s.exec(ctx, struct{ outbox.Execer }{tx}, what, q)
	return "", n > 0, err
}

// insertNew inserts rows, and returns errKept if a unique index keeps one of them out. On MySQL the
// number of rows that an INSERT left out depends on the connection, so with KeepLatest, insertNew returns
// errKept also for a row that it has inserted.
func (w *onceWrite) insertNew(ctx context.Context, c chunk) error {
	c.absent = (w.s.d != mysql || c.key && c.envs[0].KeepLatest) && !w.last
	n, err := w.s.insertChunk(ctx, w.tx, c)
	switch {
	case err == nil && c.absent && (n < len(c.envs) || w.s.d == mysql):
		return errKept
	case w.s.d == mysql && sqlerr.IsDuplicate(err):
		return fmt.Errorf("%w (%w)", err, errKept)
	default:
		return err
	}
}

// holder replaces the id of an envelope by the id of the pending event that has its unique key. If no
// other event has the key, holder returns kept.
func (s *Store) holder(ctx context.Context, tx outbox.Execer, env *outbox.Envelope, id *string, kept error) error {
	q := s.query(256).add("SELECT event_id FROM ").table(s).add(" WHERE ").ofKey(env)
	found, err := s.readTexts(ctx, tx, "looking for the event with a unique key", q.locked())
	switch {
	case err != nil:
		return err
	case len(found) == 0 || found[0] == env.EventID:
		return kept
	}
	*id = found[0]
	return nil
}

// ofKey writes the condition for the pending row that has the unique key of an envelope.
func (q *query) ofKey(env *outbox.Envelope) *query {
	q.add("aggregate_type = ").arg(string(env.AggregateType)).add(" AND event_type = ").arg(string(env.EventType))
	if q.d == mysql {
		return q.add(" AND unique_pending = ").arg(env.UniqueKey)
	}
	return q.add(" AND unique_key = ").arg(env.UniqueKey).add(" AND status IN (0, 2)")
}

// there are the ids that rows have, in order, of the first envelopes of which a row has one.
func (s *Store) there(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope) (ids []string, err error) {
	for some := range slices.Chunk(envs, markRows) {
		asked := make([]string, len(some))
		for i := range some {
			asked[i] = some[i].EventID
		}
		q := s.query(256+2*len(asked)).add("SELECT event_id FROM ").table(s).add(" WHERE ").ids("event_id", asked)
		found, err := s.readTexts(ctx, tx, "looking for events with these ids", q.locked())
		if err != nil {
			return nil, err
		}
		has := make(map[string]bool, len(found))
		for _, id := range found {
			has[id] = true
		}
		if ids = slices.DeleteFunc(asked, func(id string) bool { return !has[id] }); len(ids) > 0 {
			return ids, nil
		}
	}
	return nil, nil
}

// locked makes MySQL read the rows as they are now, and not as of the snapshot of the transaction. An
// INSERT that failed has locked its row in the same way.
func (q *query) locked() *query {
	if q.d == mysql {
		q.add(" LOCK IN SHARE MODE")
	}
	return q
}

// readTexts reads in the caller's transaction.
func (s *Store) readTexts(ctx context.Context, tx outbox.Execer, what string, q *query) ([]string, error) {
	texts, err := outbox.QueryTexts(ctx, tx, q.text(), q.args...)
	if err != nil {
		return nil, s.fail(what, err)
	}
	return texts, nil
}

func hasKey(env outbox.Envelope) bool { return env.UniqueKey != "" }

// byKey are the places of the envelopes with a unique key, in the order of the keys, so that two
// transactions that write the same keys do not wait for each other.
func byKey(envs []outbox.Envelope) (places []int) {
	for i := range envs {
		if hasKey(envs[i]) {
			places = append(places, i)
		}
	}
	slices.SortStableFunc(places, func(i, j int) int {
		a, b := &envs[i], &envs[j]
		return cmp.Or(cmp.Compare(a.AggregateType, b.AggregateType), cmp.Compare(a.EventType, b.EventType), cmp.Compare(a.UniqueKey, b.UniqueKey))
	})
	return places
}

// uniqueIndex is the suffix of the index of [WithUniqueIndex].
const uniqueIndex = "unique"

// needsUniqueIndex is the error for a unique key without [WithUniqueIndex].
func (s *Store) needsUniqueIndex() error {
	return &outbox.FieldError{Field: "Envelope.UniqueKey", Problem: "needs the option sqlstore.WithUniqueIndex() of the store, and a column and an index of the table, which CreateSchema then adds; or run: " +
		strings.Join(s.indexDDL(uniqueIndex), "; ")}
}
