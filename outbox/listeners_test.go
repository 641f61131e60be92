package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

var errDown = errors.New("down")

// hearing records the calls of listeners with names.
type hearing struct {
	mu    sync.Mutex
	calls []string // "name event/attempts"
	seen  []outbox.Envelope
}

func (h *hearing) note(name string, env outbox.Envelope) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf("%s %s/%d", name, env.EventID, env.Attempts))
	h.seen = append(h.seen, env)
}

// on binds a listener that answers each event by its number of calls, from 1 on.
func (h *hearing) on(name string, answer func(ctx context.Context, call int) error) outbox.Binding {
	var c calls
	return outbox.On("", "Said", outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		h.note(name, env)
		return answer(ctx, c.add(env.EventID))
	}), outbox.Named(name))
}

// all are the calls so far, in order.
func (h *hearing) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

func succeeds(context.Context, int) error { return nil }

// failsTimes fails the given number of calls.
func failsTimes(n int) func(context.Context, int) error {
	return func(_ context.Context, call int) error {
		if call <= n {
			return errDown
		}
		return nil
	}
}

// startNamed starts an engine whose "Said" has several listeners.
func startNamed(t *testing.T, cfg outbox.Config, bindings ...outbox.Binding) *engine {
	t.Helper()
	e := build(t, cfg, nil)
	require.NoError(t, e.Register(bindings...))
	require.NoError(t, e.Start(t.Context()))
	return e
}

// rowsBy are the rows of single listeners, by the listener's name.
func rowsBy(store *outboxtest.Store) map[string]outboxtest.Row {
	rows := map[string]outboxtest.Row{}
	for _, row := range store.Rows() {
		if name := row.Envelope.Headers[outbox.HeaderListener]; name != "" {
			rows[name] = row
		}
	}
	return rows
}

// inModes runs a test within a synctest bubble, with one node and with many.
func inModes(t *testing.T, opts outbox.DispatchOptions, test func(t *testing.T, mode outbox.Mode)) {
	t.Helper()
	for name, mode := range map[string]outbox.Mode{
		"one node":   outbox.SingleNode{Dispatch: opts, Poll: outbox.PollOptions{Interval: time.Hour}},
		"many nodes": outbox.MultiNode{Dispatch: opts, Poll: outbox.PollOptions{Interval: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, mode) })
		})
	}
}

var afterASecond = outbox.RetryPolicyFunc(func(int) time.Duration { return time.Second })

func TestEachListenerIsRetriedByItself(t *testing.T) {
	t.Parallel()
	inModes(t, outbox.DispatchOptions{MaxAttempts: 4}, func(t *testing.T, mode outbox.Mode) {
		var h hearing
		counts := &outcomeCounts{}
		e := startNamed(t, outbox.Config{Mode: mode, Metrics: counts, RetryPolicy: afterASecond},
			h.on("search", succeeds), h.on("mail", failsTimes(2)), h.on("audit", failsTimes(100)))
		env := said("e")
		env.Headers = map[string]string{"k": "v"}
		e.write(env)
		time.Sleep(time.Minute)
		synctest.Wait()

		calls := h.all()
		require.Equal(t, []string{"search e/0", "mail e/0", "audit e/0"}, calls[:3])
		slices.Sort(calls)
		require.Equal(t, []string{"audit e/0", "audit e/1", "audit e/2", "audit e/3", "mail e/0", "mail e/1", "mail e/2", "search e/0"}, calls)
		for _, env := range h.seen {
			require.Equal(t, map[string]string{"k": "v"}, env.Headers)
			require.Equal(t, `"e"`, env.Payload.String())
		}
		rows := rowsBy(e.store)
		require.Len(t, e.store.Rows(), 3)
		require.Equal(t, outbox.StatusDone, e.await("e", outbox.StatusDone).Status)
		require.Equal(t, outbox.StatusDone, rows["mail"].Status)
		require.Equal(t, outbox.StatusDead, rows["audit"].Status)
		require.Equal(t, 4, rows["audit"].Attempts)
		require.Equal(t, "down", rows["audit"].LastError)
		require.Equal(t, "e", rows["audit"].Envelope.Headers[outbox.HeaderEventID])
		require.NoError(t, e.Close(context.Background()))
		counts.require(t, 2, 5, 1, 0, 0) // failed: mail twice, audit three times before it died
	})
}

func TestListenersThatAllSucceedHaveOneRow(t *testing.T) {
	t.Parallel()
	inModes(t, outbox.DispatchOptions{}, func(t *testing.T, mode outbox.Mode) {
		var h hearing
		counts := &outcomeCounts{}
		e := startNamed(t, outbox.Config{Mode: mode, Metrics: counts}, h.on("b", succeeds), h.on("a", succeeds))
		e.write(said("e"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"b e/0", "a e/0"}, h.all())
		require.Len(t, e.store.Rows(), 1)
		require.NoError(t, e.Close(context.Background()))
		counts.require(t, 1, 0, 0, 0, 0)
	})
}

