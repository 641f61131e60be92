package outboxbun

import "sync"

// sessions is the open transactions by the address of their lifetime. A
// lifetime that is alive is the newest at its address, so that whoever holds one
// finds its session and no other.
var sessions = registry{open: make(map[uintptr]*session)}

type registry struct {
	mu   sync.RWMutex
	open map[uintptr]*session
}

func (r *registry) add(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[s.address] = s
}

func (r *registry) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[s.address] == s {
		delete(r.open, s.address)
	}
}

func (r *registry) at(address uintptr) *session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.open[address]
}
