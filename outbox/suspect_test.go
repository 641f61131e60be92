package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// lives runs one process after the other on the store, each until an event
// whose id starts with "poison" kills it, or until its time is over. It returns how
// many died. Delivering takes 10 ms.
func lives(t *testing.T, store *outboxtest.Store, mode outbox.Mode, delivered *calls) (deaths int) {
	t.Helper()
	for range 100 {
		way, died := &cut{Store: store}, make(chan struct{})
		var once sync.Once
		e := start(t, outbox.Config{Store: way, Mode: mode}, func(ctx context.Context, env outbox.Envelope) error {
			if way.away.Load() {
				return nil
			}
			delivered.add(env.EventID)
			if strings.HasPrefix(env.EventID, "poison") {
				way.away.Store(true)
				once.Do(func() { close(died) })
				<-ctx.Done()
				return nil
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		select {
		case <-died:
			deaths++
		case <-time.After(10 * time.Minute):
		}
		dead := way.away.Load()
		_ = e.Close(context.Background())
		if !dead {
			return deaths
		}
	}
	t.Fatal("it never ends")
	return 0
}

// An event that kills its process is delivered at most MaxAttempts times. All
// others are delivered meanwhile.
func TestAPoisonEventDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode   outbox.Mode
		deaths int
	}{
		"single node":                {outbox.SingleNode{}, 10},
		"single node, three at most": {outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 3}}, 3},
		"single node, one worker":    {outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 3, Workers: 1}}, 3},
		"single node, one at most":   {outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1}}, 2},
		"ordered":                    {outbox.Ordered{}, 2},
		"many nodes":                 {outbox.MultiNode{}, 10},
		"many nodes, three at most":  {outbox.MultiNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 3}}, 3},
		"tenants":                    {outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}}, 10},
		"tenants, three at most":     {outbox.MultiNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 3}, Claim: outbox.ClaimOptions{TenantsInTurn: true}}, 3},
		"tenants, one at most":       {outbox.MultiNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1}, Claim: outbox.ClaimOptions{TenantsInTurn: true}}, 2},
	} {
		for place, ids := range map[string][]string{
			"first":     append([]string{"poison"}, named("e", 40)...),
			"among all": append(append(named("a", 20), "poison"), named("e", 20)...),
			"last":      append(named("e", 40), "poison"),
		} {
			t.Run(name+", "+place, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := written(t, ids...)
					var c calls
					require.Equal(t, tt.deaths, lives(t, store, tt.mode, &c))
					row, _ := store.Row("poison")
					require.Equal(t, outbox.StatusDead, row.Status)
					require.Contains(t, row.LastError, "no attempts left")
					require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 40, outbox.StatusDead: 1}, statuses(store))
					require.Equal(t, tt.deaths, c.n["poison"])
				})
			})
		}
	}
}

// The others do not wait until the poison event is dead.
func TestTheOthersAreDeliveredBeforeThePoisonEventComesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := written(t, append([]string{"poison"}, named("e", 40)...)...)
		for life := range 3 {
			way := &cut{Store: store}
			died := make(chan struct{})
			e := start(t, outbox.Config{Store: way}, func(ctx context.Context, env outbox.Envelope) error {
				if env.EventID == "poison" {
					time.Sleep(time.Second) // the outcomes of the others are stored
					way.away.Store(true)
					close(died)
					<-ctx.Done()
					return nil
				}
				return nil
			})
			if life == 2 {
				time.Sleep(30 * time.Second)
				require.Equal(t, 40, statuses(store)[outbox.StatusDone])
			}
			<-died
			_ = e.Close(context.Background())
		}
	})
}

// In Ordered mode the backlog is delivered in order after a death.
func TestADeathDoesNotChangeTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ids := append(append(named("a", 20), "poison"), named("e", 30)...)
		store := written(t, ids...)
		var mu sync.Mutex
		var order []string
		for range 3 {
			way := &cut{Store: store}
			died := make(chan struct{})
			e := start(t, outbox.Config{Store: way, Mode: outbox.Ordered{}}, func(ctx context.Context, env outbox.Envelope) error {
				if env.EventID == "poison" {
					time.Sleep(time.Second) // the outcomes of the others are stored
					way.away.Store(true)
					close(died)
					<-ctx.Done()
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, env.EventID)
				return nil
			})
			select {
			case <-died:
			case <-time.After(time.Minute):
			}
			_ = e.Close(context.Background())
		}
		require.Equal(t, append(named("a", 20), named("e", 30)...), order)
	})
}

