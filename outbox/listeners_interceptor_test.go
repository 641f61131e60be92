package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// around is an interceptor that may change what the listeners answered.
func around(change func(err error) error) outbox.Interceptor {
	return func(next outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
			return change(next.OnEvent(ctx, env))
		})
	}
}

// What the outermost interceptor returns decides: what the listeners answered, or
// something else for the whole event.
func TestInterceptorsDecideForTheWholeEventOrLeaveEachListenerItsOwn(t *testing.T) {
	t.Parallel()
	fails := failsTimes(9)
	waits := func(context.Context, int) error { return outbox.Defer(time.Hour) }
	dies := func(context.Context, int) error { return outbox.Dead(errors.New("no stock")) }
	same := func(err error) error { return err }
	for name, tt := range map[string]struct {
		second, third func(context.Context, int) error
		change        func(error) error
		event         outbox.Status
		rows          int
	}{
		"a failure as it is":           {fails, dies, same, outbox.StatusDone, 2},
		"a deferral as it is":          {waits, succeeds, same, outbox.StatusDone, 1},
		"a dead and a deferral":        {waits, dies, same, outbox.StatusDone, 2},
		"a failure that is wrapped":    {fails, succeeds, func(err error) error { return fmt.Errorf("x: %w", err) }, outbox.StatusDone, 1},
		"a failure that is ignored":    {fails, succeeds, func(error) error { return nil }, outbox.StatusDone, 0},
		"a failure that is another":    {fails, succeeds, func(error) error { return errDown }, outbox.StatusRetry, 0},
		"a failure that is dead":       {fails, succeeds, func(error) error { return outbox.Dead(errors.New("no")) }, outbox.StatusDead, 0},
		"a deferral that is done":      {waits, succeeds, func(error) error { return nil }, outbox.StatusDone, 0},
		"a deferral that is a failure": {waits, succeeds, func(error) error { return errDown }, outbox.StatusRetry, 0},
		"a success that is a failure":  {succeeds, succeeds, func(error) error { return errDown }, outbox.StatusRetry, 0},
		"a success that is a deferral": {succeeds, succeeds, func(error) error { return outbox.Defer(time.Hour) }, outbox.StatusNew, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var h hearing
				e := startNamed(t, outbox.Config{Interceptors: []outbox.Interceptor{around(tt.change)}, RetryPolicy: afterAnHour},
					h.on("a", succeeds), h.on("b", tt.second), h.on("c", tt.third))
				e.write(said("e"))
				time.Sleep(time.Second)
				row, _ := e.store.Row("e")
				require.Equal(t, tt.event, row.Status)
				require.Len(t, e.store.Rows(), 1+tt.rows)
				require.Len(t, h.all(), 3)
			})
		})
	}
}

var afterAnHour = outbox.RetryPolicyFunc(func(int) time.Duration { return time.Hour })

func TestInterceptorsRunOnceAroundAllListenersAndSeeTheirErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		var mu sync.Mutex
		var errs []error
		var ids []string
		e := startNamed(t, outbox.Config{RetryPolicy: afterASecond, Interceptors: []outbox.Interceptor{
			outbox.After(func(_ context.Context, env outbox.Envelope, err error) {
				mu.Lock()
				defer mu.Unlock()
				errs, ids = append(errs, err), append(ids, env.EventID)
				require.Empty(t, env.Headers)
			}),
		}}, h.on("mail", failsTimes(2)), h.on("search", succeeds), h.on("audit", func(_ context.Context, call int) error {
			if call == 1 {
				panic("boom")
			}
			return nil
		}))
		e.write(said("e"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, errs, 4) // all, mail, mail, audit
		require.Equal(t, []string{"e", "e", "e", "e"}, ids)
		var failures *outbox.ListenersError
		require.ErrorAs(t, errs[0], &failures)
		require.Len(t, failures.Failures, 2)
		require.Equal(t, "mail", failures.Failures[0].Listener)
		require.Equal(t, "audit", failures.Failures[1].Listener)
		require.ErrorIs(t, errs[0], errDown)
		require.ErrorAs(t, errs[0], new(*outbox.PanicError))
		require.Contains(t, errs[0].Error(), "listener mail: down; listener audit: panic at")
	})
}

