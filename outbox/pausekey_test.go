package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// marks is a store that counts the outcomes that are stored, by outcome.
type marks struct {
	*outboxtest.Store
	mu sync.Mutex
	n  map[outbox.Outcome]int
}

func newMarks() *marks { return &marks{Store: outboxtest.NewStore(), n: map[outbox.Outcome]int{}} }

func (s *marks) memory() *outboxtest.Store { return s.Store }

func (s *marks) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, list []outbox.Mark) (map[string]outbox.RowState, error) {
	s.mu.Lock()
	s.n[outcome] += len(list)
	s.mu.Unlock()
	return s.Store.Mark(ctx, db, outcome, list)
}

func (s *marks) deferred() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n[outbox.OutcomeDeferred]
}

// endpoints are listeners' receivers by key, some of which are down. Each call takes 10 ms.
type endpoints struct {
	mu    sync.Mutex
	down  map[string]error // by aggregate id: the answer
	calls map[string]int
	got   map[string][]string // event ids, in the order of their deliveries
	most  map[string]int      // calls at once
	now   map[string]int
	takes time.Duration
}

func newEndpoints() *endpoints {
	return &endpoints{down: map[string]error{}, calls: map[string]int{}, got: map[string][]string{}, most: map[string]int{}, now: map[string]int{}, takes: 10 * time.Millisecond}
}

func (r *endpoints) hear(_ context.Context, env outbox.Envelope) error {
	key := env.AggregateID
	r.mu.Lock()
	r.calls[key]++
	r.now[key]++
	r.most[key] = max(r.most[key], r.now[key])
	err, takes := r.down[key], r.takes
	r.mu.Unlock()
	time.Sleep(takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now[key]--
	if err == nil {
		r.got[key] = append(r.got[key], env.EventID)
	}
	return err
}

func (r *endpoints) set(key string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down[key] = err
}

func (r *endpoints) called(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.calls[key]
	r.calls[key] = 0
	return n
}

func (r *endpoints) delivered(key string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got[key]...)
}

// ofKey are n events of a key, in a transaction of their own.
func ofKey(e *engine, key string, n int, prefix string) (ids []string) {
	e.t.Helper()
	envs := make([]outbox.Envelope, n)
	for i := range envs {
		envs[i] = said(fmt.Sprintf("%s%s%05d", key, prefix, i))
		envs[i].AggregateID = key
	}
	return e.write(envs...)
}

// deferring are the modes in which keys can wait.
func deferring(rules outbox.Rules) map[string]outbox.Mode {
	limited := rules
	limited.Concurrency, limited.Rate = 20, 1000
	all := func(r outbox.Rules) outbox.DispatchOptions {
		return outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{kindSaid: r}}
	}
	return map[string]outbox.Mode{
		"single":  outbox.SingleNode{Poll: rarely, Dispatch: all(rules)},
		"multi":   outbox.MultiNode{Poll: rarely, Dispatch: all(rules)},
		"tenants": outbox.MultiNode{Poll: rarely, Dispatch: all(rules), Claim: outbox.ClaimOptions{TenantsInTurn: true}},
		"lane":    outbox.MultiNode{Poll: rarely, Dispatch: all(limited)},
	}
}

