package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// asked is a store that counts the pauses that are written, and fails while it is told to.
type asked struct {
	*outboxtest.Store
	written atomic.Int32
	fails   atomic.Bool
}

func newAsked() *asked { return &asked{Store: outboxtest.NewStore()} }

func (s *asked) memory() *outboxtest.Store { return s.Store }

func (s *asked) Pause(ctx context.Context, db outbox.DB, pause outbox.Pause) error {
	s.written.Add(1)
	if s.fails.Load() {
		return errors.New("the control table is locked")
	}
	return s.Store.Pause(ctx, db, pause)
}

// receiver is a listener whose receiver is down until it is up. Each call takes 10 ms.
type receiver struct {
	up      atomic.Bool
	pauses  time.Duration
	calls   atomic.Int32
	arrived arrivals
}

var errReceiverDown = errors.New("provider down")

func (r *receiver) hear(_ context.Context, env outbox.Envelope) error {
	r.calls.Add(1)
	time.Sleep(10 * time.Millisecond)
	if !r.up.Load() {
		return outbox.PauseFor(r.pauses, errReceiverDown)
	}
	r.arrived.add(env.EventID)
	return nil
}

// calledSince is the number of calls since the last time.
func (r *receiver) calledSince() int { return int(r.calls.Swap(0)) }

// requireNoAttempts checks that no row has an attempt, and that no row is leased.
func requireNoAttempts(t *testing.T, store *outboxtest.Store) {
	t.Helper()
	for _, row := range store.Rows() {
		require.Zero(t, row.Attempts)
		require.Empty(t, row.LockedBy)
	}
}

// The receiver is down for an hour. A call is made for each worker, and then one in five minutes.
func TestAListenerPausesItsKindWhileItsReceiverIsDown(t *testing.T) {
	t.Parallel()
	for name, mode := range rareModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, r, logs := newAsked(), &receiver{pauses: 5 * time.Minute}, &logbook{}
				e := build(t, outbox.Config{Store: store, Mode: mode, Logger: slog.New(logs)}, r.hear)
				var others arrivals
				require.NoError(t, e.Register(outbox.On("", "Other", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
					others.add(env.EventID)
					return nil
				}))))
				require.NoError(t, e.Start(t.Context()))
				began := time.Now()
				ids := several(e, 100, "a", "Said")
				other := of("other", "other")
				other.EventType = "Other"
				e.write(other)
				e.Wake()
				pass(time.Minute)
				require.LessOrEqual(t, r.calledSince(), 16, "a call for each worker at most")
				require.EqualValues(t, 1, store.written.Load(), "one write for the burst")
				list, err := e.Paused(t.Context())
				require.NoError(t, err)
				require.Len(t, list, 1)
				require.True(t, list[0].Automatic)
				require.Equal(t, "provider down", list[0].Reason)
				require.Contains(t, list[0].By, "vm-")
				require.WithinDuration(t, began.Add(5*time.Minute), list[0].Until, 100*time.Millisecond)
				if name == "ordered" {
					require.Empty(t, others.all(), "the order counts more")
				} else {
					require.Equal(t, []string{"other"}, others.all())
				}

				pass(54 * time.Minute)
				require.LessOrEqual(t, r.calledSince(), 11, "a probe in five minutes")
				require.LessOrEqual(t, store.written.Load(), int32(12))
				requireNoAttempts(t, store.Store)
				require.LessOrEqual(t, len(logs.about("a listener paused its kind of event")), 12)
				r.up.Store(true)
				pass(6 * time.Minute)
				require.ElementsMatch(t, ids, r.arrived.all())
				if name == "ordered" {
					require.Equal(t, ids, r.arrived.all())
				}
				requireNoAttempts(t, store.Store)
				require.Empty(t, logs.about("polling failed"))
			})
		})
	}
}

// The last error of an event that paused its kind says why; its due time is a microsecond later.
func TestAnEventThatPausesItsKindKeepsItsPlaceAndSaysWhy(t *testing.T) {
	t.Parallel()
	for name, mode := range rareModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{pauses: time.Hour}
				e := start(t, outbox.Config{Mode: mode}, r.hear)
				e.write(said("a"))
				e.Wake()
				pass(time.Second)
				row, _ := e.store.Row("a")
				moved := row.AvailableAt.Sub(row.Envelope.OccurredAt)
				if name == "ordered" {
					require.Zero(t, moved)
					require.Empty(t, row.LastError)
				} else {
					require.Equal(t, time.Microsecond, moved)
					require.Equal(t, "provider down", row.LastError)
				}
				require.Zero(t, row.Attempts)

				r.up.Store(true)
				require.NoError(t, e.Resume(t.Context(), kindSaid))
				pass(100 * time.Millisecond)
				require.Equal(t, []string{"a"}, r.arrived.all(), "Resume does not wait for the hour")
				require.Equal(t, 2, r.calledSince())
			})
		})
	}
}

