package outbox

import (
	"errors"
	"sync"
	"time"
)

// tracker knows every event that this process has in hand, from the moment when the event is
// written or enqueued until the outcome is stored. The poller's copy of such an event is dropped,
// which makes duplicates between the hot and the cold path impossible within one process:
//
//   - An event is reserved before its row is inserted, so that the poller cannot
//     take the row between the commit and the hot queue.
//   - While the poller reads, events that leave the tracker are remembered if they were due
//     when the read began: the rows that the poller is about to hand over may be older than
//     their outcome.
//
// A row that this node claims again is a copy too, unless the outcome in hand
// took effect before. The delivery in hand then goes on under the new lease.
//
// The tracker counts the takeovers: events that a dead process may have had in hand. Such an
// event may kill this process too, so takeovers are delivered few at a time, and the attempts of
// the other events are left alone.
type tracker struct {
	mu      sync.Mutex
	events  map[string]*delivery
	reading bool
	due     time.Time       // the read returns the events that are due by then
	last    *delivery       // in [Ordered], the last one with an outcome; see [tracker.setLast]
	left    map[string]bool // events that left since the read began and were due then; true: without an outcome

	takeovers int       // in hand
	survived  int       // not in hand any more, of the events taken over the first time
	since     time.Time // since when takeovers are in hand
	wake      func()    // called when a takeover leaves; must not block
}

// takeoverStep is how long this process has to survive its takeovers until another takeover may
// join them. A poison event mostly kills as soon as it is delivered.
const takeoverStep = time.Second

func newTracker(wake func()) *tracker {
	return &tracker{events: map[string]*delivery{}, left: map[string]bool{}, wake: wake}
}

// reserve marks the deliveries whose events are not in hand.
func (t *tracker) reserve(ds []delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range ds {
		if d := &ds[i]; t.events[d.id()] == nil {
			d.state = reserved
			t.events[d.id()] = d
		}
	}
}

// unreserve gives up the deliveries that are still reserved.
func (t *tracker) unreserve(ds []delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range ds {
		if d := &ds[i]; d.state == reserved && t.events[d.id()] == d {
			t.forget(d)
		}
	}
}

// promote turns a reservation into a delivery in hand; false when the event is not reserved for
// this delivery.
func (t *tracker) promote(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.state != reserved || t.events[d.id()] != d {
		return false
	}
	d.state = inHand
	return true
}

// acquire takes an event that was read or claimed; false when the event is a copy of an event that
// is in hand, or was when the present read began. When the copy was claimed, the delivery in hand
// goes on under the lease of the copy. comes says of a copy that the event is given back, or will be
// because the hold began a new term: in [Ordered] the rows behind the copy must not go before it.
func (t *tracker) acquire(d *delivery) (acquired, comes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held := t.events[d.id()]; held != nil && held.covers(d) {
		if d.lease != "" {
			held.leaveRight()
			held.lease, held.until = d.lease, d.until
			held.claimed = claimed{max(held.claimed.attempts, d.env.Attempts), held.claimed.counted || d.counted}
		}
		return false, held.term != d.term && held.state == inHand
	}
	if comes, stale := t.left[d.id()]; stale && d.lease == "" {
		return false, comes
	}
	if held := t.events[d.id()]; held != nil {
		t.forget(held)
	}
	d.state = inHand
	t.events[d.id()] = d
	if d.right != nil {
		d.right.inHand++
	}
	if d.takeover {
		if t.takeovers++; t.takeovers == 1 {
			t.since = time.Now()
		}
	}
	return true, false
}

// covers reports whether the other delivery of the same event is a copy. A row that was only read
// is a copy. A claimed row is not a copy in two cases: a transaction writes an event of the same id
// again, which will fail; or the retry or deferral in hand took effect, and the row is due at the
// time that the retry or deferral set, or a microsecond later, if the claim moved it. DONE that is on
// its way has not taken effect, because the row could be claimed. DEAD may have: if the event was
// replayed at once, settle gives the new lease back.
func (d *delivery) covers(other *delivery) bool {
	switch {
	case other.lease == "":
		return true
	case d.state == reserved:
		return false
	case d.state != storing || d.outcome.final():
		return true
	default:
		later := other.env.AvailableAt.Sub(d.next)
		return later != 0 && later != time.Microsecond
	}
}

// storing says that a statement with these outcomes begins, and returns the marks to store, each
// under the lease that its delivery has now.
func (t *tracker) storing(ds []*delivery) []Mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	marks := make([]Mark, len(ds))
	for i, d := range ds {
		d.state = storing
		marks[i] = d.mark()
	}
	return marks
}

