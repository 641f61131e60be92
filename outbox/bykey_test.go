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
func (d *diary) listen(fn func(env outbox.Envelope) (outbox.Result, error)) func(context.Context, outbox.Envelope) (outbox.Result, error) {
	return func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
		d.begin(env)
		defer d.end(env)
		if fn == nil {
			return outbox.Done(), nil
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
		e := start(t, byKey(outbox.OrderedByKey{RunLength: 7}), d.listen(func(outbox.Envelope) (outbox.Result, error) {
			time.Sleep(time.Millisecond)
			return outbox.Done(), nil
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
	for name, hold := range map[string]func() (outbox.Result, error){
		"a retry": func() (outbox.Result, error) {
			return outbox.Done(), outbox.RetryAfterError(time.Minute, errors.New("boom"))
		},
		"a retry after": func() (outbox.Result, error) { return outbox.RetryAfter(time.Minute), nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var d diary
				first := true
				e := start(t, byKey(outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 1}}), d.listen(func(env outbox.Envelope) (outbox.Result, error) {
					if env.EventID == "a-00001" && first {
						first = false
						return hold()
					}
					return outbox.Done(), nil
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