// Events of a transaction have the same due time. None overtakes the event that paused the kind.
func TestAPauseByAListenerKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"ordered": rareModes["ordered"], "by key": rareModes["by key"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got arrivals
				downs := map[string]int{"a-00003": 2, "a-00004": 1, "a-00009": 3}
				e := build(t, outbox.Config{Mode: mode}, nil)
				require.NoError(t, e.Register(outbox.On("a", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
					if downs[env.EventID] > 0 {
						downs[env.EventID]--
						return outbox.PauseFor(time.Minute, errReceiverDown)
					}
					got.add(env.EventID)
					return nil
				}))))
				require.NoError(t, e.Start(t.Context()))
				envs := numbered("a", 10)
				for i := range envs {
					envs[i].AggregateType, envs[i].OccurredAt = "a", time.Now()
				}
				e.write(envs...)
				pass(10 * time.Minute)
				require.Equal(t, idsOf(numbered("a", 10)), got.all())
				requireNoAttempts(t, e.store)
			})
		})
	}
}

// In two processes, each probes once when the pause has ended.
func TestAPauseByAListenerHoldsInOtherProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newAsked()
		var rs [2]*receiver
		var es [2]*engine
		for i := range es {
			rs[i] = &receiver{pauses: 5 * time.Minute}
			es[i] = start(t, outbox.Config{Store: store, Mode: pausingModes["multi"](fmt.Sprint("node-", i))}, rs[i].hear)
		}
		for i := range 50 {
			es[i%2].write(said(fmt.Sprint("e", i)))
		}
		pass(4 * time.Minute)
		require.LessOrEqual(t, rs[0].calledSince(), 2)
		require.LessOrEqual(t, rs[1].calledSince(), 2)
		require.LessOrEqual(t, store.written.Load(), int32(2), "each process at most once")
		for range 5 {
			pass(5*time.Minute + 10*time.Second)
			require.LessOrEqual(t, rs[0].calledSince()+rs[1].calledSince(), 3)
		}
		for i := range rs {
			rs[i].up.Store(true)
		}
		pass(6 * time.Minute)
		require.Len(t, append(rs[0].arrived.all(), rs[1].arrived.all()...), 50)
		requireNoAttempts(t, store.Store)
	})
}

// The pause that an operator asks for stays as it is.
func TestAListenerReplacesNoPauseOfAnOperator(t *testing.T) {
	t.Parallel()
	for name, until := range map[string]time.Duration{"with an end": 2 * time.Minute, "without an end": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newAsked()
				e := start(t, outbox.Config{Store: store, Mode: rareModes["multi"]}, func(context.Context, outbox.Envelope) error {
					time.Sleep(time.Minute)
					return outbox.PauseFor(time.Hour, errReceiverDown)
				})
				e.write(said("a"))
				pass(time.Second)
				pause := outbox.Pause{Kind: kindSaid, By: "ann"}
				if until > 0 {
					pause.Until = time.Now().Add(until)
				}
				require.NoError(t, e.Pause(t.Context(), pause))
				pass(time.Minute + 30*time.Second)
				list, err := e.Paused(t.Context())
				require.NoError(t, err)
				require.Len(t, list, 1)
				require.Equal(t, "ann", list[0].By)
				require.True(t, list[0].Until.Equal(pause.Until))
				require.EqualValues(t, 1, store.written.Load())
			})
		})
	}
}

// A shorter pause does not shorten a longer pause, and a longer pause replaces it.
func TestTheLaterEndOfTwoAutomaticPausesCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		answers := map[string][2]time.Duration{"a": {time.Second, 5 * time.Minute}, "b": {10 * time.Second, time.Minute}, "c": {20 * time.Second, time.Hour}}
		e := start(t, outbox.Config{Mode: rareModes["single"]}, func(_ context.Context, env outbox.Envelope) error {
			time.Sleep(answers[env.EventID][0])
			return outbox.PauseFor(answers[env.EventID][1], errors.New(env.EventID))
		})
		e.write(said("a"), said("b"), said("c"))
		for _, want := range []struct {
			at, until time.Duration
			by        string
		}{{2 * time.Second, time.Second + 5*time.Minute, "a"}, {11 * time.Second, time.Second + 5*time.Minute, "a"}, {21 * time.Second, 20*time.Second + time.Hour, "c"}} {
			pass(want.at - time.Since(began))
			list, err := e.Paused(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.WithinDuration(t, began.Add(want.until), list[0].Until, 10*time.Millisecond)
			require.Equal(t, want.by, list[0].Reason)
		}
	})
}

