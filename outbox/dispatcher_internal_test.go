package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/groupcommit"
)

// full is a store that has no room for an outcome, and says so late at first.
type full struct {
	Store
	late chan struct{}
}

func (s full) Mark(context.Context, DB, Outcome, []Mark) (map[string]RowState, error) {
	<-s.late
	return nil, errors.New("the disk is full")
}

func (full) Now(context.Context, DB) (time.Time, error) { return time.Now(), nil }

// accepts starts a dispatcher on the store whose listener accepts all events.
func accepts(t *testing.T, store Store) *Dispatcher {
	t.Helper()
	registry := NewRegistry()
	listen := ListenerFunc(func(context.Context, Envelope) (Result, error) { return Done(), nil })
	require.NoError(t, registry.Register(Binding{AggregateType: "Order", EventType: "Placed", Listener: listen}))
	d, err := NewDispatcher(DispatcherConfig{DB: struct{ DB }{}, Store: store, Registry: registry, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, d.Start(t.Context()))
	return d
}

// placed is an event that it accepts.
func placed(n int) Envelope {
	return Envelope{EventID: fmt.Sprint(n), AggregateType: "Order", EventType: "Placed"}
}

// The next process takes that many events for suspects when this one dies.
func TestAProcessHasNoMoreInHandThanItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		d := accepts(t, full{late: late})
		taken := 0
		offer := func() {
			for refused := 0; refused < 10; {
				if d.EnqueueHot(placed(taken)) || d.Handle(placed(taken)) {
					taken, refused = taken+1, 0
					continue
				}
				refused++
				time.Sleep(time.Second)
			}
		}
		offer()
		close(late) // now there are two full batches
		offer()
		limit := int(d.inHandLimit())
		require.LessOrEqual(t, taken, limit)
		require.Greater(t, taken, limit-groupcommit.Batch, "the limit counts a batch that there cannot be")
		require.ErrorContains(t, d.Close(t.Context()), "could not be stored")
	})
}
