package checker

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// facts is a history, arranged for the questions of the rules.
type facts struct {
	History
	report Report

	txs    map[string]*transaction
	events []*event // in the order of their ids
	byID   map[string]*event
	// deliveries are in the order in which they began.
	deliveries []*delivery
	to         map[Target][]*delivery
	keys       map[string][]*event // by key, the events that stand, in order
	faults     faults
	lateCalls  map[fault]int     // after a stop
	closed     map[string]Record // by process
	replays    map[Target][]time.Time
	deleted    map[Target]bool        // also those that were restored afterwards
	gone       map[Target]bool        // deleted and not restored
	expiries   map[string][]time.Time // by event; see OpExpired
	requests   map[string]*requests   // by Idempotency-Key
}

// transaction is a transaction that wrote events.
type transaction struct {
	id     string
	commit time.Time // when the writer was about to commit; zero: not recorded
	ended  Op        // empty: the writer's process died
	asks   string    // Request.Asks of the request that the transaction executes
}

// event is an event that was written.
type event struct {
	Event
	tx      *transaction
	written time.Time
	taken   bool // by a savepoint
	// kept is the event that kept this event out, by their unique key, and keptAt when the writer
	// learned of it; zero: the event was not kept out.
	kept   string
	keptAt time.Time
	// changes are the changes of the event, in order. unsure: other transactions may have changed it.
	changes []change
	unsure  bool
	stands  bool
	place   int // among the events of the same key that stand
}

// delivery is a call of a listener.
type delivery struct {
	Target
	process    string
	begin, end time.Time
	ahead      time.Duration // see Record
	content    string        // see Record
	attempt    int
	result     string // empty: interrupted
}

// far is the end of a delivery that never ended.
var far = time.Unix(0, math.MaxInt64)

// arrange makes the facts of a history. Records that do not fit together are violations.
func arrange(h History) *facts {
	h.Promise = h.Promise.withDefaults()
	f := &facts{
		History: h, txs: map[string]*transaction{}, byID: map[string]*event{}, to: map[Target][]*delivery{},
		keys: map[string][]*event{}, lateCalls: map[fault]int{}, closed: map[string]Record{}, replays: map[Target][]time.Time{}, deleted: map[Target]bool{}, gone: map[Target]bool{}, expiries: map[string][]time.Time{},
		requests: map[string]*requests{},
	}
	f.Records = slices.Clone(f.Records)
	slices.SortStableFunc(f.Records, func(x, y Record) int { return x.At.Compare(y.At) })
	f.faults = faultsOf(f.Records)
	for _, r := range f.Records {
		f.arrangeWriting(r)
		f.arrangeRequest(r)
	}
	f.arrangeDeliveries()
	f.arrangeEvents()
	f.arrangeChanges()
	f.arrangeOperators()
	return f
}

func (f *facts) arrangeWriting(r Record) {
	if r.Tx == "" {
		return
	}
	tx := f.txs[r.Tx]
	if tx == nil {
		tx = &transaction{id: r.Tx}
		f.txs[r.Tx] = tx
	}
	switch r.Op {
	case OpWrite:
		for _, e := range r.Events {
			if f.byID[e.ID] != nil {
				f.broken(RuleRecords, e.ID, "written twice")
				continue
			}
			f.byID[e.ID] = &event{Event: e, tx: tx, written: r.At}
		}
	case OpSavepoint:
		for _, e := range r.Events {
			if f.byID[e.ID] == nil {
				f.broken(RuleRecords, e.ID, "a savepoint took it back that did not write it")
				continue
			}
			f.byID[e.ID].taken = true
		}
	case OpKeptOut:
		for _, e := range r.Events {
			if f.byID[e.ID] == nil {
				f.broken(RuleRecords, e.ID, "it was kept out, and it was never written")
				continue
			}
			f.byID[e.ID].kept, f.byID[e.ID].keptAt = r.Event, r.At
		}
	case OpCommit:
		tx.commit = r.At
	case OpCommitted, OpRolledBack, OpUnknown:
		if tx.ended != "" {
			f.broken(RuleRecords, "", "transaction %s ended twice", tx.id)
		}
		tx.ended = r.Op
	default:
	}
}

