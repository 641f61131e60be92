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

// The next process takes that many events for suspects when this one dies.
func TestAProcessHasNoMoreInHandThanItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := NewRegistry()
		listen := ListenerFunc(func(context.Context, Envelope) (Result, error) { return Done(), nil })
		require.NoError(t, registry.Register(Binding{AggregateType: "Order", EventType: "Placed", Listener: listen}))
		late := make(chan struct{})
		d, err := NewDispatcher(DispatcherConfig{DB: struct{ DB }{}, Store: full{late: late}, Registry: registry, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, d.Start(t.Context()))
		taken := 0
		offer := func() {
			env := Envelope{AggregateType: "Order", EventType: "Placed"}
			for refused := 0; refused < 10; {
				env.EventID = fmt.Sprint(taken)
				if d.EnqueueHot(env) || d.Handle(env) {
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
		require.Greater(t, taken, limit-completerBatch, "the limit counts a batch that there cannot be")
		require.ErrorContains(t, d.Close(t.Context()), "could not be stored")
	})
}
