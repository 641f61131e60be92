package outboxtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// memoryTable is the table's name in errors of [Store].
const memoryTable = "memory"

// Store is an [outbox.Store] in memory. Store passes conformance.RunStore, so a test with a Store
// has the result of a test with a database, in microseconds. The database's clock is [time.Now], so
// a Store works within testing/synctest. Make a Store with [NewStore]; it is safe for concurrent
// use.
//
// Rows that are inserted through a [Scope], or through the transaction of an adapter, become
// visible when the transaction commits; rows that are inserted through any other Execer become
// visible at once. Methods ignore their DB argument; [Store.DB] returns a DB to pass.
type Store struct {
	db *DB

	mu     sync.Mutex         // never held while anything blocks
	rows   map[string]*memRow // by event id; with rows that are not yet committed
	pauses map[pauseID]outbox.Pause
	nodes  map[string]report // by owner
	ranges outbox.Ranges     // as they were set last
	shares map[outbox.EventKind]outbox.Shares
	// replays are by name.
	replays map[string]outbox.ReplayRow
	// changes are the audit log, the oldest first.
	changes []change
}

type memRow struct {
	RawRow
	env     outbox.Envelope // as sealed; times and attempts are the RawRow's
	unique  uniqueKey
	hidden  bool // the row's transaction is still open
	locked  bool // an open transaction completes the row
	corrupt bool // the headers do not decode

	writer    outbox.TxScope // the transaction that inserted the row; nil: none
	taken     int            // changes of the row by an open transaction
	taker     outbox.TxScope // that transaction
	cancelled bool           // that transaction deletes the row
}

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{db: &DB{}, rows: map[string]*memRow{}, pauses: map[pauseID]outbox.Pause{}, shares: map[outbox.EventKind]outbox.Shares{}, replays: map[string]outbox.ReplayRow{}, nodes: map[string]report{}}
}

// DB is the pool to use with this store, and the writer's source.
func (s *Store) DB() *DB { return s.db }

// Writer makes a writer for this store, with hooks that run in the order given. The writer's events
// stay in the store until they are delivered.
func (s *Store) Writer(hooks ...outbox.WriterHook) *outbox.Writer {
	ob, err := outbox.New(outbox.Config{DB: s.db, Store: s, Mode: outbox.WriterOnly{}, Hooks: hooks})
	if err != nil {
		panic(err) // no field of this config can be wrong
	}
	return ob.Writer()
}

// Table is the table's name in errors.
func (s *Store) Table() string { return memoryTable }

// RawRow holds the columns of a row that are not in its envelope. The zero time
// and the empty string stand for NULL. Times are in UTC.
type RawRow struct {
	Status      outbox.Status
	Attempts    int
	AvailableAt time.Time
	CreatedAt   time.Time
	DoneAt      time.Time
	LastError   string
	LockedBy    string
	LockedAt    time.Time
}

// Row is a row of [Store] as a test sees it.
type Row struct {
	Envelope outbox.Envelope
	RawRow
}

// Rows are all committed rows, oldest first.
func (s *Store) Rows() []Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows []Row
	for _, r := range s.visible(oldestFirst, func(*memRow) bool { return true }) {
		rows = append(rows, Row{Envelope: r.envelope(), RawRow: r.RawRow})
	}
	return rows
}

// Emitted are the events of all committed rows, whatever their status, oldest first; it implements
// [Emitter]. Rows for a single listener of several are left out.
func (s *Store) Emitted() []outbox.Envelope {
	envs := []outbox.Envelope{}
	for _, row := range s.Rows() {
		if row.Envelope.Headers[outbox.HeaderListener] == "" {
			envs = append(envs, row.Envelope)
		}
	}
	return envs
}

// Row is the committed row of an event; false: the event has no such row.
func (s *Store) Row(eventID string) (Row, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[eventID]
	if r == nil || r.hidden {
		return Row{}, false
	}
	return Row{Envelope: r.envelope(), RawRow: r.RawRow}, true
}

// SetRow overwrites all of [RawRow] in the row of an event; false: the event has no row.
func (s *Store) SetRow(eventID string, row RawRow) bool {
	return s.change(eventID, func(r *memRow) { r.RawRow = row })
}

// CorruptHeaders replaces the headers of an event's row with headers that do not decode; false: the
// event has no row.
func (s *Store) CorruptHeaders(eventID string) bool {
	return s.change(eventID, func(r *memRow) { r.corrupt, r.env.Headers = true, nil })
}