// arrangeOperators follows the fate of dead letters, and of processes.
func (f *facts) arrangeOperators() {
	rows := map[string]Target{}
	for _, e := range f.events {
		rows[e.ID] = Target{Event: e.ID}
		for _, t := range f.targets(e) {
			if t.Listener != "" {
				rows[rowOf(t)] = t
			}
		}
	}
	for _, r := range f.Records {
		if r.Op == OpClosed {
			f.closed[r.Process] = r
		}
		if r.Op == OpExpired {
			for _, e := range r.Events {
				f.expiries[e.ID] = append(f.expiries[e.ID], r.At)
			}
		}
		if r.Op != OpReplayed && r.Op != OpDeleted && r.Op != OpRestored {
			continue
		}
		for _, e := range r.Events {
			t, ok := rows[e.ID]
			switch {
			case !ok:
				f.broken(RuleRecords, e.ID, "%s, but there was no such row", r.Op)
			case r.Op == OpReplayed:
				f.replays[t] = append(f.replays[t], r.At)
			case r.Op == OpRestored:
				if !f.gone[t] {
					f.broken(RuleRecords, e.ID, "it was restored, and it was not deleted")
				}
				delete(f.gone, t)
			default:
				f.deleted[t], f.gone[t] = true, true
			}
		}
	}
}

// arrangeDeliveries pairs the beginnings of deliveries with their ends.
func (f *facts) arrangeDeliveries() {
	type call struct {
		process string
		number  int64
	}
	open := map[call]*delivery{}
	for _, r := range f.Records {
		c := call{r.Process, r.Call}
		switch r.Op {
		case OpBegan:
			if open[c] != nil {
				f.broken(RuleRecords, r.Event, "call %d of %s began twice", r.Call, r.Process)
			}
			d := &delivery{Target: Target{r.Event, r.Listener}, process: r.Process, ahead: r.Ahead, content: r.Content, attempt: r.Attempt, begin: r.At, end: latest(r.At, f.faults.death(r.Process))}
			open[c] = d
			f.deliveries = append(f.deliveries, d)
			f.to[d.Target] = append(f.to[d.Target], d)
		case OpEnded:
			d := open[c]
			if d == nil || d.Target != (Target{r.Event, r.Listener}) || d.result != "" {
				f.broken(RuleRecords, r.Event, "call %d of %s ended that had not begun", r.Call, r.Process)
				continue
			}
			d.end, d.result = r.At, r.Result
		default:
		}
	}
}

func (f *facts) arrangeEvents() {
	for _, e := range f.byID {
		e.stands = f.Orders[e.tx.id] && !e.taken && e.keptAt.IsZero()
		f.events = append(f.events, e)
	}
	slices.SortFunc(f.events, func(x, y *event) int { return cmp.Compare(x.ID, y.ID) })
	for _, e := range f.events {
		if e.stands && e.Key != "" && !e.Delayed {
			f.keys[e.Key] = append(f.keys[e.Key], e)
		}
	}
	for key, events := range f.keys {
		slices.SortFunc(events, func(x, y *event) int { return cmp.Compare(x.Seq, y.Seq) })
		for i, e := range events {
			e.place = i
			if i > 0 && events[i-1].Seq == e.Seq {
				f.broken(RuleRecords, e.ID, "it has the place of %s in key %s", events[i-1].ID, key)
			}
		}
	}
}

// targets are an event's listeners.
func (f *facts) targets(e *event) []Target {
	names := f.Promise.listeners(e.Type)
	targets := make([]Target, len(names))
	for i, name := range names {
		targets[i] = Target{e.ID, name}
	}
	return targets
}

// row is the row that decides about a listener: the listener's own row, or the row of the event.
func (f *facts) row(t Target) (row Row, own, ok bool) {
	if row, ok = f.Rows[t]; ok {
		return row, t.Listener != "", true
	}
	row, ok = f.Rows[Target{Event: t.Event}]
	return row, false, ok
}

// delivered reports whether a listener was successful with an event. A process can die
// between the commit of a listener's effect and the record of it.
func (f *facts) delivered(t Target) bool {
	return f.Effects[t] > 0 || slices.ContainsFunc(f.to[t], func(d *delivery) bool { return d.result == Done })
}

// dead reports whether the event or any of the event's listeners has a DEAD row.
func (f *facts) dead(e *event) bool {
	if f.Rows[Target{Event: e.ID}].Status == statusDead {
		return true
	}
	return slices.ContainsFunc(f.targets(e), func(t Target) bool { return f.Rows[t].Status == statusDead })
}

// intervened reports whether an operator replayed or deleted a dead letter of the event.
func (f *facts) intervened(e *event) bool {
	own := Target{Event: e.ID}
	return f.deleted[own] || len(f.replays[own]) > 0 || slices.ContainsFunc(f.targets(e), func(t Target) bool {
		return f.deleted[t] || len(f.replays[t]) > 0
	})
}

// blocked reports whether the event waits for a DEAD event of the same key.
func (f *facts) blocked(e *event) bool {
	if f.Promise.Mode != "by-key" || f.Promise.SkipDead || e.Key == "" {
		return false
	}
	before := f.keys[e.Key]
	return slices.ContainsFunc(before[:min(e.place+1, len(before))], f.dead)
}
