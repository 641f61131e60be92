package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// mortal is a node's connection to its store, which ends when its process dies.
type mortal struct {
	*outboxtest.Store
	gone          atomic.Bool
	claims, reads atomic.Int64
}

var errGone = errors.New("the process is gone")

func (s *mortal) memory() *outboxtest.Store { return s.Store }

func (s *mortal) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	s.claims.Add(1)
	if s.gone.Load() {
		return outbox.Batch{}, errGone
	}
	return s.Store.Claim(ctx, db, q)
}

func (s *mortal) Reach(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	s.reads.Add(1)
	if s.gone.Load() {
		return outbox.Reach{}, errGone
	}
	return s.Store.Reach(ctx, db, q)
}

func (s *mortal) Ranges(ctx context.Context, db outbox.DB) (outbox.Ranges, error) {
	if s.gone.Load() {
		return outbox.Ranges{}, errGone
	}
	return s.Store.Ranges(ctx, db)
}

func (s *mortal) SetRanges(ctx context.Context, db outbox.DB, was string, by time.Time, next outbox.Ranges) (bool, error) {
	if s.gone.Load() {
		return false, errGone
	}
	return s.Store.SetRanges(ctx, db, was, by, next)
}

func (s *mortal) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if s.gone.Load() {
		return nil, errGone
	}
	return s.Store.Mark(ctx, db, kind, marks)
}

func (s *mortal) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	if s.gone.Load() {
		return errGone
	}
	return s.Store.Renew(ctx, db, leases)
}

// node runs one process on the store, until it dies of an event that starts with
// "poison" or is ended. What its listener delivers takes 10 ms.
func node(t *testing.T, store *outboxtest.Store, opts outbox.DispatchOptions) (e *engine, way *mortal, died chan struct{}) {
	t.Helper()
	way, died = &mortal{Store: store}, make(chan struct{})
	var once sync.Once
	e = start(t, outbox.Config{Store: way, Mode: outbox.MultiNode{Dispatch: opts}}, func(ctx context.Context, env outbox.Envelope) error {
		if env.EventID[:4] == "pois" {
			way.gone.Store(true)
			once.Do(func() { close(died) })
			<-ctx.Done()
			return nil
		}
		time.Sleep(10 * time.Millisecond)
		return nil
	})
	return e, way, died
}

// written is a store with events that no node holds.
func written(t *testing.T, ids ...string) *outboxtest.Store {
	t.Helper()
	store := outboxtest.NewStore()
	writer := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
	for _, id := range ids {
		time.Sleep(time.Microsecond)
		writer.write(said(id))
	}
	time.Sleep(time.Millisecond)
	return store
}

func named(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return ids
}

// statuses counts the rows of each status.
func statuses(store *outboxtest.Store) map[outbox.Status]int {
	n := map[outbox.Status]int{}
	for _, row := range store.Rows() {
		n[row.Status]++
	}
	return n
}

// An event kills its process, again and again. It ends DEAD; the events that were
// queued beside it are all delivered.
func TestAnEventThatKillsItsProcessHarmsNoOtherEvent(t *testing.T) {
	t.Parallel()
	for name, ids := range map[string][]string{
		"first":     append([]string{"poison"}, named("e", 400)...),
		"among all": append(append(named("a", 200), "poison"), named("e", 200)...),
		"last":      append(named("e", 400), "poison"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := written(t, ids...)
				deaths := 0
				for {
					e, way, died := node(t, store, outbox.DispatchOptions{})
					select {
					case <-died:
						deaths++
					case <-time.After(20 * time.Minute):
					}
					survived := !way.gone.Load()
					_ = e.Close(context.Background())
					if survived {
						break
					}
				}
				require.Equal(t, 10, deaths)
				row, _ := store.Row("poison")
				require.Equal(t, outbox.StatusDead, row.Status)
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 400, outbox.StatusDead: 1}, statuses(store))
			})
		})
	}
}

// A process was killed with hundreds of events queued. None of them was attempted.
func TestQueuedEventsOfAKilledProcessKeepTheirAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := written(t, named("e", 400)...)
		first, way, _ := node(t, store, outbox.DispatchOptions{Workers: 4, MaxAttempts: 1})
		time.Sleep(25 * time.Millisecond)
		way.gone.Store(true)
		_ = first.Close(context.Background())
		require.Less(t, statuses(store)[outbox.StatusDone], 20)
		node(t, store, outbox.DispatchOptions{Workers: 4, MaxAttempts: 1})
		time.Sleep(6 * time.Minute)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 400}, statuses(store))
	})
}