func (s *Store) change(eventID string, fn func(r *memRow)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[eventID]
	if r != nil {
		fn(r)
	}
	return r != nil
}

// Insert implements [outbox.Store].
func (s *Store) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) error {
	_, err := s.InsertOnce(ctx, tx, envs, lease, due)
	return err
}

// InsertOnce implements [outbox.Store]. InsertOnce does not wait for open transactions: the ids and
// the unique keys of their events are taken. With KeepLatest, a row that another transaction has written
// or changes counts as in hand.
func (s *Store) InsertOnce(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) ([]string, error) {
	if len(envs) == 0 {
		return nil, nil
	}
	const doing = "inserting"
	ids := idsOf(envs, func(env outbox.Envelope) string { return env.EventID })
	scope, _ := tx.(outbox.TxScope)
	if scope != nil && !scope.Active() {
		return nil, s.fail(doing, outbox.ErrNoTransaction, ids...)
	}
	if err := s.lock(ctx, doing, ids...); err != nil {
		return nil, err
	}
	fresh, kept, there := s.insert(envs, ids, lease, due, scope)
	s.mu.Unlock()
	if len(there) > 0 {
		s.endKeeping(kept, false)
		return nil, s.fail(doing, &outbox.DuplicateEventError{EventID: there[0], EventIDs: there})
	}
	if scope == nil {
		s.endKeeping(kept, true)
		return ids, nil
	}
	if len(fresh)+len(kept) == 0 {
		return ids, nil
	}
	written := idsOf(fresh, func(env outbox.Envelope) string { return env.EventID })
	show := func() {
		s.show(written)
		s.endKeeping(kept, true)
	}
	drop := func() {
		s.drop(written)
		s.endKeeping(kept, false)
	}
	if err := join(scope, fresh, show, drop); err != nil {
		return nil, s.fail(doing, err, ids...)
	}
	return ids, nil
}

// join ties rows to a transaction: a [Scope], or a transaction of an adapter, in which no statement
// runs.
func join(scope outbox.TxScope, envs []outbox.Envelope, show, drop func()) error {
	if own, ok := scope.(*Scope); ok {
		return own.join(envs, show, drop)
	}
	err := scope.AfterRollback(func(context.Context, error) { drop() })
	if err == nil {
		err = scope.AtCommit(show)
	}
	if err != nil {
		drop()
	}
	return err
}

// insert adds all rows whose unique key is free, or no row if ids exist already: there has them. In ids, the
// ids of the other envelopes become those of the events that have their keys. kept are the rows that the
// envelopes with KeepLatest change.
func (s *Store) insert(envs []outbox.Envelope, ids []string, lease string, due time.Time, scope outbox.TxScope) (fresh []outbox.Envelope, kept []keptRow, there []string) {
	now := s.clock()
	added := make(map[string]*memRow, len(envs))
	for i, env := range envs {
		k, but := keptRow{env: env}, env.EventID
		if env.KeepLatest {
			but = ""
		}
		for _, rows := range []map[string]*memRow{s.rows, added} {
			if holder := holderOf(rows, but, uniqueKeyOf(&env)); holder != "" {
				k.row = rows[holder]
			}
		}
		if k.row != nil && env.KeepLatest {
			k.replaces = k.row.isFree(scope)
			k.begin(scope)
			kept = append(kept, k)
		}
		if k.row != nil && (k.replaces || !env.KeepLatest) {
			ids[i] = k.row.env.EventID
			continue
		}
		if s.rows[env.EventID] != nil || added[env.EventID] != nil {
			there = append(there, env.EventID)
			continue
		}
		r := &memRow{env: env, unique: uniqueKeyOf(&env), hidden: scope != nil, writer: scope, RawRow: RawRow{AvailableAt: env.AvailableAt, CreatedAt: env.OccurredAt}}
		r.env.Headers, r.env.UniqueKey, r.env.KeepLatest = maps.Clone(env.Headers), "", false
		if lease != "" && !env.KeepLatest && !env.AvailableAt.After(due) {
			r.LockedBy, r.LockedAt = lease, now
		}
		added[env.EventID] = r
		fresh = append(fresh, r.env)
	}
	if len(there) > 0 {
		return nil, kept, there
	}
	maps.Copy(s.rows, added)
	return fresh, kept, nil
}

