package outboxprom

import (
	"strings"
	"sync"

	"github.com/outboxkit/outbox-go/internal/bykind"
	"github.com/outboxkit/outbox-go/outbox"
)

// kinds finds the series of an event's types. Types up to the limit get separate series, so that
// types from outside cannot fill the memory of this process and of Prometheus.
type kinds struct {
	known          *bykind.Map[outbox.EventKind, *series]
	other, unknown func() *series
}

func newKinds(v *vectors, limit int) *kinds {
	return &kinds{
		known: bykind.New(limit, func(kind outbox.EventKind) *series {
			// The vectors panic on a label that is not UTF-8, which a row may contain.
			return v.series(valid(kind.EventType), valid(kind.AggregateType), valid(kind.Listener))
		}),
		other:   sync.OnceValue(func() *series { return v.series(OtherKinds, OtherKinds, "") }),
		unknown: sync.OnceValue(func() *series { return v.series(UnknownKind, UnknownKind, "") }),
	}
}

func valid[S ~string](label S) string { return strings.ToValidUTF8(string(label), "\uFFFD") }

func (k *kinds) of(kind outbox.EventKind) *series {
	if kind == (outbox.EventKind{}) { // a row that cannot be decoded
		return k.unknown()
	}
	if s, ok := k.known.Of(kind); ok {
		return s
	}
	return k.other()
}