// A transaction takes longer than a lease: another node claims its events
// as soon as they are visible, and delivers them.
func TestEventsOfALongTransactionKeepTheirAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		writer, way, _ := node(t, store, outbox.DispatchOptions{MaxAttempts: 1})
		scope := outboxtest.NewScope(store.DB())
		_, err := writer.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("slow")})
		require.NoError(t, err)
		node(t, store, outbox.DispatchOptions{MaxAttempts: 1})
		time.Sleep(2 * outbox.DefaultLeaseDuration)
		way.gone.Store(true) // so that it does not give the lease up first
		require.NoError(t, scope.Commit())
		time.Sleep(5*time.Second + time.Second)
		row, _ := store.Row("slow")
		require.Equal(t, outbox.StatusDone, row.Status)
		require.Equal(t, 1, row.Attempts)
	})
}

// leased is a store whose events a node holds that died long ago.
func leased(t *testing.T, ids ...string) *outboxtest.Store {
	t.Helper()
	store := written(t, ids...)
	b, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: len(ids), Lease: "dead node/1", LeaseDuration: time.Minute})
	require.NoError(t, err)
	require.Equal(t, len(ids), b.Len())
	time.Sleep(outbox.DefaultLeaseDuration + time.Second)
	return store
}

// held counts the rows that other nodes than the dead one hold.
func (s *mortal) held() (n int) {
	for _, row := range s.Rows() {
		if row.LockedBy != "" && row.LockedBy != "dead node/1" {
			n++
		}
	}
	return n
}

func TestTakeoversAreFewAtOnceAndDrainPromptly(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := leased(t, named("e", 300)...)
				_, way, _ := node(t, store, outbox.DispatchOptions{Workers: workers})
				began := time.Now()
				for statuses(store)[outbox.StatusDone] < 300 {
					require.Less(t, time.Since(began), 3500*time.Millisecond)
					require.LessOrEqual(t, way.held(), workers)
					time.Sleep(5 * time.Millisecond)
				}
				// Each costs at most a claim of its own and one of fresh rows.
				require.LessOrEqual(t, way.claims.Load(), int64(630))
				for _, row := range store.Rows() {
					require.Equal(t, 1, row.Attempts)
				}
			})
		})
	}
}

// Takeovers do not wait behind fresh events, nor fresh events behind takeovers.
func TestTakeoversAndFreshEventsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leased(t, named("old", 300)...)
		writer := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
		for _, id := range named("new", 300) {
			writer.write(said(id))
		}
		node(t, store, outbox.DispatchOptions{})
		time.Sleep(750 * time.Millisecond) // half of what all take
		done := map[string]int{}
		for _, row := range store.Rows() {
			if row.Status == outbox.StatusDone {
				done[row.Envelope.EventID[:3]]++
			}
		}
		require.Greater(t, done["old"], 50)
		require.Greater(t, done["new"], 50)
		time.Sleep(time.Second)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 600}, statuses(store))
	})
}

// Retries have attempts, as takeovers do. They are still read in batches.
func TestABacklogOfRetriesIsReadInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ids := named("e", 5000)
		store := written(t, ids...)
		var marks []outbox.Mark
		for _, id := range ids {
			marks = append(marks, outbox.Mark{EventID: id, AvailableAt: time.Now(), Error: "boom", Attempts: 1})
		}
		_, err := store.Mark(t.Context(), store.DB(), outbox.OutcomeRetry, marks)
		require.NoError(t, err)
		_, way, _ := node(t, store, outbox.DispatchOptions{Workers: 100})
		time.Sleep(2 * time.Second)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 5000}, statuses(store))
		require.LessOrEqual(t, way.reads.Load(), int64(100))
	})
}

// Looking for takeovers does not double the reads of a backlog.
func TestABacklogOfFreshEventsIsReadInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := written(t, named("e", 5000)...)
		_, way, _ := node(t, store, outbox.DispatchOptions{Workers: 100})
		time.Sleep(2 * time.Second)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 5000}, statuses(store))
		require.LessOrEqual(t, way.reads.Load(), int64(20))
	})
}

func TestAnIdleTableIsReadOnceInAnInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, way, _ := node(t, outboxtest.NewStore(), outbox.DispatchOptions{})
		time.Sleep(10*5*time.Second + time.Second)
		require.EqualValues(t, 11, way.reads.Load())
	})
}