// What each kind of answer makes of the listener's own row, and that the others are
// called whatever it is.
func TestAnAnswerDecidesForItsListenerAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer   func(context.Context, int) error
		status   outbox.Status
		attempts int
		due      time.Duration
		text     string
	}{
		"an error": {failsTimes(9), outbox.StatusRetry, 1, time.Second, "down"},
		"a panic":  {func(context.Context, int) error { panic("boom") }, outbox.StatusRetry, 1, time.Second, "panic at listeners_test.go:"},
		"an own delay": {func(context.Context, int) error {
			return outbox.RetryIn(time.Minute, errDown)
		}, outbox.StatusRetry, 1, time.Minute, "down (retry after 1m0s)"},
		"a deferral":        {func(context.Context, int) error { return outbox.Defer(time.Hour) }, outbox.StatusNew, 0, time.Hour, ""},
		"dead":              {func(context.Context, int) error { return outbox.Dead(errors.New("no stock")) }, outbox.StatusDead, 0, 0, "no stock"},
		"an unrecoverable":  {func(context.Context, int) error { return outbox.Dead(errDown) }, outbox.StatusDead, 0, 0, "down"},
		"an error's panics": {func(context.Context, int) error { return (*wordy)(nil) }, outbox.StatusRetry, 1, time.Second, "a method of the error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var h hearing
				e := startNamed(t, outbox.Config{RetryPolicy: afterASecond}, h.on("a", succeeds), h.on("b", c.answer), h.on("c", succeeds))
				now := time.Now()
				e.write(said("e"))
				synctest.Wait()
				require.Equal(t, []string{"a e/0", "b e/0", "c e/0"}, h.all())
				require.Equal(t, outbox.StatusDone, e.await("e", outbox.StatusDone).Status)
				row := rowsBy(e.store)["b"]
				require.Len(t, e.store.Rows(), 2)
				require.Equal(t, c.status, row.Status)
				require.Equal(t, c.attempts, row.Attempts)
				require.WithinDuration(t, now.Add(c.due), row.AvailableAt, 0)
				require.Contains(t, row.LastError, c.text)
				require.Equal(t, c.text == "", row.LastError == "")
				require.Empty(t, row.LockedBy)
			})
		})
	}
}

// wordy is an error whose methods panic for a nil pointer.
type wordy struct{ text string }

func (w *wordy) Error() string { return w.text }

func TestTheEventsRowIsDeletedWhereNoHistoryIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{Purge: &outbox.PurgeOptions{OnDone: outbox.Delete}, RetryPolicy: afterASecond}, h.on("a", succeeds), h.on("b", failsTimes(1)))
		e.write(said("e"))
		synctest.Wait()
		require.Len(t, e.store.Rows(), 1)
		require.Equal(t, outbox.StatusRetry, rowsBy(e.store)["b"].Status)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, e.store.Rows())
		require.Equal(t, []string{"a e/0", "b e/0", "b e/1"}, h.all())
	})
}

// The time of a delivery is all listeners'. Those that it does not reach are called in
// deliveries of their own, and it costs them no attempt.
func TestListenersThatTheTimeoutLeavesOutAreCalledByThemselves(t *testing.T) {
	t.Parallel()
	inModes(t, outbox.DispatchOptions{ListenerTimeout: time.Second, MaxAttempts: 1}, func(t *testing.T, mode outbox.Mode) {
		var h hearing
		hangs := func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}
		e := startNamed(t, outbox.Config{Mode: mode}, h.on("a", succeeds), h.on("b", hangs), h.on("c", succeeds))
		e.write(said("e"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a e/0", "b e/0", "c e/0"}, h.all())
		require.Equal(t, outbox.StatusDead, rowsBy(e.store)["b"].Status)
		require.Equal(t, outbox.StatusDone, rowsBy(e.store)["c"].Status)
	})
}

func TestAShutdownReleasesTheWholeEvent(t *testing.T) {
	t.Parallel()
	inModes(t, outbox.DispatchOptions{DrainTimeout: time.Second}, func(t *testing.T, mode outbox.Mode) {
		var h hearing
		hangs := func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}
		lateButDone := func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return nil
		}
		e := startNamed(t, outbox.Config{Mode: mode}, h.on("a", succeeds), h.on("b", hangs), h.on("c", succeeds))
		late := startNamed(t, outbox.Config{Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{DrainTimeout: time.Second}}}, h.on("a", lateButDone), h.on("b", succeeds))
		e.write(said("e"))
		late.write(said("late"))
		synctest.Wait()
		require.NoError(t, e.Close(context.Background()))
		require.NoError(t, late.Close(context.Background()))
		for id, store := range map[string]*outboxtest.Store{"e": e.store, "late": late.store} {
			row, _ := store.Row(id)
			require.Len(t, store.Rows(), 1)
			require.Equal(t, outbox.StatusNew, row.Status, id)
			require.Zero(t, row.Attempts)
			require.Empty(t, row.LockedBy)
		}
	})
}

