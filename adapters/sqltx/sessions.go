package sqltx

import (
	"database/sql"
	"sync"
	"weak"
)

// sessions finds the session of a plain *sql.Tx, of whatever adapter.
var sessions = registry{open: make(map[weak.Pointer[sql.Tx]]*session)}

// registry is the open transactions. Its keys are weak, so that it keeps no
// transaction alive; a session that lost its transaction removes itself.
type registry struct {
	mu   sync.RWMutex
	open map[weak.Pointer[sql.Tx]]*session
}

func (r *registry) add(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[s.tx] = s
}

func (r *registry) remove(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, s.tx)
}

func (r *registry) find(tx *sql.Tx) *session {
	key := weak.Make(tx)
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.open[key]
}
