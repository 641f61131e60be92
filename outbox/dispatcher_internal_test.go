package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/flow"
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

// dispatching starts the dispatcher of an outbox alone: without a hold, and without a poller that
// reads.
func dispatching(t *testing.T, store Store, options DispatchOptions, listener Listener) *dispatcher {
	t.Helper()
	o, err := New(Config{
		DB: struct{ DB }{}, Store: store, Mode: SingleNode{Dispatch: options}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, o.Register(On("Order", "Placed", listener)))
	d := o.dispatcher
	d.hold = nil
	require.NoError(t, d.Start(t.Context()))
	return d
}

// hasTaken offers an event for the listener, as a commit or the poller does.
func (d *dispatcher) hasTaken(queue *flow.Queue[*delivery], id string) bool {
	ds := []delivery{{env: &Envelope{EventID: id, AggregateType: "Order", EventType: "Placed"}}}
	if queue == d.queues.Cold {
		n, _ := d.takeIn(ds)
		return n == 1
	}
	d.track.reserve(ds)
	return d.promote(&ds[0])
}

// The next process takes that many events for suspects when this one dies.
func TestAProcessHasNoMoreInHandThanItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		d := dispatching(t, full{late: late}, DispatchOptions{}, ListenerFunc(func(context.Context, Envelope) error { return nil }))
		taken := 0
		offer := func() {
			for refused := 0; refused < 10; {
				if id := fmt.Sprint(taken); d.hasTaken(d.queues.Hot, id) || d.hasTaken(d.queues.Cold, id) {
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

// free is a store that takes all outcomes.
type free struct{ Store }

func (free) Mark(context.Context, DB, Outcome, []Mark) (map[string]RowState, error) { return nil, nil }

func (free) Now(context.Context, DB) (time.Time, error) { return time.Now(), nil }

// Two hot events to one cold one while both queues hold some.
func TestWorkersTakeTwoHotToOneCold(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	order := make(chan string, 100)
	d := dispatching(t, free{}, DispatchOptions{Workers: 1}, ListenerFunc(func(_ context.Context, env Envelope) error {
		<-gate
		order <- env.EventID[:1]
		return nil
	}))
	for i := range 12 {
		require.True(t, d.hasTaken(d.queues.Hot, fmt.Sprint("h", i)))
		require.True(t, d.hasTaken(d.queues.Cold, fmt.Sprint("c", i)))
	}
	close(gate)
	require.NoError(t, d.Close(t.Context()))
	close(order)
	var got string
	for queue := range order {
		got += queue
	}
	require.Len(t, got, 24)
	// The first may be either, for the worker began while the queues filled.
	require.Contains(t, got[:18], "hhchhchhchhc", got)
}

func TestADispatcherRefusesWhatItsQueuesHaveNoRoomFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		defer release()
		d := dispatching(t, free{}, DispatchOptions{HotCapacity: 7, ColdCapacity: 9}, BatchListener(BatchOptions{Size: 5},
			func(context.Context, []Envelope) ([]error, error) {
				<-gate
				return nil, nil
			}))
		taken := 0
		for i := range 100 {
			for path, queue := range map[string]*flow.Queue[*delivery]{"hot": d.queues.Hot, "cold": d.queues.Cold} {
				if d.hasTaken(queue, fmt.Sprint(path, i)) {
					taken++
				}
				synctest.Wait()
			}
		}
		require.Equal(t, 10+7+9, taken)
		hot, cold := d.depths()
		require.Equal(t, []int{7, 9}, []int{hot, cold})
		require.Zero(t, d.coldRoom())
		release()
		require.NoError(t, d.Close(context.Background()))
	})
}

// A worker gives an event back between the beginning of a read and the end, under the term that began
// before the read. The read has the row, which is a copy, and the rows behind it.
func TestInOrderNoRowGoesBeforeARowThatIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := make(chan struct{})
		close(late)
		o, err := New(Config{DB: struct{ DB }{}, Store: full{late: late}, Mode: Ordered{}, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		going := make(chan struct{})
		require.NoError(t, o.Register(On("Order", "Placed", ListenerFunc(func(context.Context, Envelope) error {
			<-going
			return nil
		}))))
		d := o.dispatcher
		d.hold = nil
		require.NoError(t, d.Start(t.Context()))
		rows := func() found {
			var f found
			for _, id := range []string{"e1", "e2"} {
				f.ds = append(f.ds, delivery{env: &Envelope{EventID: id, AggregateType: "Order", EventType: "Placed"}})
			}
			return f
		}
		first := rows().ds[0]
		require.True(t, isNew(d.track.acquire(&first)))
		d.track.beginRead(time.Now())
		d.track.release(&first)
		require.False(t, o.poller.handOver(rows()))
		require.False(t, d.track.holds("e2"), "e2 would be delivered before e1")
		d.track.endRead()
		require.True(t, o.poller.handOver(rows()))
		require.True(t, d.track.holds("e1"))
		require.True(t, d.track.holds("e2"))
		d.cancelListeners()
		close(going)
		_ = d.Close(t.Context())
	})
}
