package outbox_test

import (
	"context"
	"log/slog"
	"slices"
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

var pausingModes = map[string]func(owner string) outbox.Mode{
	"single": func(string) outbox.Mode {
		return outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 2}}
	},
	"multi": func(owner string) outbox.Mode {
		return outbox.MultiNode{Dispatch: outbox.DispatchOptions{Workers: 2}, Claim: outbox.ClaimOptions{Owner: owner}}
	},
	"tenants": func(owner string) outbox.Mode {
		return outbox.MultiNode{Dispatch: outbox.DispatchOptions{Workers: 2}, Claim: outbox.ClaimOptions{Owner: owner, TenantsInTurn: true}}
	},
	"limited tenants": func(owner string) outbox.Mode {
		return outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 2, Rules: map[outbox.EventKind]outbox.Rules{kindSaid: {Concurrency: 2, Rate: 1000}}},
			Claim:    outbox.ClaimOptions{Owner: owner, TenantsInTurn: true},
		}
	},
	"limited": func(owner string) outbox.Mode {
		return outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 2, Rules: map[outbox.EventKind]outbox.Rules{kindSaid: {Concurrency: 2, Rate: 1000}}},
			Claim:    outbox.ClaimOptions{Owner: owner},
		}
	},
	"ordered": func(string) outbox.Mode { return outbox.Ordered{} },
}

// arrivals are the events that listeners got.
type arrivals struct {
	mu  sync.Mutex
	ids []string
}

func (h *arrivals) add(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids = append(h.ids, id)
}

func (h *arrivals) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ids)
}

// What is queued when a kind is paused is given back; what comes later stays in the
// table. Nothing has an attempt more, and all is delivered once when it is resumed.
func TestAPausedKindStaysInTheTable(t *testing.T) {
	t.Parallel()
	for name, mode := range pausingModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got arrivals
				logs := &logbook{}
				e := start(t, outbox.Config{Mode: mode("a"), Logger: slog.New(logs)}, func(_ context.Context, env outbox.Envelope) error {
					got.add(env.EventID)
					time.Sleep(time.Second)
					return nil
				})
				ids := several(e, 50, "a", "Said")
				pass(6500 * time.Millisecond)
				require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
				begun := len(got.all())
				require.NotZero(t, begun)
				ids = append(ids, several(e, 50, "b", "Said")...)
				pass(time.Minute)
				require.Len(t, got.all(), begun, "deliveries that had begun ended, none began")
				leased, pending := 0, 0
				for _, row := range e.store.Rows() {
					require.Zero(t, row.Attempts)
					if row.Status == outbox.StatusNew {
						pending++
					}
					if row.LockedBy != "" {
						leased++
					}
				}
				require.Equal(t, 100-begun, pending)
				require.Zero(t, leased)
				st, err := e.Stats(t.Context())
				require.NoError(t, err)
				require.Zero(t, st.HotDepth+st.ColdDepth)
				require.Equal(t, outbox.EventKind{AggregateType: outbox.Global, EventType: "Said"}, st.Paused[0].Kind)
				require.WithinDuration(t, time.Now().Add(-time.Minute), st.Paused[0].Since, time.Millisecond)

				require.NoError(t, e.Resume(t.Context(), kindSaid))
				pass(5 * time.Minute)
				require.ElementsMatch(t, ids, got.all())
				for _, row := range e.store.Rows() {
					require.Equal(t, outbox.StatusDone, row.Status)
					require.Zero(t, row.Attempts)
				}
				require.Len(t, logs.about("is paused"), 1)
				require.Len(t, logs.about("is resumed"), 1)
				require.Empty(t, logs.problems())
			})
		})
	}
}

func TestAPauseLeavesOtherKindsAlone(t *testing.T) {
	t.Parallel()
	for name, mode := range pausingModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got arrivals
				hear := func(_ context.Context, env outbox.Envelope) error {
					got.add(env.EventID)
					return nil
				}
				e := build(t, outbox.Config{Mode: mode("a")}, hear)
				require.NoError(t, e.Register(outbox.On("", "Other", outbox.ListenerFunc(hear))))
				require.NoError(t, e.Start(t.Context()))
				require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
				e.write(said("a"), outbox.Envelope{EventID: "b", EventType: "Other", Payload: outbox.JSON(1)})
				pass(10 * time.Millisecond)
				if name == "ordered" { // the order counts more
					pass(time.Minute)
					require.Empty(t, got.all())
					require.NoError(t, e.Resume(t.Context(), kindSaid))
					pass(time.Second)
					require.Equal(t, []string{"a", "b"}, got.all())
					return
				}
				require.Equal(t, []string{"b"}, got.all())
			})
		})
	}
}