// release lets go of deliveries that will have no outcome, and returns their
// leases.
func (t *tracker) release(ds ...*delivery) (leases []Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range ds {
		if d.right != nil {
			d.right.gaveBack = true
		}
		t.leave(d, !d.completed)
		if d.lease != "" {
			leases = append(leases, Lease{EventID: d.id(), Name: d.lease})
		}
	}
	return leases
}

// isUnstored reports whether the outcome of a delivery is still to be stored, and not
// refused; the tracker's mu is held.
func (d *delivery) isUnstored() bool { return d != nil && d.state != untracked && !d.stuck }

// lastIsUnstored reports whether the last outcome in [Ordered] is unstored.
func (t *tracker) lastIsUnstored() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last.isUnstored()
}

// setLast notes the last outcome in [Ordered]: earlier outcomes are stored first.
func (t *tracker) setLast(d *delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = d
}

// settle lets go of deliveries whose marks were stored or refused. This node may have claimed their
// rows again meanwhile. If the claim came before the mark, the mark was refused: the delivery stays
// in hand, to be stored under the new lease. If the claim came after the mark, as when the event
// was replayed, the new lease is to be given back. A delivery whose row the database skipped stays
// in hand, too.
func (t *tracker) settle(outcome Outcome, ds []*delivery, marks []Mark, left map[string]RowState) (again []*delivery, back []Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, d := range ds {
		row, refused := left[d.id()]
		d.skipped = refused && row.skipped(marks[i]) && d.lease == marks[i].Lease && (!d.repeated || !row.shows(outcome))
		if d.skipped {
			again = append(again, d)
			continue
		}
		if claimed := d.lease != marks[i].Lease; claimed {
			if refused {
				again = append(again, d)
				continue
			}
			back = append(back, Lease{EventID: d.id(), Name: d.lease})
		}
		t.leave(d, false)
	}
	return again, back
}

// leave removes a delivery, and remembers the event while the poller reads, and whether the event
// comes again because it has no outcome; mu is held.
func (t *tracker) leave(d *delivery, comes bool) {
	if t.events[d.id()] != d {
		return
	}
	t.forget(d)
	if t.reading && !d.env.AvailableAt.After(t.due) {
		t.left[d.id()] = comes
	}
}

// forget removes a delivery; mu is held.
func (t *tracker) forget(d *delivery) {
	delete(t.events, d.id())
	d.state = untracked
	d.leaveRight()
	if d.takeover {
		t.takeovers--
		if d.env.Attempts <= 1 {
			t.survived++
		}
		t.wake()
	}
}

// takeoverRoom is how many more events may be taken over now. At first there is room for a single
// event, and for another event after each [takeoverStep] that the process survives the takeovers in
// hand. Unless events come one by one, each takeover that left again makes room for another. In all
// there is room for no more than can run at once. Events that had attempts before do not make room
// for others: the poison event, and the events beside which it killed a process, are among them.
// waits says that room will come by waiting.
func (t *tracker) takeoverRoom(workers int, oneByOne bool) (room int, waits bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	allowed := 1
	if !oneByOne {
		allowed += t.survived
	}
	if t.takeovers > 0 {
		allowed += int(time.Since(t.since) / takeoverStep)
	}
	return min(workers, allowed) - t.takeovers, t.takeovers > 0 && allowed < workers
}

// beginRead says that the poller reads the events that are due by a time.
func (t *tracker) beginRead(due time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading, t.due = true, due
}

func (t *tracker) endRead() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading = false
	clear(t.left)
}

// holds reports whether an event is in hand.
func (t *tracker) holds(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.events[id] != nil
}

// isEmpty reports whether no event is in hand.
func (t *tracker) isEmpty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.events) == 0
}

// leases lists the leases of the events that are queued, running or being stored. The rows of open
// transactions are left out, because they are locked.
func (t *tracker) leases() []Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	var leases []Lease
	for id, d := range t.events {
		if d.state != reserved && d.lease != "" && (d.completion == nil || d.completion.over) {
			leases = append(leases, Lease{EventID: id, Name: d.lease})
		}
	}
	return leases
}

// leased reports whether the lease of a run's event, or the right to the event's range, surely
// lasts. The delivery, which may begin then, gets the attempts that the row has by now.
func (t *tracker) leased(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.claimed.attempts > d.env.Attempts { // a writer's hook may be reading other envelopes
		d.env.Attempts = d.claimed.attempts
	}
	d.counted = d.counted || d.claimed.counted
	until := d.until
	if d.right != nil {
		until = d.right.until
	}
	return until.IsZero() || time.Now().Before(until)
}

