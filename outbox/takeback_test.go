package outbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// takingModes are all modes that deliver.
var takingModes = map[string]outbox.Mode{
	"single node": outbox.SingleNode{}, "ordered": outbox.Ordered{}, "many nodes": outbox.MultiNode{},
	"tenants": outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}}, "by key": outbox.OrderedByKey{},
}

func dueIn(id string, by time.Duration) outbox.Envelope {
	env := said(id)
	env.DeliverAfter = by
	return env
}

func byID(ids ...string) outbox.Waiting { return outbox.Waiting{EventIDs: ids} }

// inTx runs fn in a transaction of its own and commits.
func (e *engine) inTx(fn func(ctx context.Context) (outbox.TakenBack, error)) outbox.TakenBack {
	e.t.Helper()
	scope := outboxtest.NewScope(e.store.DB())
	n, err := fn(scope.Context(e.t.Context()))
	require.NoError(e.t, err)
	require.NoError(e.t, scope.Commit())
	return n
}

func (e *engine) cancel(ids ...string) outbox.TakenBack {
	e.t.Helper()
	return e.inTx(func(ctx context.Context) (outbox.TakenBack, error) { return e.Writer().Cancel(ctx, byID(ids...)) })
}

func TestACancelledEventIsNotDeliveredAndOneInHandIsNotCancelled(t *testing.T) {
	t.Parallel()
	for name, mode := range takingModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c calls
				inHand, goOn := make(chan struct{}), make(chan struct{})
				e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
					if c.add(env.EventID); env.EventID == "slow" {
						close(inHand)
						<-goOn
					}
					return nil
				})
				e.write(dueIn("gone", time.Minute), dueIn("stays", time.Minute), dueIn("slow", time.Second))
				<-inHand
				require.Equal(t, outbox.TakenBack{Changed: 1, InHand: 1}, e.cancel("gone", "slow"))
				close(goOn)
				time.Sleep(2 * time.Minute)
				require.Equal(t, map[string]int{"stays": 1, "slow": 1}, c.all())
				_, there := e.store.Row("gone")
				require.False(t, there)
				require.Equal(t, outbox.TakenBack{Delivered: 3}, e.cancel("gone", "slow", "stays"))
			})
		})
	}
}

// A retry waits as a delayed event does. Queued behind others, it is in hand.
func TestAQueuedRetryIsInHand(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 1}}, "many nodes": outbox.MultiNode{Dispatch: outbox.DispatchOptions{Workers: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c calls
				e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
					switch c.add(env.EventID); {
					case env.EventID == "blocks":
						time.Sleep(time.Hour)
					case env.Attempts == 0:
						return outbox.RetryIn(time.Minute, fmt.Errorf("boom"))
					}
					return nil
				})
				e.write(said("retried"), dueIn("blocks", 30*time.Second))
				time.Sleep(10 * time.Second)
				require.Equal(t, outbox.TakenBack{Changed: 1}, e.inTx(func(ctx context.Context) (outbox.TakenBack, error) {
					return e.Writer().Reschedule(ctx, byID("retried"), time.Now().Add(25*time.Second))
				}))
				time.Sleep(50 * time.Second) // the retry is queued behind the event that blocks
				require.Equal(t, outbox.TakenBack{InHand: 1}, e.cancel("retried"))
				time.Sleep(2 * time.Hour)
				require.Equal(t, 2, c.of("retried"))
				row, _ := e.store.Row("retried")
				require.Equal(t, outbox.StatusDone, row.Status)
			})
		})
	}
}