// A listener that failed by itself before the shutdown was not cut off, although the delivery
// ended after that: the others, which are done, are not called again.
func TestAFailureBeforeTheShutdownIsNoReleaseOfTheWholeEvent(t *testing.T) {
	t.Parallel()
	inModes(t, outbox.DispatchOptions{DrainTimeout: time.Second}, func(t *testing.T, mode outbox.Mode) {
		var h hearing
		slowButDone := func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return nil
		}
		e := startNamed(t, outbox.Config{Mode: mode}, h.on("a", succeeds), h.on("b", failsTimes(1)), h.on("c", slowButDone))
		e.write(said("e"))
		synctest.Wait()
		require.NoError(t, e.Close(context.Background()))
		row, _ := e.store.Row("e")
		require.Equal(t, outbox.StatusDone, row.Status)
		require.Len(t, e.store.Rows(), 2)
		failed := rowsBy(e.store)["b"]
		require.Equal(t, outbox.StatusRetry, failed.Status)
		require.Equal(t, 1, failed.Attempts)
	})
}

func TestAListenerThatIsGoneMakesItsRowUnroutable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		now    func(h *hearing) []outbox.Binding
		opts   outbox.DispatchOptions
		status outbox.Status
	}{
		"another name":     {func(h *hearing) []outbox.Binding { return []outbox.Binding{h.on("post", succeeds)} }, outbox.DispatchOptions{OnUnroutable: outbox.KillUnroutable}, outbox.StatusDead},
		"no name any more": {func(h *hearing) []outbox.Binding { return []outbox.Binding{h.on("", succeeds)} }, outbox.DispatchOptions{OnUnroutable: outbox.KillUnroutable}, outbox.StatusDead},
		"no listener": {func(*hearing) []outbox.Binding {
			return []outbox.Binding{outbox.On("", "Sung", outbox.ListenerFunc(handled))}
		}, outbox.DispatchOptions{OnUnroutable: outbox.KillUnroutable}, outbox.StatusDead},
		"no listener of any": {func(*hearing) []outbox.Binding { return nil }, outbox.DispatchOptions{}, outbox.StatusRetry},
		"left to others":     {func(h *hearing) []outbox.Binding { return []outbox.Binding{h.on("post", succeeds)} }, outbox.DispatchOptions{}, outbox.StatusNew},
		"the same is there":  {func(h *hearing) []outbox.Binding { return []outbox.Binding{h.on("mail", succeeds)} }, outbox.DispatchOptions{}, outbox.StatusDone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var before, after hearing
				policy := outbox.RetryPolicyFunc(func(int) time.Duration { return time.Minute })
				e := startNamed(t, outbox.Config{RetryPolicy: policy}, before.on("search", succeeds), before.on("mail", failsTimes(1)))
				e.write(said("e"))
				synctest.Wait()
				require.NoError(t, e.Close(context.Background()))
				newer := startNamed(t, outbox.Config{Store: e.store, Mode: outbox.SingleNode{Dispatch: tt.opts}}, tt.now(&after)...)
				time.Sleep(5 * time.Minute)
				row := rowsBy(newer.store)["mail"]
				require.Equal(t, tt.status, row.Status)
				if tt.status == outbox.StatusDead {
					require.Contains(t, row.LastError, "outbox: unroutable: no listener")
				}
				if tt.status == outbox.StatusDone {
					require.Equal(t, []string{"mail e/1"}, after.all())
				} else {
					require.Empty(t, after.all())
				}
			})
		})
	}
}

// An event had its own attempts, for all listeners, before one of them fails alone.
func TestAttemptsOfTheEventCountForItsListeners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		refused := 0
		e := startNamed(t, outbox.Config{
			Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 3}}, RetryPolicy: afterASecond,
			Interceptors: []outbox.Interceptor{outbox.Before(func(context.Context, outbox.Envelope) error {
				if refused++; refused == 1 {
					return errDown
				}
				return nil
			})},
		}, h.on("mail", failsTimes(9)), h.on("search", succeeds))
		e.write(said("e"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"mail e/1", "search e/1", "mail e/2"}, h.all())
		require.Equal(t, outbox.StatusDead, rowsBy(e.store)["mail"].Status)
	})
}

// An event whose headers are as long as they may be, with the longest id and name.
func TestTheLargestEventCanBeSplit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		name := strings.Repeat("ü", 64)
		e := startNamed(t, outbox.Config{RetryPolicy: afterASecond}, h.on(name, failsTimes(1)), h.on("search", succeeds))
		env := said(strings.Repeat("i", outbox.MaxEventIDLength))
		env.Headers = map[string]string{"k": strings.Repeat("v", outbox.MaxHeadersBytes-1)}
		e.write(env)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, outbox.StatusDone, rowsBy(e.store)[name].Status)
		require.LessOrEqual(t, len(rowsBy(e.store)[name].Envelope.EventID), outbox.MaxEventIDLength)
		for _, seen := range h.seen {
			require.Equal(t, env.Headers, seen.Headers)
		}
	})
}