// Only the row of the listener waits: the receivers of the other listeners are not down.
func TestAListenerWithANameDefersItsOwnRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{Mode: rareModes["multi"]}, h.on("mail", func(_ context.Context, call int) error {
			if call < 3 {
				return outbox.PauseFor(time.Minute, errReceiverDown)
			}
			return nil
		}), h.on("search", succeeds))
		e.write(said("e"))
		pass(time.Second)
		list, err := e.Paused(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
		row := rowsBy(e.store)["mail"]
		require.Equal(t, outbox.StatusNew, row.Status)
		require.Equal(t, "provider down", row.LastError)
		require.Zero(t, row.Attempts)
		pass(3 * time.Minute)
		require.Equal(t, outbox.StatusDone, rowsBy(e.store)["mail"].Status)
	})
}

// The first batch after the pause has a single event.
func TestABatchListenerPausesItsKind(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single": rareModes["single"], "multi": rareModes["multi"], "by key": rareModes["by key"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var sizes []int
				up := false
				e := startBatches(t, outbox.Config{Mode: mode}, outbox.BatchOptions{Size: 10, Wait: 10 * time.Millisecond}, func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
					mu.Lock()
					defer mu.Unlock()
					sizes = append(sizes, len(batch))
					if up {
						return nil, nil
					}
					return nil, outbox.PauseFor(time.Minute, errReceiverDown)
				})
				several(e, 40, "a", "Said")
				pass(3*time.Minute + 30*time.Second)
				mu.Lock()
				require.Equal(t, []int{1, 1, 1}, sizes[len(sizes)-3:])
				require.LessOrEqual(t, len(sizes), 5, "another call may begin before the events of the first call have outcomes")
				up = true
				mu.Unlock()
				pass(2 * time.Minute)
				for _, row := range e.store.Rows() {
					require.Equal(t, outbox.StatusDone, row.Status)
					require.Zero(t, row.Attempts)
				}
			})
		})
	}
}

// While the pause cannot be stored, this process keeps to it all the same, and nothing spins.
func TestAPauseThatCannotBeStoredHoldsInThisProcess(t *testing.T) {
	t.Parallel()
	for name, mode := range rareModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, r, logs := newAsked(), &receiver{pauses: 5 * time.Minute}, &logbook{}
				store.fails.Store(true)
				e := start(t, outbox.Config{Store: store, Mode: mode, Logger: slog.New(logs)}, r.hear)
				ids := several(e, 100, "a", "Said")
				e.Wake()
				pass(4 * time.Minute)
				require.LessOrEqual(t, r.calledSince(), 16)
				require.InDelta(t, 240, store.written.Load(), 2, "a try in a second")
				lines := logs.about("could not be stored")
				require.NotEmpty(t, lines)
				require.LessOrEqual(t, len(lines), 6)
				require.Contains(t, lines[0].attrs["error"].String(), "the control table is locked")
				requireNoAttempts(t, store.Store)

				store.fails.Store(false)
				pass(2 * time.Second)
				list, err := e.Paused(t.Context())
				require.NoError(t, err)
				require.Len(t, list, 1)
				require.InDelta(t, 58*time.Second, time.Until(list[0].Until), float64(100*time.Millisecond), "the end did not move")
				r.up.Store(true)
				pass(2 * time.Minute)
				require.ElementsMatch(t, ids, r.arrived.all())
			})
		})
	}
}

// slowKeys is a store that takes a while to store the pause of a key.
type slowKeys struct{ *outboxtest.Store }

func (s slowKeys) memory() *outboxtest.Store { return s.Store }

func (s slowKeys) Pause(ctx context.Context, db outbox.DB, pause outbox.Pause) error {
	if pause.AggregateID != "" {
		time.Sleep(100 * time.Millisecond)
	}
	return s.Store.Pause(ctx, db, pause)
}

// The poller has looked for pauses of kinds to store, and still stores the pause of a key, when a listener
// pauses its kind.
func TestAPauseThatComesWhileOthersAreStoredIsStoredAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, outbox.Config{Store: slowKeys{outboxtest.NewStore()}, Mode: rareModes["multi"]}, func(_ context.Context, env outbox.Envelope) error {
			if env.AggregateID != "" {
				return outbox.PauseKeyFor(5*time.Minute, errReceiverDown)
			}
			return outbox.PauseFor(5*time.Minute, errReceiverDown)
		})
		pass(2 * time.Second)
		ofKey(e, "key", 1, "a")
		pass(50 * time.Millisecond)
		e.write(said("kind"))
		pass(200 * time.Millisecond)
		list, err := e.Paused(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 2)
	})
}

