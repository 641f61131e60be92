package outboxotel

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox"
)

// bounded keeps something for each kind of event, for as many kinds as the limit
// allows. The map is replaced, never changed, so that reading it takes no lock.
type bounded[V any] struct {
	limit int
	make  func(outbox.EventKind) V

	known atomic.Pointer[map[outbox.EventKind]V]
	mu    sync.Mutex // held while known is replaced
}

// of returns what is kept for the kind; false if there was no room for it.
func (b *bounded[V]) of(kind outbox.EventKind) (v V, ok bool) {
	known := b.load()
	if v, ok = known[kind]; ok || len(known) >= b.limit {
		return v, ok
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	known = b.load()
	if v, ok = known[kind]; ok || len(known) >= b.limit {
		return v, ok
	}
	v = b.make(kind)
	grown := make(map[outbox.EventKind]V, len(known)+1)
	maps.Copy(grown, known)
	grown[kind] = v
	b.known.Store(&grown)
	return v, true
}

func (b *bounded[V]) load() map[outbox.EventKind]V {
	if known := b.known.Load(); known != nil {
		return *known
	}
	return nil
}