// keptRow is the row that had the unique key of an envelope with KeepLatest.
type keptRow struct {
	row      *memRow
	env      outbox.Envelope
	replaces bool // the row gets the content of the envelope; else it loses the key
}

// begin changes the row until the transaction ends.
func (k keptRow) begin(scope outbox.TxScope) {
	if k.replaces {
		k.row.taken, k.row.taker = k.row.taken+1, scope
	} else {
		k.row.unique = uniqueKey{}
	}
}

// endKeeping ends the changes of rows with the transaction, or with the savepoint.
func (s *Store) endKeeping(kept []keptRow, commits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kept {
		switch key := uniqueKeyOf(&k.env); {
		case k.replaces:
			if k.row.taken--; commits {
				s.applyChange(k.row, outbox.Change{AvailableAt: k.env.AvailableAt, Content: &k.env})
			}
		case !commits && holderOf(s.rows, "", key) == "":
			k.row.unique = key
		}
	}
}

// uniqueKey is what is unique among the pending events; zero: nothing.
type uniqueKey struct {
	aggregateType outbox.AggregateType
	eventType     outbox.EventType
	key           string
}

func uniqueKeyOf(env *outbox.Envelope) uniqueKey {
	if env.UniqueKey == "" {
		return uniqueKey{}
	}
	return uniqueKey{env.AggregateType, env.EventType, env.UniqueKey}
}

// holderOf is the id of the pending event, other than the event of an id, that has a unique key; empty:
// no event has the key.
func holderOf(rows map[string]*memRow, but string, key uniqueKey) string {
	if key == (uniqueKey{}) {
		return ""
	}
	for id, r := range rows {
		if id != but && r.unique == key && r.live() {
			return id
		}
	}
	return ""
}

// show makes rows visible whose transaction committed.
func (s *Store) show(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.rows[id].hidden = false
	}
}

// drop removes rows whose transaction was rolled back.
func (s *Store) drop(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.rows, id)
	}
}

// Now implements [outbox.Store].
func (s *Store) Now(context.Context, outbox.DB) (time.Time, error) { return s.clock(), nil }

func (s *Store) clock() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// lock locks the store, unless the context has ended.
func (s *Store) lock(ctx context.Context, doing string, eventIDs ...string) error {
	if err := ctx.Err(); err != nil {
		return s.fail(doing, err, eventIDs...)
	}
	s.mu.Lock()
	return nil
}

// fail adds the operation, the event and the table to an error.
func (s *Store) fail(doing string, err error, eventIDs ...string) error {
	if len(eventIDs) > 0 {
		doing += " event " + eventIDs[0]
	}
	if more := len(eventIDs) - 1; more > 0 {
		doing += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("outbox: %s on %s: %w", doing, memoryTable, err)
}

// visible are the committed rows that pass a filter, in order.
func (s *Store) visible(order func(a, b *memRow) int, filter func(r *memRow) bool) []*memRow {
	var rows []*memRow
	for _, r := range s.rows {
		if !r.hidden && filter(r) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, order)
	return rows
}

// named are the committed rows of these ids that pass a filter.
func (s *Store) named(ids []string, filter func(r *memRow) bool) []*memRow {
	var rows []*memRow
	for _, id := range ids {
		if r := s.rows[id]; r != nil && !r.hidden && filter(r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// envelope is the row's envelope for a listener.
func (r *memRow) envelope() outbox.Envelope {
	env := r.env
	env.OccurredAt, env.AvailableAt, env.Attempts = r.CreatedAt, r.AvailableAt, r.Attempts
	env.Headers = maps.Clone(r.env.Headers)
	return env
}

func (r *memRow) live() bool { return !r.Status.Terminal() }

func (r *memRow) unlock() { r.LockedBy, r.LockedAt = "", time.Time{} }

// endedAt is done_at, or created_at if done_at is missing.
func (r *memRow) endedAt() time.Time {
	if r.DoneAt.IsZero() {
		return r.CreatedAt
	}
	return r.DoneAt
}

func oldestFirst(a, b *memRow) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.env.EventID, b.env.EventID))
}

func dueFirst(a, b *memRow) int {
	return cmp.Or(a.AvailableAt.Compare(b.AvailableAt), oldestFirst(a, b))
}

func diedFirst(a, b *memRow) int {
	return cmp.Or(a.endedAt().Compare(b.endedAt()), strings.Compare(a.env.EventID, b.env.EventID))
}

func idsOf[T any](list []T, id func(T) string) []string {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = id(list[i])
	}
	return ids
}