// leaveRight ends the part of a delivery in the right to a range; the tracker's mu is held.
func (d *delivery) leaveRight() {
	if d.right != nil {
		d.right.inHand--
		d.right = nil
	}
}

// isFinished reports whether nothing of a range is in hand.
func (t *tracker) isFinished(r *right) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.inHand == 0
}

// gaveBack reports whether a range had events that left without an outcome.
func (t *tracker) gaveBack(r *right) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.gaveBack
}

// needsRight reports whether the right to a range is to be renewed by a time.
func (t *tracker) needsRight(r *right, by time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.inHand > 0 && !r.abandoned && r.until.Before(by) && time.Now().Before(r.until)
}

// abandon lets a right expire.
func (t *tracker) abandon(r *right) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.abandoned = true
}

// renewRights says until when rights last.
func (t *tracker) renewRights(rights []*right, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range rights {
		r.until = until
	}
}

// readAgain keeps a range, which is to be read again, until readEnded; false when the right is over.
func (t *tracker) readAgain(r *right) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.suspects || !time.Now().Before(r.until) {
		return false
	}
	r.inHand++
	return true
}

// readEnded says that the events of a range that a read found are in hand.
func (t *tracker) readEnded(r *right) {
	if r == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.inHand--
}

// inHandOf is how many events of a range are in hand, apart from the read under way.
func (t *tracker) inHandOf(r *right) int {
	if r == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.inHand - 1
}

// haveRows reports whether n events of a range are in hand whose outcomes are surely not stored yet.
func (t *tracker) haveRows(r *right, n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.events {
		if d.right == r && d.state == inHand && d.completion == nil {
			n--
		}
	}
	return n == 0
}

// renewed says that a statement which began at that time renewed leases. A lease that was over
// before the answer came may have been another process's meanwhile.
func (t *tracker) renewed(leases []Lease, began time.Time, leaseDuration time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, l := range leases {
		if d := t.events[l.EventID]; d != nil && d.lease == l.Name && now.Before(d.until) {
			d.until = began.Add(leaseDuration)
		}
	}
}

// inTurn separates outcomes that a single statement may store from outcomes that follow an event of
// their run whose outcome is not stored before. A run's outcomes are stored in order, so that no
// event is delivered again after a later event of the same key is done.
func (t *tracker) inTurn(ds []*delivery) (now, later []*delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var in map[*delivery]bool
	for i, d := range ds {
		if d.before != nil && d.before.state != untracked && !in[d.before] {
			if later == nil {
				now = append(make([]*delivery, 0, len(ds)), ds[:i]...)
			}
			later = append(later, d)
			continue
		}
		if later != nil {
			now = append(now, d)
		}
		if d.behind != nil {
			if in == nil {
				in = make(map[*delivery]bool, len(ds)-i)
			}
			in[d] = true
		}
	}
	if later == nil {
		return ds, nil
	}
	return now, later
}

func (t *tracker) isTurn(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.last.isUnstored() && (d.before == nil || d.before.state == untracked)
}

// stick marks the outcome of a delivery as refused, and returns the delivery that takes the place
// of d. The new delivery has no payload, unless the payload is still needed.
func (t *tracker) stick(d *delivery) *delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.stuck = true
	if d.answers != nil || d.before != nil || d.behind != nil || t.events[d.id()] != d {
		return d
	}
	slim, env := *d, *d.env
	env.Payload, env.Headers = Payload{}, nil
	slim.env, slim.ctx = &env, deliveryContext{}
	t.events[d.id()] = &slim
	return &slim
}

// errUncommitted is why a delivery fails whose listener completed the event and
// returned without an error before the transaction committed.
var errUncommitted = errors.New("the listener completed the event in a transaction that did not commit")

// answer ends the time in which a listener can complete its event. answer returns
// whether the event is completed, and the error that counts if not.
func (t *tracker) answer(dl *delivery, err error) (completed bool, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dl.answered = true
	switch c := dl.completion; {
	case c == nil:
		return false, err
	case c.committed:
		return true, err
	case err == nil:
		return false, errUncommitted
	default:
		return false, err
	}
}

// isCompleted reports whether the listener's transaction has committed.
func (t *tracker) isCompleted(dl *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return dl.completion != nil && dl.completion.committed
}
