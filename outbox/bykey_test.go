package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// of is an event of a key.
func of(key, id string) outbox.Envelope {
	env := said(id)
	env.AggregateID = key
	return env
}

// diary is the order in which events were delivered, by key.
type diary struct {
	mu   sync.Mutex
	keys map[string][]string
	busy map[string]bool
	bad  []string // events that were delivered beside another one of their key
}

// listen writes down each event and calls fn.
func (d *diary) listen(fn func(env outbox.Envelope) error) func(context.Context, outbox.Envelope) error {
	return func(_ context.Context, env outbox.Envelope) error {
		d.begin(env)
		defer d.end(env)
		if fn == nil {
			return nil
		}
		return fn(env)
	}
}

func (d *diary) begin(env outbox.Envelope) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keys == nil {
		d.keys, d.busy = map[string][]string{}, map[string]bool{}
	}
	d.keys[env.AggregateID] = append(d.keys[env.AggregateID], env.EventID)
	if env.AggregateID != "" && d.busy[env.AggregateID] {
		d.bad = append(d.bad, env.EventID)
	}
	d.busy[env.AggregateID] = true
}

func (d *diary) end(env outbox.Envelope) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy[env.AggregateID] = false
}

func (d *diary) of(key string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.keys[key])
}

// byKey is a config for an engine in order by key.
func byKey(mode outbox.OrderedByKey) outbox.Config {
	return outbox.Config{Store: outboxtest.NewStore(), Mode: mode}
}

func numbered(key string, n int) (envs []outbox.Envelope) {
	for i := range n {
		envs = append(envs, of(key, fmt.Sprintf("%s-%05d", key, i)))
	}
	return envs
}

func idsOf(envs []outbox.Envelope) (ids []string) {
	for _, env := range envs {
		ids = append(ids, env.EventID)
	}
	return ids
}

func TestOrderedByKeyDeliversEachKeyInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		e := start(t, byKey(outbox.OrderedByKey{RunLength: 7}), d.listen(func(outbox.Envelope) error {
			time.Sleep(time.Millisecond)
			return nil
		}))
		keys := named("k", 20)
		for i := range 30 {
			for _, k := range keys {
				e.write(of(k, fmt.Sprintf("%s-%05d", k, i)))
			}
		}
		time.Sleep(time.Second)
		for _, k := range keys {
			require.Equal(t, idsOf(numbered(k, 30)), d.of(k))
		}
		require.Empty(t, d.bad)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 600}, statuses(e.store))
	})
}

func TestAFailedEventHoldsBackItsKeyAndNoOther(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func() error{
		"a retry": func() error {
			return outbox.RetryIn(time.Minute, errors.New("boom"))
		},
		"a retry after": func() error { return outbox.Defer(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var d diary
				first := true
				e := start(t, byKey(outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 1}}), d.listen(func(env outbox.Envelope) error {
					if env.EventID == "a-00001" && first {
						first = false
						return hold()
					}
					return nil
				}))
				e.write(slices.Concat(numbered("a", 4), numbered("b", 4))...)
				time.Sleep(time.Second)
				require.Equal(t, []string{"a-00000", "a-00001"}, d.of("a"))
				require.Equal(t, idsOf(numbered("b", 4)), d.of("b"))
				row, _ := e.store.Row("a-00001")
				require.Equal(t, outbox.StatusRetry, row.Status)
				e.write(of("a", "a-00004"))
				time.Sleep(time.Minute)
				require.Equal(t, []string{"a-00000", "a-00001", "a-00001", "a-00002", "a-00003", "a-00004"}, d.of("a"))
			})
		})
	}
}

// A delayed event holds back nothing, and takes its place when it becomes due.
func TestADelayedEventTakesItsPlaceWhenItIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		e := start(t, byKey(outbox.OrderedByKey{Poll: outbox.PollOptions{Interval: time.Hour}}), d.listen(func(env outbox.Envelope) error {
			if env.EventID == "slow" {
				time.Sleep(2 * time.Second)
			}
			return nil
		}))
		late := of("a", "delayed")
		late.DeliverAfter = time.Second
		e.write(late)
		e.write(of("a", "first"))
		time.Sleep(500 * time.Millisecond)
		e.write(of("a", "slow"))
		time.Sleep(time.Millisecond)
		e.write(of("a", "due before"))
		time.Sleep(time.Second)
		e.write(of("a", "due behind"))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"first", "slow", "due before", "delayed", "due behind"}, d.of("a"))
	})
}

