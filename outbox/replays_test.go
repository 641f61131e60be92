package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// toListener is a replay of the events "Said".
func toListener(name, listener string) outbox.Replay {
	return outbox.Replay{Name: name, Listener: listener, EventTypes: []outbox.EventType{"Said"}}
}

// replay reads a replay.
func (e *engine) replay(name string) outbox.ReplayStatus {
	e.t.Helper()
	list, err := e.Replays(e.t.Context())
	require.NoError(e.t, err)
	i := slices.IndexFunc(list, func(r outbox.ReplayStatus) bool { return r.Name == name })
	require.GreaterOrEqual(e.t, i, 0, "no replay %s: %+v", name, list)
	return list[i]
}

// writeAged writes events and waits until they are delivered and settled, in simulated time.
func (e *engine) writeAged(n int) (ids []string) {
	e.t.Helper()
	for i := range n {
		ids = append(ids, e.write(said(fmt.Sprintf("e%04d", i)))...)
	}
	time.Sleep(2 * time.Minute)
	return ids
}

// envelopes are the envelopes so far, in the order of the calls.
func (h *hearing) envelopes() []outbox.Envelope {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

func TestAReplayDeliversEventsAgainToASingleListener(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.Mode{outbox.SingleNode{}, outbox.MultiNode{}, outbox.OrderedByKey{}, outbox.Ordered{}} {
		t.Run(fmt.Sprintf("%T", mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var h hearing
				e := startNamed(t, outbox.Config{Mode: mode}, h.on("search", succeeds), h.on("mail", succeeds))
				env := said("a")
				env.Headers = map[string]string{"k": "v"}
				env.AggregateID, env.TenantID = "1", "t"
				e.write(env, said("b"))
				time.Sleep(2 * time.Minute)
				require.ElementsMatch(t, []string{"search a/0", "mail a/0", "search b/0", "mail b/0"}, h.all())
				first := h.envelopes()

				require.NoError(t, e.StartReplay(t.Context(), toListener("yesterday", "mail")))
				require.ErrorIs(t, e.StartReplay(t.Context(), toListener("yesterday", "mail")), outbox.ErrReplayExists)
				time.Sleep(2 * time.Minute)
				require.Equal(t, []string{"mail a/0", "mail b/0"}, h.all()[4:])
				for _, again := range h.envelopes()[4:] {
					i := slices.IndexFunc(first, func(env outbox.Envelope) bool { return env.EventID == again.EventID })
					require.Equal(t, first[i].Headers, again.Headers)
					require.Equal(t, first[i].OccurredAt, again.OccurredAt)
					require.Equal(t, [2]string{first[i].AggregateID, first[i].TenantID}, [2]string{again.AggregateID, again.TenantID})
					require.Equal(t, first[i].Payload.String(), again.Payload.String())
				}
				r := e.replay("yesterday")
				require.Equal(t, outbox.ReplayDone, r.State)
				require.Equal(t, [3]int64{2, 2, 0}, [3]int64{r.Looked, r.Added, r.Unreadable})
				require.Zero(t, r.Waiting)
				require.Len(t, e.store.Emitted(), 2, "the rows of the replay are no events")

				// The rows that the first replay added are no events, so a second replay has the same two.
				require.NoError(t, e.StartReplay(t.Context(), toListener("again", "mail")))
				time.Sleep(2 * time.Minute)
				require.Equal(t, []string{"mail a/0", "mail b/0"}, h.all()[6:])
			})
		})
	}
}

