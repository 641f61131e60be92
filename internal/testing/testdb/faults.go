package testdb

import (
	"sync"
	"testing"

	"github.com/outboxkit/outbox-go/internal/testing/faultproxy"
)

// Fault is the state of the connections of a pool from [DB.Faulty].
type Fault int

// The faults.
const (
	// Working: everything is forwarded.
	Working Fault = iota
	// Silent: nothing is forwarded, in either direction. New connections are accepted,
	// and get no answer.
	Silent
	// Mute: the server gets all data, and the server's answers are lost.
	Mute
	// Away: connections are cut, and new connections are cut at once.
	Away
)

// faults is the state of a proxy.
type faults struct {
	mu      sync.Mutex
	changed *sync.Cond
	now     Fault
	ended   bool
}

// Faulty opens another pool on the same database, through a proxy. set changes the state of the
// pool's connections. The proxy ends with the test.
func (db *DB) Faulty(t testing.TB) (faulty *DB, set func(Fault)) {
	t.Helper()
	f := &faults{}
	f.changed = sync.NewCond(&f.mu)
	t.Cleanup(f.end)
	faulty, proxy := db.through(t, func(*faultproxy.Conn) (faultproxy.Rules, bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return faultproxy.Rules{
			Request: func([]byte) bool { return f.wait() != Away },
			Answer:  func([]byte) bool { now := f.wait(); return now != Away && now != Mute },
		}, f.now != Away
	})
	return faulty, func(to Fault) {
		if was := f.set(to); to == Away || was == Mute { // after lost answers nothing on a connection makes sense
			proxy.CloseAll()
		}
	}
}

func (f *faults) set(to Fault) (was Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, f.now = f.now, to
	f.changed.Broadcast()
	return was
}

func (f *faults) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now, f.ended = Away, true
	f.changed.Broadcast()
}

// wait waits until the connections are not silent, and returns the present state.
func (f *faults) wait() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.now == Silent && !f.ended {
		f.changed.Wait()
	}
	return f.now
}