// An endpoint is down for an hour: a call in five minutes, and no other endpoint waits. Each event that
// waits costs a write for each pause.
func TestAListenerPausesAKeyWhileItsReceiverIsDown(t *testing.T) {
	t.Parallel()
	for name, mode := range deferring(outbox.Rules{}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, r, logs := newMarks(), newEndpoints(), &logbook{}
				r.set("down", outbox.PauseKeyFor(5*time.Minute, errReceiverDown))
				e := start(t, outbox.Config{Store: store, Mode: mode, Logger: slog.New(logs)}, r.hear)
				ids := ofKey(e, "down", 50, "a")
				pass(time.Second)
				require.Len(t, ofKey(e, "up", 50, "a"), 50)
				pass(time.Minute)
				require.LessOrEqual(t, r.called("down"), 20, "a call for each worker at most")
				require.Len(t, r.delivered("up"), 50)
				require.Equal(t, 50, store.deferred(), "a write for each event")
				st, err := e.Stats(t.Context())
				require.NoError(t, err)
				require.Len(t, st.Paused, 1)
				require.Equal(t, "down", st.Paused[0].AggregateID)
				require.Equal(t, kindSaid.EventType, st.Paused[0].Kind.EventType)
				require.Equal(t, "provider down", st.Paused[0].Reason)
				require.InDelta(t, 239*time.Second, time.Until(st.Paused[0].Until), float64(time.Second))
				require.NotEmpty(t, logs.about("a listener paused a key of its kind of event"))
				requireNoAttempts(t, e.store)

				ids = append(ids, ofKey(e, "down", 1, "b")...)
				pass(time.Second)
				row, _ := e.store.Row("downb00000")
				require.Equal(t, "the key is paused: provider down", row.LastError)

				pass(54 * time.Minute)
				require.LessOrEqual(t, r.called("down"), 11*20)
				require.LessOrEqual(t, store.deferred(), 12*51)
				r.set("down", nil)
				pass(6 * time.Minute)
				require.ElementsMatch(t, ids, r.delivered("down"))
				requireNoAttempts(t, e.store)
				st, err = e.Stats(t.Context())
				require.NoError(t, err)
				require.Empty(t, st.Paused)
				require.Empty(t, logs.about("polling failed"))
			})
		})
	}
}

// After the pause a single event is delivered first; the others wait until it has an outcome.
func TestTheEventsOfAKeyWaitForTheProbe(t *testing.T) {
	t.Parallel()
	for name, mode := range deferring(outbox.Rules{}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, r := newMarks(), newEndpoints()
				r.set("a", outbox.PauseKeyFor(time.Minute, errReceiverDown))
				e := start(t, outbox.Config{Store: store, Mode: mode}, r.hear)
				ofKey(e, "a", 1, "first")
				pass(time.Second)
				ofKey(e, "a", 30, "x")
				pass(30 * time.Second)
				require.Equal(t, 1, r.called("a"))
				require.Equal(t, 31, store.deferred())
				pass(29*time.Second + 100*time.Millisecond)
				require.Equal(t, 1, r.called("a"), "the probe")
				pass(time.Minute)
				require.Equal(t, 1, r.called("a"), "another")
				require.Equal(t, 31+31+1, store.deferred(), "a write for each event, and for each pause")
				r.takes = 20 * time.Second
				r.set("a", nil)
				pass(75 * time.Second)
				require.Equal(t, 1, r.called("a"), "the others wait for a probe that takes long")
				require.LessOrEqual(t, store.deferred(), 31+31+1+6*31, "more and more rarely")
				pass(3 * time.Minute)
				require.Len(t, r.delivered("a"), 31)
			})
		})
	}
}

// In these cases PauseKeyFor defers the event, and no other waits.
func TestPauseKeyForIsADeferralWithoutAKeyThatCanWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode outbox.Mode
		key  string
	}{
		"no key":  {rareModes["multi"], ""},
		"by key":  {rareModes["by key"], "a"},
		"ordered": {rareModes["ordered"], "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got arrivals
				failed := false
				e := start(t, outbox.Config{Mode: c.mode}, func(_ context.Context, env outbox.Envelope) error {
					if env.EventID == "e-00003" && !failed {
						failed = true
						return outbox.PauseKeyFor(time.Minute, errReceiverDown)
					}
					got.add(env.EventID)
					return nil
				})
				envs := numbered("e", 10)
				for i := range envs {
					envs[i].EventType, envs[i].AggregateID = "Said", c.key
				}
				e.write(envs...)
				e.Wake()
				pass(10 * time.Second)
				row, _ := e.store.Row("e-00003")
				require.Equal(t, "provider down", row.LastError)
				require.Zero(t, row.Attempts)
				if name == "by key" {
					require.Equal(t, idsOf(envs[:3]), got.all(), "the key waits")
				} else {
					require.Len(t, got.all(), 9)
				}
				pass(time.Minute)
				require.Len(t, got.all(), 10)
				if name == "by key" {
					require.Equal(t, idsOf(envs), got.all(), "the order is kept")
				}
			})
		})
	}
}

