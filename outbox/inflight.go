package outbox

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
)

// tracker knows every event that this process has in hand, from the moment it
// is written or enqueued until its outcome is stored. The poller's copy of such
// an event is dropped. That makes duplicates between the hot and the cold path
// impossible within one process:
//
//   - An event is reserved before its row is inserted, so that the poller cannot
//     take the row between the commit and the hot queue.
//   - While the poller reads, events that leave the tracker are remembered: the
//     rows that it is about to hand over may be older than their outcome.
//
// It counts the events that were taken over from nodes that died. A takeover
// costs an attempt, and one of them may kill this process too: so it takes one at
// first and then one more at once for each that it survived, up to what can run
// at once, and leaves the others' attempts alone.
type tracker struct {
	mu        sync.Mutex
	events    map[string]tracked
	reading   bool
	left      map[string]struct{} // what left the tracker since the read began
	takeovers map[string]struct{} // those of the events that may have been taken over
	survived  int                 // of those that are not in hand any more
	wake      func()              // called when one of those leaves; it must not block
}

// tracked is an event in hand. The envelope tells one delivery of it from another;
// it is nil while the event is reserved.
type tracked struct {
	state trackState
	env   *Envelope
}

// anew reports whether a claimed row is no copy of the event in hand: the row was
// claimed anew after the outcome of that took effect. A retry and a
// deferral move the time at which it is due, giving back leaves its attempts
// alone. A takeover of this node's own expired lease has the same time and more
// attempts: that is a copy.
func (held tracked) anew(env *Envelope) bool {
	return held.state == storing &&
		(!held.env.AvailableAt.Equal(env.AvailableAt) || env.Attempts <= held.env.Attempts)
}

type trackState uint8

const (
	reserved trackState = iota + 1 // in an open transaction
	inFlight                       // queued, running, or its outcome not yet stored
	storing                        // leased, and its outcome may be stored already
)

func newTracker(wake func()) *tracker {
	return &tracker{events: map[string]tracked{}, left: map[string]struct{}{}, takeovers: map[string]struct{}{}, wake: wake}
}

// reserve marks the first n envelopes that are not delayed.
func (t *tracker) reserve(envs []Envelope, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range envs {
		if n == 0 {
			return
		}
		if !envs[i].IsDelayed() {
			n--
			if _, known := t.events[envs[i].EventID]; !known {
				t.events[envs[i].EventID] = tracked{state: reserved}
			}
		}
	}
}

// unreserve gives up what is still reserved.
func (t *tracker) unreserve(envs []Envelope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range envs {
		if t.events[envs[i].EventID].state == reserved {
			delete(t.events, envs[i].EventID)
		}
	}
}

// promote turns a reservation into an event in flight; false when there is no
// reservation.
func (t *tracker) promote(env *Envelope) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.events[env.EventID].state != reserved {
		return false
	}
	t.events[env.EventID] = tracked{inFlight, env}
	return true
}

// acquire takes an event that is not in hand; false when it is, or was when the
// poller's present read began. doomed: it is because a transaction that has not
// ended writes an event of the same id, which will fail, for there is a row.
func (t *tracker) acquire(env *Envelope, takeover bool) (taken, doomed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held, known := t.events[env.EventID]; known && !held.anew(env) {
		return false, held.state == reserved
	}
	if _, stale := t.left[env.EventID]; stale {
		return false, false
	}
	t.events[env.EventID] = tracked{inFlight, env}
	if takeover {
		t.takeovers[env.EventID] = struct{}{}
	}
	return true, false
}

// takeoverRoom is how many more events may be taken over now.
func (t *tracker) takeoverRoom(workers int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return min(workers, 1+t.survived) - len(t.takeovers)
}

// remove takes an event out; mu is held.
func (t *tracker) remove(id string) {
	delete(t.events, id)
	if _, takeover := t.takeovers[id]; takeover {
		delete(t.takeovers, id)
		t.survived++
		t.wake()
	}
}

// store says that a statement begins after which leased events may be claimed
// again. The moment it takes effect, this node may claim such a row anew, before
// it could be released here: that is no copy, and acquire lets it in; see anew.
// It may have taken effect although it failed.
func (t *tracker) store(envs []*Envelope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, env := range envs {
		if t.events[env.EventID].env == env {
			t.events[env.EventID] = tracked{storing, env}
		}
	}
}

// claimedAnew reports whether this node has claimed an event again, or had, since
// it was in hand as env; nil: since it was reserved.
func (t *tracker) claimedAnew(id string, env *Envelope) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.events[id].env != env
}

// stored lets go of leased events, but for those that were claimed anew.
func (t *tracker) stored(envs []*Envelope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, env := range envs {
		if t.events[env.EventID].env == env {
			t.remove(env.EventID)
		}
	}
}

// holdsAny reports whether any of the events is in hand.
func (t *tracker) holdsAny(ids []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if _, known := t.events[id]; known {
			return true
		}
	}
	return false
}

// release lets go of an event that will have no outcome.
func (t *tracker) release(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(id)
}

// releaseAll lets go of events whose outcomes are stored.
func (t *tracker) releaseAll(envs []*Envelope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, env := range envs {
		t.leave(env.EventID)
	}
}

// leave removes an event, and remembers it while the poller reads; mu is held.
func (t *tracker) leave(id string) {
	t.remove(id)
	if t.reading {
		t.left[id] = struct{}{}
	}
}

func (t *tracker) beginRead() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading = true
}

func (t *tracker) endRead() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading = false
	clear(t.left)
}

// inFlightIDs lists what is queued, running or being stored.
func (t *tracker) inFlightIDs() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := make([]string, 0, len(t.events))
	for id, held := range t.events {
		if held.state != reserved {
			ids = append(ids, id)
		}
	}
	return ids
}

// newOwner names this process for leases: host, process id and a random part,
// for a process id alone comes back after a restart.
func newOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	host = strings.ToValidUTF8(host, "")
	if len(host) > 64 {
		host = strings.ToValidUTF8(host[:64], "")
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}