// An event that becomes due while a transaction takes it back waits for the end of the transaction.
func TestAnEventWaitsForTheTransactionThatTakesItBack(t *testing.T) {
	t.Parallel()
	for name, mode := range takingModes {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, commits %t", name, commits), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var c calls
					e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error { c.add(env.EventID); return nil })
					e.write(dueIn("reminder", time.Minute))
					time.Sleep(59 * time.Second)
					scope := outboxtest.NewScope(e.store.DB())
					n, err := e.Writer().Cancel(scope.Context(t.Context()), byID("reminder"))
					require.NoError(t, err)
					require.Equal(t, outbox.TakenBack{Changed: 1}, n)
					time.Sleep(30 * time.Second)
					require.Empty(t, c.all())
					if commits {
						require.NoError(t, scope.Commit())
						time.Sleep(time.Hour)
						require.Empty(t, c.all())
						return
					}
					require.NoError(t, scope.Rollback(nil))
					time.Sleep(2 * time.Second)
					require.Equal(t, map[string]int{"reminder": 1}, c.all())
				})
			})
		}
	}
}

func TestARescheduledEventIsDeliveredAtItsNewTime(t *testing.T) {
	t.Parallel()
	for name, mode := range takingModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				at, begin := map[string]time.Duration{}, time.Now()
				var payload string
				e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
					mu.Lock()
					defer mu.Unlock()
					if at[env.EventID] = time.Since(begin).Round(100 * time.Millisecond); env.EventID == "earlier" {
						payload = env.Payload.String()
					}
					return nil
				})
				e.write(dueIn("earlier", time.Hour), dueIn("later", time.Hour), dueIn("now", time.Hour))
				e.inTx(func(ctx context.Context) (outbox.TakenBack, error) {
					return e.Writer().Replace(ctx, "earlier", outbox.Replacement{Payload: outbox.JSON("new"), AvailableAt: begin.Add(90 * time.Second)})
				})
				e.inTx(func(ctx context.Context) (outbox.TakenBack, error) {
					return e.Writer().Reschedule(ctx, byID("later"), begin.Add(2*time.Hour))
				})
				e.inTx(func(ctx context.Context) (outbox.TakenBack, error) {
					return e.Writer().Reschedule(ctx, byID("now"), begin.Add(-time.Hour))
				})
				time.Sleep(3 * time.Hour)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, map[string]time.Duration{"earlier": 90 * time.Second, "later": 2 * time.Hour, "now": 0}, at)
				require.Equal(t, `"new"`, payload)
			})
		})
	}
}

// In a mode without leases, the leases of postponed rows end with the process that held the table: the
// rows do not wait for their leases to expire, and no attempt is counted.
func TestAKilledProcessDelaysNoPostponedEvent(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 2}}, "ordered": outbox.Ordered{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := outboxtest.NewStore()
				way, died := &cut{Store: store}, make(chan struct{})
				var once sync.Once
				e := start(t, outbox.Config{Store: way, Mode: mode}, func(ctx context.Context, _ outbox.Envelope) error {
					way.away.Store(true)
					once.Do(func() { close(died) })
					<-ctx.Done()
					return nil
				})
				for i := range 20 {
					e.write(dueIn(fmt.Sprintf("e-%02d", i), time.Second))
				}
				<-died
				_ = e.Close(context.Background())
				leased := 0
				for _, row := range store.Rows() {
					if row.LockedBy != "" {
						leased++
					}
				}
				require.Greater(t, leased, 2, "more rows than had a listener")

				var mu sync.Mutex
				var ids []string
				start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
					mu.Lock()
					defer mu.Unlock()
					ids = append(ids, fmt.Sprint(env.EventID, " ", env.Attempts))
					return nil
				})
				time.Sleep(40 * time.Second) // the hold expires first
				mu.Lock()
				defer mu.Unlock()
				want := make([]string, 20)
				for i := range want {
					want[i] = fmt.Sprintf("e-%02d 0", i)
				}
				require.ElementsMatch(t, want, ids)
				if name == "ordered" {
					require.Equal(t, want, ids)
				}
			})
		})
	}
}

