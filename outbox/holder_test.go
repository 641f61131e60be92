package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// holdModes are the modes in which one process at a time delivers.
var holdModes = map[string]outbox.Mode{
	"single node": outbox.SingleNode{},
	"ordered":     outbox.Ordered{},
}

func eachHoldMode(t *testing.T, fn func(t *testing.T, mode outbox.Mode)) {
	t.Helper()
	for name, mode := range holdModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { fn(t, mode) })
		})
	}
}

// hold gives a process the hold of the table for a time; an empty name gives the hold up.
func hold(t *testing.T, store outbox.Store, owner string, d time.Duration) {
	t.Helper()
	list, err := store.Ranges(t.Context(), nil)
	require.NoError(t, err)
	next := outbox.Ranges{Version: list.Version + "+"}
	if owner != "" {
		next.Ranges = []outbox.Range{{Name: owner, Until: list.Now.Add(d)}}
	}
	set, err := store.SetRanges(t.Context(), nil, list.Version, list.Now.Add(time.Minute), next)
	require.NoError(t, err)
	require.True(t, set)
}

// by is a listener that says who delivered.
func by(name string, got chan<- string) func(context.Context, outbox.Envelope) error {
	return func(_ context.Context, env outbox.Envelope) error {
		got <- name + " " + env.EventID
		return nil
	}
}

func TestASecondProcessWritesAndWaits(t *testing.T) {
	t.Parallel()
	eachHoldMode(t, func(t *testing.T, mode outbox.Mode) {
		store, got, book := outboxtest.NewStore(), make(chan string, 10), &logbook{}
		first := start(t, outbox.Config{Store: store, Mode: mode}, by("first", got))
		second := start(t, outbox.Config{Store: store, Mode: mode, Logger: slog.New(book)}, by("second", got))
		require.Len(t, book.about("waits as a standby"), 1)
		second.write(said("1"))
		require.Equal(t, "first 1", <-got, "the poller of the first")
		time.Sleep(time.Hour)
		require.Empty(t, book.problems())
		require.Len(t, book.about("standby"), 1)

		closing := time.Now()
		require.NoError(t, first.Close(t.Context()))
		second.write(said("2"))
		require.Equal(t, "second 2", <-got)
		require.Less(t, time.Since(closing), 2*time.Second)
		require.Len(t, book.about("delivers from the table now"), 1)
		row := second.await("2", outbox.StatusDone)
		require.Zero(t, row.Attempts, "nothing died")
		require.NoError(t, second.Close(t.Context()))
	})
}

// cut is a process's way to its store that ends when the process dies, or is away
// for a while.
type cut struct {
	*outboxtest.Store
	away atomic.Bool
}

var errAway = errors.New("the database is away")

func (s *cut) memory() *outboxtest.Store { return s.Store }

func (s *cut) Ranges(ctx context.Context, db outbox.DB) (outbox.Ranges, error) {
	if s.away.Load() {
		return outbox.Ranges{}, errAway
	}
	return s.Store.Ranges(ctx, db)
}

func (s *cut) SetRanges(ctx context.Context, db outbox.DB, was string, by time.Time, next outbox.Ranges) (bool, error) {
	if s.away.Load() {
		return false, errAway
	}
	return s.Store.SetRanges(ctx, db, was, by, next)
}

func (s *cut) Reach(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	if s.away.Load() {
		return outbox.Reach{}, errAway
	}
	return s.Store.Reach(ctx, db, q)
}

func (s *cut) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if s.away.Load() {
		return outbox.Batch{}, errAway
	}
	return s.Store.Poll(ctx, db, q)
}

func (s *cut) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if s.away.Load() {
		return outbox.Batch{}, errAway
	}
	return s.Store.Claim(ctx, db, q)
}

func (s *cut) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	if s.away.Load() {
		return errAway
	}
	return s.Store.Renew(ctx, db, leases)
}

func (s *cut) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if s.away.Load() {
		return nil, errAway
	}
	return s.Store.Mark(ctx, db, outcome, marks)
}

func TestAStandbyTakesOverWhenTheProcessDies(t *testing.T) {
	t.Parallel()
	eachHoldMode(t, func(t *testing.T, mode outbox.Mode) {
		store, got := &cut{Store: outboxtest.NewStore()}, make(chan string, 10)
		first := start(t, outbox.Config{Store: store, Mode: mode}, by("first", got))
		second := start(t, outbox.Config{Store: store.Store, Mode: mode}, by("second", got))
		store.away.Store(true)
		died := time.Now()
		second.write(said("1"))
		require.Equal(t, "second 1", <-got)
		require.Less(t, time.Since(died), 10*time.Second)
		require.Zero(t, second.await("1", outbox.StatusDone).Attempts, "whether the first had it in hand is unknown")
		time.Sleep(time.Millisecond) // it becomes due after the death was found
		second.write(said("2"))
		require.Equal(t, "second 2", <-got)
		require.Zero(t, second.await("2", outbox.StatusDone).Attempts)
		require.NoError(t, second.Close(t.Context()))
		_ = first.Close(t.Context())
	})
}