// In order, a pause in the middle of a queue stops what is behind, and a resumption
// begins at the same place, however often.
func TestAPauseKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		var want, got []string
		hear := func(_ context.Context, env outbox.Envelope) error {
			got = append(got, env.EventID)
			time.Sleep(7 * time.Millisecond)
			return nil
		}
		e := build(t, outbox.Config{Store: store, Mode: outbox.Ordered{}}, hear)
		require.NoError(t, e.Register(outbox.On("", "Other", outbox.ListenerFunc(hear))))
		require.NoError(t, e.Start(t.Context()))
		for i := range 100 {
			want = append(want, several(e, 9, string(rune('0'+i/10))+string(rune('0'+i%10))+"o", "Other")...)
			want = append(want, several(e, 1, string(rune('0'+i/10))+string(rune('0'+i%10))+"s", "Said")...)
			pass(time.Millisecond)
		}
		for range 20 {
			pass(133 * time.Millisecond)
			require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
			pass(211 * time.Millisecond)
			before := len(got)
			pass(20 * time.Second)
			require.Len(t, got, before, "it waits")
			require.True(t, before == len(want) || strings.Contains(want[before], "s"), want[before])
			require.NoError(t, e.Resume(t.Context(), kindSaid))
		}
		pass(time.Minute)
		require.Equal(t, want, got)
	})
}

func TestAPauseHoldsAfterARestartAndForOtherNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		var got arrivals
		hear := func(_ context.Context, env outbox.Envelope) error {
			got.add(env.EventID)
			return nil
		}
		mode := pausingModes["multi"]
		a := start(t, outbox.Config{Store: store, Mode: mode("a")}, hear)
		b := start(t, outbox.Config{Store: store, Mode: mode("b")}, hear)
		require.NoError(t, a.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
		pass(5*time.Second + time.Millisecond)
		b.write(said("b"))
		require.NoError(t, a.Close(context.Background()))
		c := start(t, outbox.Config{Store: store, Mode: mode("c")}, hear)
		c.write(said("c"))
		pass(time.Minute)
		require.Empty(t, got.all())
		require.NoError(t, c.Resume(t.Context(), kindSaid))
		pass(time.Second)
		require.ElementsMatch(t, []string{"b", "c"}, got.all())
	})
}

// A writer alone may pause for those that deliver. It delivers nothing itself.
func TestAWriterMayPause(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	w := start(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
	require.NoError(t, w.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
	list, err := w.Paused(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, w.Resume(t.Context(), kindSaid))
	list, err = w.Paused(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestAKindThatCannotBePausedIsNamed(t *testing.T) {
	t.Parallel()
	e := build(t, outbox.Config{}, nil)
	require.ErrorContains(t, e.Pause(t.Context(), outbox.Pause{Kind: outbox.EventKind{}}), "Pause.Kind.EventType is required")
	require.ErrorContains(t, e.Resume(t.Context(), outbox.EventKind{EventType: "a\x00"}), "kind.EventType holds a NUL")
	long := outbox.EventKind{AggregateType: outbox.AggregateType(strings.Repeat("a", 65)), EventType: "a"}
	require.ErrorContains(t, e.Pause(t.Context(), outbox.Pause{Kind: long}), "Pause.Kind.AggregateType is 65 characters long; the limit is 64")
}

// pollLog records polls.
type pollLog struct {
	*outboxtest.Store
	mu    sync.Mutex
	after []outbox.Cursor
}

func (s *pollLog) memory() *outboxtest.Store { return s.Store }

func (s *pollLog) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	s.mu.Lock()
	s.after = append(s.after, q.After)
	s.mu.Unlock()
	return s.Store.Poll(ctx, db, q)
}

// polls are the polls since the last call: from the start of the table, and from later.
func (s *pollLog) polls() (fromStart, fromLater int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.after {
		if c.IsZero() {
			fromStart++
		} else {
			fromLater++
		}
	}
	s.after = nil
	return fromStart, fromLater
}

// While a kind is paused, the poller reads past its rows once in an interval, however
// often it is woken. It starts over when the kind is resumed, and when it is asked to.
func TestThePollerReadsPastPausedRowsOnceInAnInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &pollLog{Store: outboxtest.NewStore()}
		var got arrivals
		hear := func(_ context.Context, env outbox.Envelope) error {
			got.add(env.EventID)
			return nil
		}
		e := build(t, outbox.Config{Store: s, Mode: outbox.SingleNode{}}, hear)
		require.NoError(t, e.Register(outbox.On("", "Other", outbox.ListenerFunc(hear))))
		insertDue(t, s.Store, "old", -time.Hour)
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: outbox.EventKind{EventType: "Third"}})) // stays paused
		require.NoError(t, e.Start(t.Context()))
		pass(time.Minute)
		s.polls()
		for i := range 600 { // retries of another kind wake it often
			e.write(outbox.Envelope{EventID: "r" + string(rune('a'+i/26)) + string(rune('a'+i%26)), EventType: "Other", Payload: outbox.JSON(1), DeliverAfter: 50 * time.Millisecond})
			pass(100 * time.Millisecond)
		}
		fromStart, fromLater := s.polls()
		require.InDelta(t, 12, fromStart, 2, "a minute has twelve intervals")
		require.Greater(t, fromLater, 500)
		require.Len(t, got.all(), 600)

		s.polls()
		e.Wake()
		pass(time.Millisecond)
		fromStart, _ = s.polls()
		require.Equal(t, 1, fromStart)
		require.NoError(t, e.Resume(t.Context(), kindSaid))
		pass(time.Millisecond)
		require.Contains(t, got.all(), "old")
	})
}