func TestWhatIsTakenBackIsChecked(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	w := store.Writer()
	kind := outbox.EventKind{EventType: "Said"}
	for field, which := range map[string]outbox.Waiting{
		"Waiting.EventIDs is empty":             {},
		"Waiting.EventIDs has an empty id":      {EventIDs: []string{""}},
		"Waiting.EventIDs exclude":              {EventIDs: []string{"a"}, Kind: kind},
		"Waiting.Kind.EventType is required":    {AggregateID: "7"},
		"Waiting.AggregateID is required":       {Kind: kind},
		"Waiting.EventIDs exclude Kind, Aggreg": {EventIDs: []string{"a"}, DueAfter: time.Now()},
		"Waiting.DueAfter leads to the year 10": {Kind: kind, AggregateID: "7", DueAfter: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"Waiting.DueBefore leads to the year 9": {Kind: kind, AggregateID: "7", DueBefore: time.Date(999, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		scope := outboxtest.NewScope(store.DB())
		_, err := w.Cancel(scope.Context(t.Context()), which)
		var problem *outbox.FieldError
		require.ErrorAs(t, err, &problem)
		require.ErrorContains(t, err, field)
	}
	scope := outboxtest.NewScope(store.DB())
	ctx := scope.Context(t.Context())
	_, err := w.Reschedule(ctx, byID("a"), time.Time{})
	require.ErrorContains(t, err, "Change.AvailableAt is zero")
	_, err = w.ChangeScope(ctx, scope, outbox.Waiting{Kind: kind, AggregateID: "7"}, outbox.Replacement{Payload: outbox.JSON(1)}.Change())
	require.ErrorContains(t, err, "Waiting.EventIDs is empty; a Change with Content")
	_, err = w.Replace(ctx, "a", outbox.Replacement{})
	require.ErrorContains(t, err, "Replacement.Payload is required")
	_, err = w.Replace(ctx, "a", outbox.Replacement{Payload: outbox.JSON(make(chan int))})
	require.ErrorContains(t, err, "Replacement.Payload cannot be made")
	_, err = w.Replace(ctx, "a", outbox.Replacement{Payload: outbox.RawJSON(`{`)})
	require.ErrorContains(t, err, "Replacement.Payload is not valid JSON (1 bytes")
	_, err = w.Replace(ctx, "a", outbox.Replacement{Payload: outbox.JSON(1), Headers: map[string]string{"outbox-listener": "x"}})
	require.ErrorContains(t, err, "Replacement.Headers")
	require.NoError(t, scope.Commit())
	_, err = w.Cancel(ctx, byID("a"))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = w.Cancel(t.Context(), byID("a"))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
}

// A head that is cancelled frees its key at once, not with the next look at the table.
func TestACancelledHeadFreesItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c calls
		e := start(t, outbox.Config{Mode: outbox.OrderedByKey{Poll: outbox.PollOptions{Interval: time.Hour}}}, func(_ context.Context, env outbox.Envelope) error {
			if c.add(env.EventID); env.EventID == "head" {
				return outbox.RetryIn(24*time.Hour, fmt.Errorf("boom"))
			}
			return nil
		})
		head, next := said("head"), said("next")
		head.AggregateID, next.AggregateID = "7", "7"
		e.write(head, next)
		time.Sleep(time.Minute)
		require.Equal(t, []int{1, 0}, []int{c.of("head"), c.of("next")})
		require.Equal(t, outbox.TakenBack{Changed: 1}, e.cancel("head"))
		time.Sleep(time.Second)
		require.Equal(t, 1, c.of("next"))
	})
}

// The process that delivers does not see the transaction of another process end.
func TestAnotherProcessRollsACancellationBack(t *testing.T) {
	t.Parallel()
	modes := map[string]outbox.Mode{
		"single node": outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}, "ordered": outbox.Ordered{Poll: outbox.PollOptions{Interval: time.Hour}},
		"many nodes": outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}}, "by key": outbox.OrderedByKey{Poll: outbox.PollOptions{Interval: time.Hour}},
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c calls
				e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error { c.add(env.EventID); return nil })
				e.write(dueIn("reminder", time.Minute))
				scope := outboxtest.NewScope(e.store.DB())
				n, err := e.store.Writer().Cancel(scope.Context(t.Context()), byID("reminder"))
				require.NoError(t, err)
				require.Equal(t, outbox.TakenBack{Changed: 1}, n)
				time.Sleep(5 * time.Minute)
				require.Zero(t, c.of("reminder"))
				require.NoError(t, scope.Rollback(nil))
				time.Sleep(1100 * time.Millisecond)
				require.Equal(t, 1, c.of("reminder"))
			})
		})
	}
}