// An interceptor that tries again within one delivery reaches only those that are not
// done.
func TestAnInterceptorThatCallsAgainReachesWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		twice := func(next outbox.Listener) outbox.Listener {
			return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
				if err := next.OnEvent(ctx, env); err == nil {
					return nil
				}
				return next.OnEvent(ctx, env)
			})
		}
		e := startNamed(t, outbox.Config{RetryPolicy: afterASecond, Interceptors: []outbox.Interceptor{twice}},
			h.on("a", succeeds), h.on("b", failsTimes(1)), h.on("c", failsTimes(2)))
		e.write(said("e"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a e/0", "b e/0", "c e/0", "b e/0", "c e/0", "c e/1"}, h.all())
		require.Len(t, e.store.Rows(), 2)
	})
}

func TestOneOfSeveralListenersCannotCompleteTheEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		var e *engine
		e = startNamed(t, outbox.Config{RetryPolicy: afterASecond}, h.on("search", succeeds), h.on("mail", func(ctx context.Context, call int) error {
			scope := outboxtest.NewScope(e.store.DB())
			err := e.Writer().Complete(ctx, scope)
			if call == 1 {
				require.ErrorIs(t, err, outbox.ErrSeveralListeners)
				require.ErrorContains(t, err, "inbox.Once")
				require.NoError(t, scope.Rollback(nil))
				return err
			}
			require.NoError(t, err, "it can complete its own row")
			return scope.Commit()
		}))
		e.write(said("e"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"search e/0", "mail e/0", "mail e/1"}, h.all())
		require.Equal(t, outbox.StatusDone, rowsBy(e.store)["mail"].Status)
	})
}

func TestTheOnlyListenerWithANameCompletesTheEvent(t *testing.T) {
	t.Parallel()
	var h hearing
	var e *engine
	e = startNamed(t, outbox.Config{}, h.on("mail", func(ctx context.Context, _ int) error {
		scope := outboxtest.NewScope(e.store.DB())
		require.NoError(t, e.Writer().Complete(ctx, scope))
		return scope.Commit()
	}))
	e.write(said("e"))
	e.await("e", outbox.StatusDone)
	require.Len(t, e.store.Rows(), 1)
}

func TestOutcomeOfADeliveryToSeveralListeners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		var outcomes []outbox.Outcome
		report := func(next outbox.Listener) outbox.Listener {
			return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
				err := next.OnEvent(ctx, env)
				outcomes = append(outcomes, outbox.OutcomeOf(ctx, env, err))
				return err
			})
		}
		e := startNamed(t, outbox.Config{
			RetryPolicy: afterASecond, Interceptors: []outbox.Interceptor{report},
			Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 3, DrainTimeout: time.Second}},
		}, h.on("search", succeeds), h.on("mail", failsTimes(3)))
		e.write(said("e"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []outbox.Outcome{outbox.OutcomeSplit, outbox.OutcomeRetry, outbox.OutcomeDead}, outcomes)

		outcomes = nil
		hangs := func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}
		e = startNamed(t, outbox.Config{
			Interceptors: []outbox.Interceptor{report}, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: time.Second}},
		}, h.on("search", succeeds), h.on("mail", hangs))
		e.write(said("cut off"))
		synctest.Wait()
		require.NoError(t, e.Close(context.Background()))
		require.Equal(t, []outbox.Outcome{outbox.OutcomeReleased}, outcomes)
	})
}

// A listener's goroutine that ends is a failure of the whole event, as its worker is
// gone.
func TestAListenerThatEndsItsGoroutineFailsTheEvent(t *testing.T) {
	t.Parallel()
	var h hearing
	e := startNamed(t, outbox.Config{RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond)}, h.on("search", succeeds), h.on("mail", func(_ context.Context, call int) error {
		if call == 1 {
			runtime.Goexit()
		}
		return nil
	}))
	e.write(said("e"))
	e.await("e", outbox.StatusDone)
	require.Equal(t, []string{"search e/0", "mail e/0", "search e/1", "mail e/1"}, h.all())
	require.Len(t, e.store.Rows(), 1)
}
