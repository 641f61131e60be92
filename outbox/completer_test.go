package outbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// markCounter counts the statements that store outcomes.
type markCounter struct {
	*outboxtest.Store
	statements atomic.Int32
}

func (s *markCounter) memory() *outboxtest.Store { return s.Store }

func (s *markCounter) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.statements.Add(1)
	return s.Store.Mark(ctx, db, kind, marks)
}

// marking runs fn with an outbox that counts the statements with outcomes.
func marking(t *testing.T, options outbox.DispatchOptions, fn func(e *engine, store *markCounter)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &markCounter{Store: outboxtest.NewStore()}
		fn(start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Dispatch: options}}, handled), store)
	})
}

// done counts the events that are DONE, without letting time pass.
func (s *markCounter) done() (n int) {
	synctest.Wait()
	for _, row := range s.Rows() {
		if row.Status == outbox.StatusDone {
			n++
		}
	}
	return n
}

func TestOutcomesAreStoredOnceInAnInterval(t *testing.T) {
	marking(t, outbox.DispatchOptions{}, func(e *engine, store *markCounter) {
		for pause := range 3 {
			e.write(said(fmt.Sprint("first", pause)))
			require.Equal(t, 11*pause+1, store.done(), "the first outcome after a pause is stored at once")
			for i := range 10 {
				e.write(said(fmt.Sprint("next", pause, "-", i)))
			}
			time.Sleep(5*time.Millisecond - time.Nanosecond)
			require.Equal(t, 11*pause+1, store.done())
			time.Sleep(time.Nanosecond)
			require.Equal(t, 11*pause+11, store.done())
			require.EqualValues(t, 2*pause+2, store.statements.Load())
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func TestAFullBatchOfOutcomesIsStoredAtOnce(t *testing.T) {
	t.Parallel()
	// One worker's outcomes are stored in order. Beside several, the outcome that waits
	// for the end of the interval is not of the batch.
	for workers, done := range map[int]int{1: 1001, 2: 1000} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			marking(t, outbox.DispatchOptions{MarkInterval: time.Hour, Workers: workers}, func(e *engine, store *markCounter) {
				e.write(said("first"))
				require.Equal(t, 1, store.done())
				for i := range 1000 {
					e.write(said(fmt.Sprint("next", i)))
				}
				require.Equal(t, done, store.done())
				require.EqualValues(t, 2, store.statements.Load())
			})
		})
	}
}

func TestClosingStoresOutcomesAtOnce(t *testing.T) {
	marking(t, outbox.DispatchOptions{MarkInterval: time.Hour}, func(e *engine, store *markCounter) {
		e.write(said("first"))
		require.Equal(t, 1, store.done())
		e.write(said("next"))
		require.Equal(t, 1, store.done())
		began := time.Now()
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, 2, store.done())
		require.Zero(t, time.Since(began))
	})
}