// Of several listeners with names, the one that asks has its row deferred.
func TestPauseKeyForOfAListenerWithANameDefersItsRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{Mode: rareModes["multi"]}, h.on("mail", func(_ context.Context, call int) error {
			if call < 3 {
				return outbox.PauseKeyFor(time.Minute, errReceiverDown)
			}
			return nil
		}), h.on("search", succeeds))
		env := said("e")
		env.AggregateID = "a"
		e.write(env)
		pass(time.Second)
		require.Equal(t, "provider down", rowsBy(e.store)["mail"].LastError)
		st, err := e.Stats(t.Context())
		require.NoError(t, err)
		require.Empty(t, st.Paused)
		pass(3 * time.Minute)
		require.Equal(t, outbox.StatusDone, rowsBy(e.store)["mail"].Status)
	})
}

// The pause is of the key among the events of the kind: another kind has another receiver.
func TestAPausedKeyOfAKindHoldsUpNoOtherKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newEndpoints()
		r.set("a", outbox.PauseKeyFor(time.Hour, errReceiverDown))
		e := build(t, outbox.Config{Mode: rareModes["multi"]}, r.hear)
		var others arrivals
		require.NoError(t, e.Register(outbox.On("", "Other", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			others.add(env.EventID)
			return nil
		}))))
		require.NoError(t, e.Start(t.Context()))
		ofKey(e, "a", 3, "x")
		pass(time.Second)
		env := outbox.Envelope{EventID: "other", EventType: "Other", AggregateID: "a", Payload: outbox.JSON(1)}
		e.write(env)
		pass(time.Second)
		require.Equal(t, []string{"other"}, others.all())
	})
}

// A key whose deliveries fail is paused, the others are not; its first failed event is the probe.
func TestFailuresInARowPauseTheirKey(t *testing.T) {
	t.Parallel()
	for name, mode := range deferring(outbox.Rules{
		Breaker: outbox.Breaker{Failures: 3, Pause: time.Minute, PerKey: true}, MaxAttempts: outbox.Endless,
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, logs := newEndpoints(), &logbook{}
				r.set("down", errors.New("refused"))
				e := start(t, outbox.Config{Mode: mode, Logger: slog.New(logs)}, r.hear)
				for i := range 10 {
					ofKey(e, "down", 1, fmt.Sprint(i))
					ofKey(e, "up", 1, fmt.Sprint(i))
					pass(20 * time.Millisecond)
				}
				pass(10 * time.Second)
				require.Equal(t, 3, r.called("down"))
				require.Len(t, r.delivered("up"), 10)
				st, err := e.Stats(t.Context())
				require.NoError(t, err)
				require.Len(t, st.Paused, 1)
				require.Equal(t, "3 deliveries in a row failed: refused", st.Paused[0].Reason)
				require.Len(t, logs.about("failures in a row paused a key of their kind"), 1)
				pass(55 * time.Second)
				require.Equal(t, 1, r.called("down"), "the probe")
				st, _ = e.Stats(t.Context())
				require.Equal(t, "the first delivery after a pause failed: refused", st.Paused[0].Reason)
				require.InDelta(t, 115*time.Second, time.Until(st.Paused[0].Until), float64(2*time.Second), "twice as long")
				r.set("down", nil)
				pass(2*time.Minute + 10*time.Second)
				require.Len(t, r.delivered("down"), 10)
				st, _ = e.Stats(t.Context())
				require.Empty(t, st.Paused)
			})
		})
	}
}