// A process closes while events of a dead one wait for their lease to expire. The
// next process delivers them.
func TestSuspectsSurviveACleanRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := written(t, "left")
		_, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: 1, Lease: "dead node/1"})
		require.NoError(t, err)
		for range 2 {
			e := start(t, outbox.Config{Store: store}, handled)
			time.Sleep(10 * time.Second)
			require.NoError(t, e.Close(t.Context()))
			row, _ := store.Row("left")
			require.Equal(t, outbox.StatusNew, row.Status)
		}
		e := start(t, outbox.Config{Store: store}, handled)
		time.Sleep(time.Minute)
		row, _ := store.Row("left")
		require.Equal(t, outbox.StatusDone, row.Status)
		require.Equal(t, 1, row.Attempts)
		require.NoError(t, e.Close(t.Context()))
	})
}

// 40 events of a dead node, of which one takes long, or hangs for ever.
func TestASlowTakeoverDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]time.Duration{"8 s": 8 * time.Second, "for ever": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := leased(t, named("e", 40)...)
				e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}}, func(ctx context.Context, env outbox.Envelope) error {
					if env.EventID == "e0000" {
						select {
						case <-time.After(takes):
						case <-ctx.Done():
						}
					}
					return nil
				})
				time.Sleep(2 * time.Second)
				require.Equal(t, 39, statuses(store)[outbox.StatusDone])
				require.NoError(t, e.Close(t.Context()))
			})
		})
	}
}

func TestATakeoverIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, book := leased(t, named("e", 40)...), &logbook{}
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}, Logger: slog.New(book)}, handled)
		time.Sleep(time.Minute)
		require.NoError(t, e.Close(t.Context()))
		lines := book.about("took over")
		require.Len(t, lines, 1, fmt.Sprint(lines))
		require.EqualValues(t, 40, counted(lines))
	})
}

// Only the events that one process can have in hand are suspect, and a death costs
// the backlog no attempts.
func TestADeathCostsTheBacklogNoAttempts(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"ordered":     outbox.Ordered{},
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1, Workers: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := written(t, named("e", 50)...)
				var delivered calls
				for _, killer := range []string{"e0000", "e0011", ""} {
					way, died := &cut{Store: store}, make(chan struct{})
					var once sync.Once
					e := start(t, outbox.Config{Store: way, Mode: mode}, func(ctx context.Context, env outbox.Envelope) error {
						delivered.add(env.EventID)
						if env.EventID == killer {
							time.Sleep(time.Second) // the outcomes of the others are stored
							once.Do(func() { way.away.Store(true); close(died) })
							<-ctx.Done()
						}
						return nil
					})
					select {
					case <-died:
					case <-time.After(5 * time.Minute):
					}
					_ = e.Close(context.Background())
				}
				require.Equal(t, 49, statuses(store)[outbox.StatusDone])
				row, _ := store.Row("e0011")
				require.Equal(t, outbox.StatusDead, row.Status, "the process died during its one delivery")
				require.Zero(t, store.Rows()[12].Attempts)
			})
		})
	}
}

// Recent rows are left out after a death, too: a transaction may commit late.
func TestSuspectsAreNotRecent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		hold(t, store, "dead", time.Second)
		writer := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
		time.Sleep(2 * time.Second)
		written := time.Now()
		writer.write(said("recent"))
		at := make(chan time.Time, 1)
		e := start(t, outbox.Config{Store: store, Mode: outbox.Ordered{Poll: outbox.PollOptions{SkipRecent: 10 * time.Second}}},
			func(context.Context, outbox.Envelope) error {
				at <- time.Now()
				return nil
			})
		require.GreaterOrEqual(t, (<-at).Sub(written), 10*time.Second)
		synctest.Wait()
		require.NoError(t, e.Close(t.Context()))
	})
}

// A retry is not logged as a takeover.
func TestRetriesAreNotTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := start(t, outbox.Config{Mode: outbox.MultiNode{}, Logger: slog.New(book)},
			func(_ context.Context, env outbox.Envelope) error {
				if env.Attempts < 2 {
					return fmt.Errorf("try %d", env.Attempts)
				}
				return nil
			})
		for i := range 200 {
			e.write(said(fmt.Sprint(i)))
			time.Sleep(time.Second)
		}
		require.NoError(t, e.Close(t.Context()))
		require.Empty(t, book.about("took over"))
	})
}