// Since is a time of the range, Until is not.
func TestAReplayIsClippedToItsRange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{}, h.on("search", succeeds))
		ids := []string{"before", "first", "last", "behind"}
		done := map[string]time.Time{}
		for _, id := range ids {
			e.write(said(id))
			time.Sleep(10 * time.Second)
			row, there := e.store.Row(id)
			require.True(t, there)
			require.Equal(t, outbox.StatusDone, row.Status)
			done[id] = row.DoneAt
		}
		r := toListener("r", "search")
		r.Since, r.Until = done["first"], done["behind"]
		require.NoError(t, e.StartReplay(t.Context(), r))
		time.Sleep(10 * time.Second)
		require.Len(t, h.all(), len(ids), "rows of deliveries of less than a minute ago may not be visible yet")
		got := e.replay("r")
		require.Equal(t, outbox.ReplayRunning, got.State, "the range is not over")
		require.Zero(t, got.Looked)
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"search first/0", "search last/0"}, h.all()[len(ids):])
		got = e.replay("r")
		require.Equal(t, outbox.ReplayDone, got.State)
		require.EqualValues(t, 2, got.Looked)
	})
}

func TestAReplayAddsNoMoreThanItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{}, h.on("search", succeeds))
		e.writeAged(250)
		before := len(h.all())
		r := toListener("r", "search")
		r.Rate = 60
		require.NoError(t, e.StartReplay(t.Context(), r))
		seconds := 0
		for ; len(h.all()) < before+250; seconds++ {
			require.LessOrEqual(t, len(h.all())-before, 60*(seconds+1))
			time.Sleep(time.Second)
			require.Less(t, seconds, 60, "the replay is stuck")
		}
		require.GreaterOrEqual(t, seconds, 4)
		require.LessOrEqual(t, seconds, 8)
	})
}

func TestAReplayWaitsForAListenerThatIsPausedOrNowhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{}, h.on("search", succeeds))
		e.writeAged(50)
		kind := outbox.EventKind{EventType: "Said"}
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kind}))
		r := toListener("paused", "search")
		r.Rate = 20
		require.NoError(t, e.StartReplay(t.Context(), r))
		r.Name, r.Listener = "nowhere", "nobody"
		require.NoError(t, e.StartReplay(t.Context(), r))
		time.Sleep(10 * time.Minute)
		got := e.replay("paused")
		require.Equal(t, outbox.ReplayRunning, got.State)
		require.EqualValues(t, 20, got.Added)
		require.Equal(t, 20, got.Waiting)
		require.NoError(t, e.Resume(t.Context(), kind))
		time.Sleep(time.Hour)
		require.Equal(t, outbox.ReplayDone, e.replay("paused").State)
		require.Len(t, h.all(), 100)
		got = e.replay("nowhere")
		require.Equal(t, outbox.ReplayRunning, got.State)
		require.Zero(t, got.Added)
	})
}

// A registry of the program's own does not say which listeners it has.
func TestAReplayWithAnotherRegistryWaitsForTheListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type other struct{ outbox.ListenerRegistry }
		var h hearing
		registry := outbox.NewRegistry()
		require.NoError(t, registry.Register(h.on("search", succeeds)))
		e := build(t, outbox.Config{Registry: other{registry}}, nil)
		require.NoError(t, e.Start(t.Context()))
		e.writeAged(50)
		r := toListener("nowhere", "nobody")
		r.Rate = 20
		require.NoError(t, e.StartReplay(t.Context(), r))
		time.Sleep(time.Hour)
		got := e.replay("nowhere")
		require.Equal(t, outbox.ReplayRunning, got.State)
		require.EqualValues(t, 20, got.Added)
		require.Equal(t, 20, got.Waiting, "a deferral for want of the listener is no attempt")
		require.NoError(t, e.StopReplay(t.Context(), "nowhere"))
		require.Zero(t, e.replay("nowhere").Waiting)
	})
}

// The rows of a listener that no process has would hold back the keys of their events for all listeners.
func TestAReplayForAListenerThatNoProcessHasHoldsUpNothing(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]outbox.Replay{
		"no such name":                  toListener("r", "serach"),
		"no such name for another type": {Name: "r", Listener: "search", EventTypes: []outbox.EventType{"Said", "Sung"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var h hearing
				e := startNamed(t, outbox.Config{Mode: outbox.OrderedByKey{}}, h.on("search", succeeds))
				ofKey(e, "key", 50, "a")
				time.Sleep(2 * time.Minute)
				require.NoError(t, e.StartReplay(t.Context(), r))
				time.Sleep(10 * time.Minute)
				require.Equal(t, outbox.ReplayRunning, e.replay("r").State)
				ofKey(e, "key", 50, "b")
				time.Sleep(2 * time.Minute)
				require.Len(t, h.all(), 100)
				require.Zero(t, e.replay("r").Added)
			})
		})
	}
}

func TestAReplayGoesOnWhenAnEventFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		fails := atomic.Bool{}
		e := startNamed(t, outbox.Config{}, h.on("search", func(context.Context, int) error {
			if fails.Load() {
				return errDown
			}
			return nil
		}))
		e.writeAged(30)
		fails.Store(true)
		r := toListener("r", "search")
		r.Rate = 10
		require.NoError(t, e.StartReplay(t.Context(), r))
		time.Sleep(30 * time.Second)
		require.EqualValues(t, 30, e.replay("r").Added, "each event was tried")
		time.Sleep(time.Hour)
		letters, err := e.DeadLetters().Find(t.Context(), outbox.DeadQuery{})
		require.NoError(t, err)
		require.Len(t, letters.Rows, 30)
		require.Equal(t, "search", letters.Rows[0].Listener)
		require.True(t, strings.HasPrefix(letters.Rows[0].OriginalID, "e"))
	})
}

func TestAReplayWithoutProgressIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		var fails atomic.Int64 // of 10 calls
		var calls atomic.Int64
		e := startNamed(t, outbox.Config{}, h.on("search", func(context.Context, int) error {
			if calls.Add(1)%10 < fails.Load() {
				return errDown
			}
			return nil
		}))
		age := func() time.Duration {
			stats, err := e.Stats(t.Context())
			require.NoError(t, err)
			return stats.ReplayProgressAge
		}
		e.writeAged(1000)
		require.Zero(t, age(), "no replay runs")
		r := toListener("some fail", "search")
		r.Rate = 10
		fails.Store(9)
		require.NoError(t, e.StartReplay(t.Context(), r))
		time.Sleep(time.Minute + 500*time.Millisecond) // between two steps
		got := e.replay(r.Name)
		require.Positive(t, got.Failed)
		require.Contains(t, got.LastError, errDown.Error())
		require.Less(t, age(), 10*time.Second, "some events are delivered")
		require.NoError(t, e.StopReplay(t.Context(), r.Name))
		require.Zero(t, age(), "a replay that was stopped does not run")

		r.Name = "all fail"
		fails.Store(10)
		require.NoError(t, e.StartReplay(t.Context(), r))
		time.Sleep(time.Minute + 500*time.Millisecond) // between two steps
		got = e.replay(r.Name)
		require.Greater(t, got.Added, int64(300), "it goes on")
		require.InDelta(t, time.Minute, age(), float64(10*time.Second))
		require.InDelta(t, time.Minute, time.Since(got.Progress), float64(10*time.Second))
		require.Equal(t, 10, got.Failed)
		fails.Store(0)
		time.Sleep(20 * time.Second)
		require.Less(t, age(), 5*time.Second)
		require.NoError(t, e.StopReplay(t.Context(), r.Name))

		r.Name, r.Listener = "nowhere", "nobody"
		require.NoError(t, e.StartReplay(t.Context(), r))
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 10*time.Minute, age(), float64(10*time.Second))
		require.Zero(t, e.replay(r.Name).Failed)
		require.NoError(t, e.StopReplay(t.Context(), r.Name))
		require.NoError(t, e.ContinueReplay(t.Context(), r.Name))
		require.Zero(t, age())
		require.NoError(t, e.StopReplay(t.Context(), r.Name))

		r.Name, r.Listener = "short", "search"
		r.Until = e.replay("all fail").Started
		r.Rate = 500
		fails.Store(10)
		require.NoError(t, e.StartReplay(t.Context(), r))
		time.Sleep(30 * time.Second)
		got = e.replay(r.Name)
		require.Equal(t, outbox.ReplayDone, got.State)
		require.Positive(t, got.Failed, "the failures remain")
		require.Zero(t, age())
	})
}

