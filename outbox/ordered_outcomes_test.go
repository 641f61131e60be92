package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// ledger is a store that notes in which order outcomes are stored, all those of a
// statement at once. Some statements fail.
type ledger struct {
	*outboxtest.Store
	fails func(n int, marks []outbox.Mark) bool
	mu    sync.Mutex
	n     int
	pages [][]string
}

func (s *ledger) memory() *outboxtest.Store { return s.Store }

func (s *ledger) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	time.Sleep(time.Millisecond)
	if outcome == outbox.OutcomeReleased {
		return s.Store.Mark(ctx, db, outcome, marks)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if s.fails(s.n, marks) {
		return nil, errors.New("the database is away")
	}
	var page []string
	for _, m := range marks {
		page = append(page, m.EventID)
	}
	s.pages = append(s.pages, page)
	return s.Store.Mark(ctx, db, outcome, marks)
}

// A process that dies between two statements has no event delivered late.
func TestInOrderNoOutcomeIsStoredAfterThatOfALaterEvent(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(n int, marks []outbox.Mark) bool{
		"statements succeed": func(int, []outbox.Mark) bool { return false },
		"statements fail":    func(n int, _ []outbox.Mark) bool { return n%3 != 0 },
		"a row is locked first": func(n int, marks []outbox.Mark) bool {
			return n < 40 && len(marks) > 0 && marks[0].EventID <= "e-00007"
		},
	} {
		for mode, m := range map[string]outbox.Mode{
			"ordered": outbox.Ordered{}, "one key": outbox.OrderedByKey{OnDead: outbox.SkipDead, Dispatch: outbox.DispatchOptions{MaxAttempts: 1}},
		} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { storedInOrder(t, m, fails) })
			})
		}
	}
}

func storedInOrder(t *testing.T, mode outbox.Mode, fails func(n int, marks []outbox.Mark) bool) {
	const n = 300
	store := &ledger{Store: outboxtest.NewStore(), fails: fails}
	e := build(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
		switch env.EventID[len(env.EventID)-1] {
		case '3', '4', '8':
			return errors.New("no")
		}
		return nil
	})
	for i := range n {
		e.write(of("a", fmt.Sprintf("e-%05d", i)))
	}
	require.NoError(t, e.Start(t.Context()))
	time.Sleep(5 * time.Minute)
	require.NoError(t, e.Close(context.Background()))
	latest, stored := "", 0
	for _, page := range store.pages {
		last := latest
		for _, id := range page {
			require.Greater(t, id, latest, "stored after that of a later event")
			last = max(last, id)
			stored++
		}
		latest = last
	}
	require.Equal(t, n, stored)
}