// A process loses its way to the database for longer than its hold, while events
// are queued: it delivers none of them before it has the table again.
func TestAProcessThatLostTheTableDeliversNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, got := &cut{Store: outboxtest.NewStore()}, make(chan string, 100)
		release := make(chan struct{})
		first := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 1}}},
			func(_ context.Context, env outbox.Envelope) error {
				got <- "first " + env.EventID
				<-release
				return nil
			})
		second := start(t, outbox.Config{Store: store.Store, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 1}}}, by("second", got))
		ids := named("e", 20)
		for _, id := range ids {
			time.Sleep(time.Millisecond)
			first.write(said(id))
		}
		require.Equal(t, "first e0000", <-got)
		store.away.Store(true)
		for _, id := range ids { // e0000, too: its delivery has left no trace
			require.Equal(t, "second "+id, <-got)
		}
		synctest.Wait()
		close(release)
		store.away.Store(false)
		time.Sleep(time.Minute)
		require.Empty(t, got, "what was queued is not delivered a second time")
		require.NoError(t, second.Close(t.Context()))
		first.write(said("after"))
		require.Equal(t, "first after", <-got)
		require.NoError(t, first.Close(t.Context()))
	})
}

// The same goes for the listeners of the event that it was delivering.
func TestNoFurtherListenerBeginsWhenTheTableIsLost(t *testing.T) {
	t.Parallel()
	eachHoldMode(t, func(t *testing.T, mode outbox.Mode) {
		store, got := &cut{Store: outboxtest.NewStore()}, make(chan string, 100)
		release := make(chan struct{})
		on := func(listener, process string) outbox.Binding {
			return outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
				got <- process + " " + listener
				if process == "first" {
					<-release
				}
				return nil
			}), outbox.Named(listener))
		}
		first := startNamed(t, outbox.Config{Store: store, Mode: mode}, on("mail", "first"), on("search", "first"))
		second := startNamed(t, outbox.Config{Store: store.Store, Mode: mode}, on("mail", "second"), on("search", "second"))
		first.write(said("1"))
		require.Equal(t, "first mail", <-got)
		store.away.Store(true)
		require.Equal(t, "second mail", <-got)
		require.Equal(t, "second search", <-got)
		close(release)
		store.away.Store(false)
		time.Sleep(time.Minute)
		require.Empty(t, got)
		row, _ := store.Row("1")
		require.Equal(t, outbox.StatusDone, row.Status)
		require.Empty(t, rowsBy(store.Store))
		require.NoError(t, second.Close(t.Context()))
		require.NoError(t, first.Close(t.Context()))
	})
}

// A hold that could not be renewed in time is renewed when the database answers:
// nothing else took the table, and nothing died.
func TestAHoldThatLapsedIsTakenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, got, book := &cut{Store: outboxtest.NewStore()}, make(chan string, 10), &logbook{}
		e := start(t, outbox.Config{Store: store, Logger: slog.New(book), Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}}, by("it", got))
		store.away.Store(true)
		time.Sleep(time.Minute)
		e.write(said("1"))
		synctest.Wait()
		require.Empty(t, got)
		store.away.Store(false)
		back := time.Now()
		require.Equal(t, "it 1", <-got)
		require.LessOrEqual(t, time.Since(back), 2*time.Second, "the poller does not wait for its interval")
		require.Zero(t, e.await("1", outbox.StatusDone).Attempts)
		require.NoError(t, e.Close(t.Context()))
		require.Len(t, book.about("hold on the table could not be renewed"), 2, "at the start and after a minute")
		require.Len(t, book.about("hold on the table is renewed again"), 1)
	})
}

func TestStartFailsWhenTheTableCannotBeHeld(t *testing.T) {
	t.Parallel()
	store := &cut{Store: outboxtest.NewStore()}
	store.away.Store(true)
	e := build(t, outbox.Config{Store: store}, handled)
	require.ErrorIs(t, e.Start(t.Context()), errAway)
	store.away.Store(false)
	require.NoError(t, e.Start(t.Context()), "it may be tried again")
	require.NoError(t, e.Close(t.Context()))
}