// In order, an event that a transaction takes back holds up the events behind it until the transaction
// ends.
func TestInOrderNothingOvertakesAnEventThatIsBeingTakenBack(t *testing.T) {
	t.Parallel()
	for _, behind := range []string{"delayed", "at once"} {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, commits %t", behind, commits), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var got arrivals
					store := &counting{Store: outboxtest.NewStore()}
					e := start(t, outbox.Config{Store: store, Mode: outbox.Ordered{}}, func(_ context.Context, env outbox.Envelope) error {
						got.add(env.EventID)
						return nil
					})
					want := []string{"e-0", "e-1", "e-2", "e-3", "e-4", "e-5"}
					e.write(dueIn("e-0", 60*time.Second), dueIn("e-1", 61*time.Second), dueIn("e-2", 61*time.Second))
					if behind == "delayed" {
						e.write(dueIn("e-3", 61*time.Second), dueIn("e-4", 61*time.Second+3*time.Millisecond), dueIn("e-5", 62*time.Second))
					}
					time.Sleep(59 * time.Second)
					scope := outboxtest.NewScope(store.DB())
					n, err := e.Writer().Cancel(scope.Context(t.Context()), byID("e-1"))
					require.NoError(t, err)
					require.Equal(t, outbox.TakenBack{Changed: 1}, n)
					time.Sleep(3 * time.Second)
					if behind == "at once" {
						e.write(said("e-3"))
						e.write(said("e-4"), said("e-5"))
					}
					time.Sleep(time.Second)
					require.Equal(t, want[:1], got.all())
					before := store.n.Load()
					time.Sleep(10 * time.Minute)
					require.Equal(t, want[:1], got.all())
					require.Less(t, store.n.Load()-before, int64(5000), "about a look in a second")
					if commits {
						require.NoError(t, scope.Commit())
						want = append(want[:1], want[2:]...)
					} else {
						require.NoError(t, scope.Rollback(nil))
					}
					time.Sleep(2 * time.Second)
					require.Equal(t, want, got.all())
				})
			})
		}
	}
}

// A replaced event for one of several listeners stays an event for this listener, under the event's id.
func TestAReplacedEventOfOneListenerStaysWithThisListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got arrivals
		e := build(t, outbox.Config{}, nil)
		for name, fails := range map[string]bool{"mail": true, "stock": false} {
			require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
				got.add(fmt.Sprint(name, " ", env.EventID, " ", env.Payload.String(), " ", len(env.Headers)))
				if fails && env.Attempts == 0 {
					return outbox.RetryIn(time.Minute, fmt.Errorf("boom"))
				}
				return nil
			}), outbox.Named(name))))
		}
		require.NoError(t, e.Start(t.Context()))
		e.write(said("a"))
		time.Sleep(10 * time.Second)
		require.Equal(t, outbox.TakenBack{Delivered: 1}, e.cancel("a"), "the event is split")
		var own string
		for _, row := range e.store.Rows() {
			if row.Status == outbox.StatusRetry {
				own = row.Envelope.EventID
			}
		}
		require.NotEmpty(t, own)
		require.Equal(t, outbox.TakenBack{Changed: 1}, e.inTx(func(ctx context.Context) (outbox.TakenBack, error) {
			return e.Writer().Replace(ctx, own, outbox.Replacement{Payload: outbox.JSON("new"), Headers: map[string]string{"k": "v"}})
		}))
		time.Sleep(2 * time.Minute)
		require.ElementsMatch(t, []string{`mail a "a" 0`, `stock a "a" 0`, `mail a "new" 1`}, got.all())
	})
}
