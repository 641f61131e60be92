package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// locking is a store whose Renew waits for rows that somebody locked.
type locking struct {
	*outboxtest.Store
	mu     sync.Mutex
	locked func(ids []string) bool
}

func (s *locking) memory() *outboxtest.Store { return s.Store }

func (s *locking) lock(rows func(ids []string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked = rows
}

func (s *locking) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	s.mu.Lock()
	locked := s.locked
	s.mu.Unlock()
	ids := make([]string, len(leases))
	for i := range leases {
		ids[i] = leases[i].EventID
	}
	if locked(ids) {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Renew(ctx, db, leases)
}

// held is a node with that many events in hand, whose listeners take their time
// until the node is closed.
func held(t *testing.T, store *locking, events int, book *logbook) *engine {
	t.Helper()
	e := start(t, outbox.Config{Store: store, Logger: slog.New(book), Mode: outbox.MultiNode{
		Dispatch: outbox.DispatchOptions{HotCapacity: events, DrainTimeout: time.Millisecond},
		Poll:     outbox.PollOptions{Interval: time.Hour}, Claim: outbox.ClaimOptions{Owner: "holder"},
	}}, func(ctx context.Context, _ outbox.Envelope) error {
		<-ctx.Done()
		return ctx.Err()
	})
	envs := make([]outbox.Envelope, events)
	for i := range envs {
		envs[i] = said(fmt.Sprintf("e%04d", i))
	}
	e.write(envs...)
	return e
}

// oldest is the age of the oldest lease but for those of some rows.
func oldest(store *outboxtest.Store, but ...string) (age time.Duration) {
	for _, row := range store.Rows() {
		if !slices.Contains(but, row.Envelope.EventID) {
			age = max(age, time.Since(row.LockedAt))
		}
	}
	return age
}

// The database gives no answer for a while: as soon as it does again, the leases
// are renewed, long before they end.
func TestLeasesOutliveAnOutageShorterThanTheyAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, book := &locking{Store: outboxtest.NewStore(), locked: func([]string) bool { return true }}, &logbook{}
		held(t, store, 1200, book)
		for range 3 {
			store.lock(func([]string) bool { return true })
			time.Sleep(2 * time.Minute)
			store.lock(func([]string) bool { return false })
			time.Sleep(time.Minute)
			require.Less(t, oldest(store.Store), 3*time.Minute)
			time.Sleep(5 * time.Minute)
		}
		require.NotEmpty(t, book.about("could not be renewed"))
	})
}

// A row that somebody locked costs no other row its lease, and is renewed soon
// after the lock is gone.
func TestALockedRowCostsNoOtherLease(t *testing.T) {
	t.Parallel()
	for _, events := range []int{1, 300, 1200} {
		t.Run(fmt.Sprint(events, " events"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, book := &locking{Store: outboxtest.NewStore(), locked: func([]string) bool { return false }}, &logbook{}
				held(t, store, events, book)
				store.lock(func(ids []string) bool { return slices.Contains(ids, "e0000") })
				for range 20 {
					time.Sleep(30 * time.Second)
					require.Less(t, oldest(store.Store, "e0000"), outbox.DefaultLeaseDuration*3/4)
				}
				require.EqualValues(t, 1, book.about("could not be renewed")[0].attrs["count"].Int64())
				store.lock(func([]string) bool { return false })
				time.Sleep(time.Minute)
				require.LessOrEqual(t, oldest(store.Store), time.Minute)
			})
		})
	}
}

func TestALeaseIsRenewedWhileItsListenerRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		release := make(chan struct{})
		started := make(chan struct{}, 2)
		mode := outbox.MultiNode{
			Poll:  outbox.PollOptions{Interval: 5 * time.Millisecond},
			Claim: outbox.ClaimOptions{LeaseDuration: time.Second},
		}
		listen := func(context.Context, outbox.Envelope) error {
			started <- struct{}{}
			<-release
			return nil
		}
		a := start(t, outbox.Config{Store: store, Mode: mode}, listen)
		start(t, outbox.Config{Store: store, Mode: mode}, listen)
		a.write(said("long"))
		<-started
		time.Sleep(2500 * time.Millisecond) // well past the lease
		synctest.Wait()
		require.Empty(t, started, "another node took the event although its listener runs")
		close(release)
		row := a.await("long", outbox.StatusDone)
		require.Zero(t, row.Attempts)
	})
}
