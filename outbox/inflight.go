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
type tracker struct {
	mu      sync.Mutex
	events  map[string]trackState
	reading bool
	left    map[string]struct{} // what left the tracker since the read began
}

type trackState uint8

const (
	reserved trackState = iota + 1 // in an open transaction
	inFlight                       // queued, running, or its outcome not yet stored
	storing                        // leased, and its outcome is being stored
)

func newTracker() *tracker {
	return &tracker{events: map[string]trackState{}, left: map[string]struct{}{}}
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
				t.events[envs[i].EventID] = reserved
			}
		}
	}
}

// unreserve gives up what is still reserved.
func (t *tracker) unreserve(envs []Envelope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range envs {
		if t.events[envs[i].EventID] == reserved {
			delete(t.events, envs[i].EventID)
		}
	}
}

// promote turns a reservation into an event in flight; false when there is no
// reservation.
func (t *tracker) promote(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.events[id] != reserved {
		return false
	}
	t.events[id] = inFlight
	return true
}

// acquire takes an event that is not in hand; false when it is, or was when the
// poller's present read began.
func (t *tracker) acquire(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state, known := t.events[id]; known && state != storing {
		return false
	}
	if _, stale := t.left[id]; stale {
		return false
	}
	t.events[id] = inFlight
	return true
}

// store says that the outcomes of leased events are about to be stored. The
// moment they are, this node may claim such a row anew, before it could be
// released here: that is no copy, and acquire lets it in.
func (t *tracker) store(ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if t.events[id] == inFlight {
			t.events[id] = storing
		}
	}
}

// stored lets go of leased events, but for those that were claimed anew.
func (t *tracker) stored(ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if t.events[id] == storing {
			delete(t.events, id)
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

// release lets go of events whose outcome is stored.
func (t *tracker) release(ids ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		delete(t.events, id)
		if t.reading {
			t.left[id] = struct{}{}
		}
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
	for id, state := range t.events {
		if state != reserved {
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
