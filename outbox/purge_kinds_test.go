package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// purgeLog keeps the queries of purges.
type purgeLog struct {
	*outboxtest.Store
	mu      sync.Mutex
	queries []outbox.PurgeQuery
}

func (s *purgeLog) memory() *outboxtest.Store { return s.Store }

func (s *purgeLog) Purge(ctx context.Context, db outbox.DB, q outbox.PurgeQuery) (outbox.Purged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, q)
	return s.Store.Purge(ctx, db, q)
}

// since are the places where the queries since the last call began.
func (s *purgeLog) since() (places []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queries {
		places = append(places, q.Since)
	}
	s.queries = nil
	return places
}

// ended adds an event of a status that ended at a time.
func ended(t *testing.T, store *outboxtest.Store, id string, event outbox.EventType, status outbox.Status, at time.Time) {
	t.Helper()
	w, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	scope := outboxtest.NewScope(store.DB())
	_, err = w.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{{EventID: id, EventType: event, OccurredAt: at, Payload: outbox.JSON(1)}})
	require.NoError(t, err)
	require.NoError(t, scope.Commit())
	row, _ := store.Row(id)
	row.Status, row.DoneAt = status, at
	store.SetRow(id, row.RawRow)
}

func left(store *outboxtest.Store) (ids []string) {
	for _, row := range store.Rows() {
		ids = append(ids, row.Envelope.EventID)
	}
	slices.Sort(ids)
	return ids
}

// The rows of each kind are deleted by their own age: the rules of the operator count before the
// rules of the listener, and the other kinds keep the age of PurgeOptions. What is pending stays.
func TestEachKindIsPurgedByItsOwnAge(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "by age": outbox.WriterOnly{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := outboxtest.NewStore()
			now := time.Now()
			var want []string
			for _, event := range []outbox.EventType{"Other", "Long", "Short", "None"} {
				for _, status := range []outbox.Status{outbox.StatusNew, outbox.StatusDone, outbox.StatusDead} {
					for i, age := range []time.Duration{time.Second, 30 * time.Minute, 90 * time.Minute, 4 * time.Hour} {
						id := fmt.Sprintf("%s-%s-%d", event, status, i)
						ended(t, store, id, event, status, now.Add(-age))
						kept := map[outbox.EventType]time.Duration{"Other": time.Hour, "Long": 2 * time.Hour, "Short": 10 * time.Minute, "None": 0}[event]
						if age < kept || status == outbox.StatusNew && name != "by age" {
							want = append(want, id)
						}
					}
				}
			}
			dispatch := outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{{EventType: "Long"}: {Retention: 2 * time.Hour}}}
			if name != "by age" {
				mode = outbox.SingleNode{Dispatch: dispatch}
			}
			e := build(t, outbox.Config{Store: store, Mode: mode, Purge: &outbox.PurgeOptions{Retention: time.Hour, BatchSize: 1, Undelivered: name == "by age"}}, nil)
			long := 3 * time.Hour // the operator says two
			if name == "by age" {
				long = 2 * time.Hour
			}
			for event, retention := range map[outbox.EventType]time.Duration{"Other": 0, "Long": long, "Short": 10 * time.Minute, "None": outbox.NoRetention} {
				require.NoError(t, e.Register(outbox.On("", event, outbox.ListenerFunc(handled), outbox.Rules{Retention: retention})))
			}
			n, err := e.Purge(t.Context())
			require.NoError(t, err)
			slices.Sort(want)
			require.Equal(t, want, left(store))
			require.Equal(t, 48-len(want), n)
		})
	}
}

// A run begins an hour before the place where the last run ended, within a run a batch begins where
// the batch before ended, and once a day a run looks at all rows.
func TestAPurgeOfKindsDoesNotReadRowsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &purgeLog{Store: outboxtest.NewStore()}
		began := time.Now().UTC()
		for i := range 3 {
			ended(t, s.Store, fmt.Sprint("e", i), "Said", outbox.StatusDone, began.Add(time.Duration(i-10)*time.Hour))
		}
		e := build(t, outbox.Config{Store: s, Purge: &outbox.PurgeOptions{Retention: 48 * time.Hour, BatchSize: 1}}, nil)
		require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(handled), outbox.Rules{Retention: time.Hour})))
		purge := func() {
			_, err := e.Purge(t.Context())
			require.NoError(t, err)
		}
		purge()
		at := func(hours int) time.Time { return began.Add(time.Duration(hours) * time.Hour) }
		zero := time.Time{}
		// The other kinds that are done, and dead; the kind that is done, batch by batch, and dead.
		require.Equal(t, []time.Time{zero, zero, zero, at(-10), at(-9), at(-8), zero}, s.since())
		time.Sleep(time.Hour)
		purge()
		require.Equal(t, []time.Time{at(-49), at(-49), at(-2), at(-2)}, s.since())
		time.Sleep(23 * time.Hour)
		purge()
		require.Equal(t, []time.Time{zero, zero, zero, zero}, s.since())
	})
}