// kindOther is what the tests pause beside said, or instead of it.
var kindOther = outbox.EventKind{EventType: "Other"}

// maxSweepPause is the poller's, and its interval.
const maxSweepPause = time.Minute + 5*time.Second

// crowded is a store with many paused rows: a read of what is not paused, from the start of
// the table, takes a while.
type crowded struct {
	*outboxtest.Store
	takes time.Duration
	reads atomic.Int32
}

func (s *crowded) memory() *outboxtest.Store { return s.Store }

func (s *crowded) pass(after outbox.Cursor, except []outbox.EventKind) {
	if after.IsZero() && len(except) > 0 {
		s.reads.Add(1)
		time.Sleep(s.takes)
	}
}

func (s *crowded) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	s.pass(q.After, q.Except)
	return s.Store.Poll(ctx, db, q)
}

func (s *crowded) Reach(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	s.pass(q.After, q.Except)
	return s.Store.Reach(ctx, db, q)
}

func (s *crowded) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	s.pass(q.After, q.Except)
	return s.Store.Claim(ctx, db, q)
}

// Reads past many paused rows take a hundredth of the time, and come every minute at
// least: in an idle table, and twice as often for expired leases if events of other kinds
// wake the poller. These do not wait.
func TestReadsPastManyPausedRowsAreRare(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "multi node": outbox.MultiNode{}, "tenants": outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}}} {
		for takes, want := range map[time.Duration]int32{10 * time.Millisecond: 120, 200 * time.Millisecond: 30, 1500 * time.Millisecond: 10} {
			t.Run(name+" "+takes.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := &crowded{Store: outboxtest.NewStore(), takes: takes}
					e := build(t, outbox.Config{Store: s, Mode: mode}, handled)
					require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: kindOther}))
					require.NoError(t, e.Start(t.Context()))
					pass(10 * time.Minute)
					reads := s.reads.Swap(0)
					require.LessOrEqual(t, reads, want+2)
					require.GreaterOrEqual(t, reads, want/2)
					var ids []string
					for range 600 {
						env := said("")
						env.DeliverAfter = 100 * time.Millisecond
						ids = append(ids, e.write(env)...)
						pass(time.Second)
					}
					if name == "multi node" { // a range is looked at before it is read
						want += want / 2
					}
					require.LessOrEqual(t, s.reads.Load(), 2*want+4)
					pass(2 * time.Second)
					for _, id := range ids {
						row, _ := s.Row(id)
						require.Equal(t, outbox.StatusDone, row.Status)
					}
					insertDue(t, s.Store, "late", -time.Hour) // its transaction was long
					pass(maxSweepPause)
					row, _ := s.Row("late")
					require.Equal(t, outbox.StatusDone, row.Status)
				})
			})
		}
	}
}

// What is paused on purpose does not make the oldest due event old.
func TestThePausedAreNotTheOldestDue(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	w := start(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
	insertDue(t, store, "paused", -time.Hour)
	other := said("other")
	other.EventType, other.OccurredAt = "Other", time.Now().Add(-time.Minute)
	w.write(other)
	age := func() time.Duration {
		st, err := w.Stats(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, st.Due)
		return st.OldestDueAge
	}
	require.InDelta(t, time.Hour, age(), float64(10*time.Second))
	require.NoError(t, w.Pause(t.Context(), outbox.Pause{Kind: kindSaid}))
	require.InDelta(t, time.Minute, age(), float64(10*time.Second))
	require.NoError(t, w.Pause(t.Context(), outbox.Pause{Kind: kindOther}))
	require.Zero(t, age())
}