// A process that cannot store a pause at all delivers again when the pause is over.
func TestAPauseThatIsNeverStoredEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newAsked(), &receiver{pauses: 5 * time.Minute}
		store.fails.Store(true)
		e := start(t, outbox.Config{Store: store, Mode: rareModes["multi"]}, r.hear)
		ids := several(e, 20, "a", "Said")
		pass(4 * time.Minute)
		r.up.Store(true)
		pass(time.Minute + 100*time.Millisecond)
		require.ElementsMatch(t, ids, r.arrived.all())

		r.up.Store(false)
		e.write(said("b"))
		pass(time.Second)
		r.up.Store(true)
		require.NoError(t, e.Resume(t.Context(), kindSaid))
		pass(100 * time.Millisecond)
		require.Contains(t, r.arrived.all(), "b", "Resume lifts it too")
	})
}

// While a probe is under way, the other events wait; its outcome lets them go on, whatever it is.
func TestEventsWaitForTheProbe(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"done": nil, "a failure of another sort": errors.New("bad address"), "a deferral": outbox.Defer(time.Hour)} {
		for mode, options := range rareModes {
			if mode == "ordered" || mode == "by key" {
				continue // one event at a time anyway
			}
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var running, most, calls atomic.Int32
					e := start(t, outbox.Config{Mode: options}, func(context.Context, outbox.Envelope) error {
						most.Store(max(most.Load(), running.Add(1)))
						defer running.Add(-1)
						switch calls.Add(1) {
						case 1:
							return outbox.PauseFor(time.Minute, errReceiverDown)
						case 2:
							time.Sleep(10 * time.Second)
							return answer
						default:
							return nil
						}
					})
					e.write(said("first"))
					pass(time.Second)
					several(e, 50, "a", "Said")
					pass(67 * time.Second)
					several(e, 5, "b", "Said") // by the hot path
					pass(500 * time.Millisecond)
					require.EqualValues(t, 2, calls.Load())
					require.EqualValues(t, 1, most.Load())
					pass(2 * time.Second)
					require.GreaterOrEqual(t, calls.Load(), int32(57))
				})
			})
		}
	}
}

// A pause that Resume ends needs no probe: an operator knows that the receiver is back.
func TestResumeNeedsNoProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{pauses: time.Hour}
		e := start(t, outbox.Config{Mode: rareModes["single"]}, r.hear)
		several(e, 16, "a", "Said")
		pass(time.Second)
		r.up.Store(true)
		require.NoError(t, e.Resume(t.Context(), kindSaid))
		pass(11 * time.Millisecond)
		require.Len(t, r.arrived.all(), 16, "all at once")
	})
}

func TestTheTextsAndTheTimeOfPauseForAreBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		reason string
		lasts  time.Duration
	}{
		"too short":          {outbox.PauseFor(-time.Hour, errReceiverDown), "provider down", time.Second},
		"too long":           {outbox.PauseFor(1<<62, errReceiverDown), "provider down", 24 * time.Hour},
		"no error":           {outbox.PauseFor(time.Minute, nil), "paused for 1m0s", time.Minute},
		"wrapped":            {fmt.Errorf("sending 7: %w", outbox.PauseFor(time.Minute, errReceiverDown)), "sending 7: provider down", time.Minute},
		"control characters": {outbox.PauseFor(time.Minute, errors.New("a\x1b[2J\nb\x00\xff")), "a [2J b \uFFFD", time.Minute},
		"a long text":        {outbox.PauseFor(time.Minute, errors.New(strings.Repeat("ü", 10_000))), strings.Repeat("ü", outbox.MaxPauseReason), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := build(t, outbox.Config{}, func(context.Context, outbox.Envelope) error { return test.err })
				env := said("a")
				env.AggregateType = outbox.Global
				e.write(env)
				d, err := e.Deliver(t.Context(), env) // by hand, without a poller
				require.NoError(t, err)
				require.Equal(t, outbox.StatusNew, d.Status)
				list, err := e.Paused(t.Context())
				require.NoError(t, err)
				require.Len(t, list, 1)
				require.Equal(t, test.reason, list[0].Reason)
				require.WithinDuration(t, time.Now().Add(test.lasts), list[0].Until, 10*time.Millisecond)
			})
		})
	}
}

func TestPauseForWrapsItsError(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, outbox.PauseFor(time.Minute, errReceiverDown), errReceiverDown)
	require.Equal(t, outbox.OutcomeDeferred, outbox.OutcomeOf(t.Context(), said("a"), outbox.PauseFor(time.Minute, errReceiverDown)))
}
