package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// stuck is a store whose outcomes take a while, and where one event's takes until
// the caller gives up.
type stuck struct {
	*outboxtest.Store
	takes  time.Duration
	marks  atomic.Int32
	locked atomic.Bool // the row "locked"
}

func (s *stuck) memory() *outboxtest.Store { return s.Store }

func (s *stuck) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.marks.Add(1)
	takes := s.takes
	if s.locked.Load() && slices.ContainsFunc(marks, func(m outbox.Mark) bool { return m.EventID == "locked" }) {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		return s.Store.Mark(ctx, db, kind, marks)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func handled(context.Context, outbox.Envelope) (outbox.Result, error) { return outbox.Done(), nil }

func TestASetAsideOutcomeHasItsTurnUnderSteadyLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &stuck{Store: outboxtest.NewStore(), takes: time.Millisecond}
		store.locked.Store(true)
		e := start(t, outbox.Config{Store: store}, handled)
		status := func(id string) outbox.Status { row, _ := store.Row(id); return row.Status }
		e.write(said("locked"))
		load := func(name string, seconds int) {
			for i := range 50 * seconds {
				e.write(said(fmt.Sprint(name, i)))
				time.Sleep(20 * time.Millisecond)
				if i >= 300 { // six seconds ago
					require.Equal(t, outbox.StatusDone, status(fmt.Sprint(name, i-300)))
				}
			}
		}
		load("while it is locked", 60)
		require.Equal(t, outbox.StatusNew, status("locked"))
		store.locked.Store(false)
		load("afterwards", 12)
		require.Equal(t, outbox.StatusDone, status("locked"))
		require.NoError(t, e.Close(context.Background()))
	})
}

func TestADatabaseThatIsSlowForAllIsGivenTime(t *testing.T) {
	t.Parallel()
	for _, events := range []int{2, 20, 400} {
		t.Run(fmt.Sprint(events), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &stuck{Store: outboxtest.NewStore(), takes: 10 * time.Second}
				e := start(t, outbox.Config{Store: store}, handled)
				for i := range events {
					e.write(said(fmt.Sprint("e", i)))
				}
				time.Sleep(5 * time.Minute)
				require.Len(t, store.Rows(), events)
				for _, row := range store.Rows() {
					require.Equal(t, outbox.StatusDone, row.Status)
				}
				require.LessOrEqual(t, store.marks.Load(), int32(40))
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}