func TestAReplayOfAnOlderVersionMadeProgressWhenItMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		e := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
		value := fmt.Sprintf(`{"id":"1","name":"r","rate":1,"state":"running","moved":%q}`, time.Now().UTC().Format(time.RFC3339))
		_, err := store.SetReplay(t.Context(), store.DB(), "", outbox.ReplayRow{Name: "r", Version: "1", Value: value}, nil)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		stats, err := e.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Hour, stats.ReplayProgressAge)
	})
}

func TestAReplayIsStoppedAndContinued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{}, h.on("search", succeeds))
		e.writeAged(100)
		ctx := outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna"})
		r := toListener("a b", "search")
		r.Rate, r.Reason, r.TenantID = 10, "a new index", ""
		require.NoError(t, e.StartReplay(ctx, r))
		time.Sleep(3 * time.Second)
		require.NoError(t, e.StopReplay(ctx, "a b"))
		require.NoError(t, e.StopReplay(ctx, "a b"), "stopping again changes nothing")
		time.Sleep(time.Minute)
		stopped := e.replay("a b")
		require.Equal(t, outbox.ReplayStopped, stopped.State)
		require.Less(t, stopped.Added, int64(100))
		require.Positive(t, stopped.Added)
		require.Len(t, h.all(), 100+int(stopped.Added), "what was added is delivered")
		require.NoError(t, e.ContinueReplay(ctx, "a b"))
		require.NoError(t, e.ContinueReplay(ctx, "a b"))
		time.Sleep(time.Minute)
		require.Equal(t, outbox.ReplayDone, e.replay("a b").State)
		require.Len(t, h.all(), 200)
		var field *outbox.FieldError
		require.ErrorAs(t, e.ContinueReplay(ctx, "a b"), &field)
		require.ErrorContains(t, field, "is done")
		require.ErrorIs(t, e.StopReplay(ctx, "other"), outbox.ErrNotFound)
		require.ErrorIs(t, e.ContinueReplay(ctx, "other"), outbox.ErrNotFound)

		page, err := e.Audit(t.Context(), outbox.AuditQuery{})
		require.NoError(t, err)
		var actions []string
		for _, entry := range page.Rows {
			actions = append(actions, entry.Action)
			require.Contains(t, entry.Target, "replay=a+b")
		}
		require.Equal(t, []string{"continue-replay", "stop-replay", "start-replay"}, actions)
		require.Contains(t, page.Rows[2].Target, "listener=search&aggregate_type=__GLOBAL__&event_type=Said")
		require.Equal(t, "a new index", page.Rows[2].Reason)
	})
}

// Events of a key come in the order in which they occurred, also if the outcomes were stored in another
// order within a moment.
func TestAReplayKeepsTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{Mode: outbox.OrderedByKey{}}, h.on("search", succeeds))
		var want []string
		for i := range 60 {
			e.write(of(fmt.Sprint("key-", i%3), fmt.Sprintf("e%04d", i)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		for i := 0; i < 60; i += 2 { // an outcome was stored a moment later than that of the event behind it
			id := fmt.Sprintf("e%04d", i)
			row, _ := e.store.Row(id)
			next, _ := e.store.Row(fmt.Sprintf("e%04d", i+1))
			row.DoneAt = next.DoneAt.Add(time.Microsecond)
			e.store.SetRow(id, row.RawRow)
		}
		before := len(h.all())
		require.NoError(t, e.StartReplay(t.Context(), toListener("r", "search")))
		time.Sleep(time.Minute)
		got := map[string][]string{}
		for _, env := range h.envelopes()[before:] {
			got[env.AggregateID] = append(got[env.AggregateID], env.EventID)
		}
		for k := range 3 {
			want = want[:0]
			for i := k; i < 60; i += 3 {
				want = append(want, fmt.Sprintf("e%04d", i))
			}
			require.Equal(t, want, got[fmt.Sprint("key-", k)])
		}
	})
}

func TestAReplayIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	e := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
	good := toListener("r", "search")
	for problem, spoil := range map[string]func(r *outbox.Replay){
		"Replay.Name is required":                  func(r *outbox.Replay) { r.Name = " " },
		"Replay.Name is 65 characters long":        func(r *outbox.Replay) { r.Name = strings.Repeat("x", 65) },
		"Replay.Name holds the control":            func(r *outbox.Replay) { r.Name = "a\nb" },
		"outbox.Named":                             func(r *outbox.Replay) { r.Listener = "" },
		"Replay.EventTypes has 0 event types":      func(r *outbox.Replay) { r.EventTypes = nil },
		"Replay.EventTypes has an empty":           func(r *outbox.Replay) { r.EventTypes = []outbox.EventType{""} },
		"Replay.EventTypes has \"Said\" twice":     func(r *outbox.Replay) { r.EventTypes = []outbox.EventType{"Said", "Said"} },
		"Replay.Rate is 501":                       func(r *outbox.Replay) { r.Rate = 501 },
		"Replay.Rate is -1":                        func(r *outbox.Replay) { r.Rate = -1 },
		"Replay.Until is in the future":            func(r *outbox.Replay) { r.Until = time.Now().Add(time.Hour) },
		"Replay.Until is not after Since":          func(r *outbox.Replay) { r.Since = time.Now().Add(time.Hour) },
		"Replay.Since leads to the year 999":       func(r *outbox.Replay) { r.Since = time.Date(999, 1, 1, 0, 0, 0, 0, time.UTC) },
		"Replay.TenantID is not valid UTF-8":       func(r *outbox.Replay) { r.TenantID = "\xff" },
		"Replay.AggregateID is 129":                func(r *outbox.Replay) { r.AggregateID = strings.Repeat("x", 129) },
		"Replay.Reason holds the control":          func(r *outbox.Replay) { r.Reason = "a\tb" },
		"Replay.By is 257":                         func(r *outbox.Replay) { r.By = strings.Repeat("x", 257) },
		"Replay.EventTypes has 21 event types; it": func(r *outbox.Replay) { r.EventTypes = make([]outbox.EventType, 21) },
	} {
		r := good
		spoil(&r)
		err := e.StartReplay(t.Context(), r)
		var field *outbox.FieldError
		require.ErrorAs(t, err, &field, problem)
		require.ErrorContains(t, err, problem)
	}
	list, err := e.Replays(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestReplaysAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := build(t, outbox.Config{Mode: outbox.WriterOnly{}}, nil)
		ctx := t.Context()
		for i := range outbox.MaxReplays {
			time.Sleep(time.Second)
			require.NoError(t, e.StartReplay(ctx, toListener(fmt.Sprint(i), "search")))
		}
		err := e.StartReplay(ctx, toListener("new", "search"))
		require.ErrorContains(t, err, "20 replays run, and the limit is 20")
		require.NoError(t, e.StopReplay(ctx, "7"))
		time.Sleep(time.Second)
		require.NoError(t, e.StopReplay(ctx, "3"))
		require.NoError(t, e.StartReplay(ctx, toListener("new", "search")))
		list, err := e.Replays(ctx)
		require.NoError(t, err)
		require.Len(t, list, outbox.MaxReplays)
		require.Equal(t, "new", list[0].Name)
		names := make([]string, len(list))
		for i := range list {
			names[i] = list[i].Name
		}
		require.Contains(t, names, "3")
		require.NotContains(t, names, "7", "it was stopped first")
	})
}

func TestAReplayWhoseRowCannotBeReadIsShown(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	e := build(t, outbox.Config{Store: store}, nil)
	for i, value := range []string{"no JSON", "{}"} {
		_, err := store.SetReplay(t.Context(), store.DB(), "", outbox.ReplayRow{Name: fmt.Sprint(i), Version: "1", Value: value}, nil)
		require.NoError(t, err)
	}
	list, err := e.Replays(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	for _, r := range list {
		require.Contains(t, r.Problem, "the row of a replay cannot be read")
	}
}