// A commit makes the poller of the writing node look at once, and so does a delayed
// event that becomes due; the end of a run makes it look for the rest of the key.
func TestNothingOfAKeyWaitsForTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		e := start(t, byKey(outbox.OrderedByKey{RunLength: 3, Poll: outbox.PollOptions{Interval: time.Hour}}), d.listen(nil))
		time.Sleep(time.Second)
		e.write(numbered("a", 20)...)
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, idsOf(numbered("a", 20)), d.of("a"))
		last := of("a", "last")
		last.DeliverAfter = time.Second
		e.write(last)
		time.Sleep(1100 * time.Millisecond)
		require.Len(t, d.of("a"), 21)
	})
}

// An event that was committed late, with an earlier time, comes when it is there.
func TestALateCommitComesAfterWhatWasDeliveredMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		e := start(t, byKey(outbox.OrderedByKey{}), d.listen(nil))
		late := outboxtest.NewScope(e.store.DB())
		_, err := e.Writer().WriteScope(t.Context(), late, []outbox.Envelope{of("a", "first")})
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		e.write(of("a", "second"))
		time.Sleep(time.Second)
		require.NoError(t, late.Commit())
		time.Sleep(time.Second)
		require.Equal(t, []string{"second", "first"}, d.of("a"))
	})
}

// An event without an aggregate id waits for no other one.
func TestEventsWithoutAKeyAreUnordered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		e := start(t, byKey(outbox.OrderedByKey{}), d.listen(func(env outbox.Envelope) error {
			if env.EventID == "a-00000" || env.EventID == "stuck" {
				time.Sleep(time.Minute)
			}
			return nil
		}))
		e.write(slices.Concat([]outbox.Envelope{said("stuck")}, numbered("a", 2), []outbox.Envelope{said("free")})...)
		time.Sleep(time.Second)
		require.ElementsMatch(t, []string{"stuck", "free"}, d.of(""))
		require.Equal(t, []string{"a-00000"}, d.of("a"))
		time.Sleep(2 * time.Minute)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 4}, statuses(e.store))
	})
}

// A key with many events takes few claims: one for each run.
func TestAHotKeyIsReadInRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &mortal{Store: outboxtest.NewStore()}
		var d diary
		e := build(t, outbox.Config{Store: store, Mode: outbox.OrderedByKey{RunLength: 500}}, d.listen(nil))
		e.write(numbered("hot", 10_000)...)
		e.write(numbered("cold", 3)...)
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(4 * time.Second) // less than an interval
		require.Equal(t, idsOf(numbered("hot", 10_000)), d.of("hot"))
		require.Equal(t, idsOf(numbered("cold", 3)), d.of("cold"))
		require.Less(t, store.claims.Load(), int64(50))
	})
}

func TestOrderedByKeyRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	for want, cfg := range map[string]outbox.Config{
		"Config.Mode.Dispatch.HotCapacity is 5, but OrderedByKey has no hot queue": {Store: store, Mode: outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{HotCapacity: 5}}},
		"Config.Mode.RunLength is 501; the limit is 500":                           {Store: store, Mode: outbox.OrderedByKey{RunLength: 501}},
		"Config.Mode.RunLength is -1":                                              {Store: store, Mode: outbox.OrderedByKey{RunLength: -1}},
		"Config.Mode.OnDead is not one of":                                         {Store: store, Mode: outbox.OrderedByKey{OnDead: 7}},
		"Config.Mode.Claim.LeaseDuration is 5ns":                                   {Store: store, Mode: outbox.OrderedByKey{Claim: outbox.ClaimOptions{LeaseDuration: 5}}},
		"Config.Store is a outbox_test.plainStore, which has no ReadRuns":          {Store: plainStore{store}, Mode: outbox.OrderedByKey{}},
	} {
		cfg.DB = store.DB()
		_, err := outbox.New(cfg)
		require.ErrorContains(t, err, want)
		var field *outbox.FieldError
		require.ErrorAs(t, err, &field)
	}
}

// plainStore is a store that reads neither runs nor tenants.
type plainStore struct{ outbox.Store }

func TestAnEventWithoutAKeyIsRefusedWhereOneIsRequired(t *testing.T) {
	t.Parallel()
	e := build(t, byKey(outbox.OrderedByKey{RequireKey: true}), nil)
	scope := outboxtest.NewScope(e.store.DB())
	_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{of("a", "with"), said("without")})
	require.ErrorContains(t, err, "event 1 of 2: outbox: Envelope.AggregateID is empty, but OrderedByKey.RequireKey is set")
	require.ErrorIs(t, err, outbox.ErrInvalidEnvelope)
	e.write(of("a", "with"))
	require.Len(t, e.store.Rows(), 1)
}
