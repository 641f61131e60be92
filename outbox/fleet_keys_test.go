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

// perKey counts what several processes do for each key.
type perKey struct {
	mu      sync.Mutex
	running map[string]int
	most    map[string]int
	at      map[string][]time.Time
	by      map[int]int // the deliveries of each process
}

func newPerKey() *perKey {
	return &perKey{running: map[string]int{}, most: map[string]int{}, at: map[string][]time.Time{}, by: map[int]int{}}
}

func (p *perKey) listener(process int, takes time.Duration) func(context.Context, outbox.Envelope) error {
	return func(_ context.Context, env outbox.Envelope) error {
		key := env.AggregateID
		p.mu.Lock()
		p.by[process]++
		p.running[key]++
		p.most[key] = max(p.most[key], p.running[key])
		p.at[key] = append(p.at[key], time.Now())
		p.mu.Unlock()
		time.Sleep(takes)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running[key]--
		return nil
	}
}

// perKeyFleet are processes on a table, with rules for their only kind of event, whose listeners take a time.
func perKeyFleet(t *testing.T, processes int, rules outbox.Rules, takes time.Duration) (p *perKey, all []*engine) {
	t.Helper()
	p = newPerKey()
	store := outboxtest.NewStore()
	for i := range processes {
		all = append(all, start(t, outbox.Config{Store: store, Mode: fleetMode(rules)}, p.listener(i, takes)))
	}
	return p, all
}

// total is how many deliveries there were.
func (p *perKey) total() (n int) {
	for _, at := range p.at {
		n += len(at)
	}
	return n
}

// someOf are events of a key.
func someOf(n int, key, name string) (envs []outbox.Envelope) {
	for i := range n {
		env := said(fmt.Sprintf("%s-%s-%03d", key, name, i))
		env.AggregateID = key
		envs = append(envs, env)
	}
	return envs
}

func TestTheConcurrencyOfAKeyInAllProcesses(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, all := perKeyFleet(t, 3, outbox.Rules{KeyConcurrency: limit}, 50*time.Millisecond)
				for i := range 60 {
					all[i%3].write(someOf(3, "a", fmt.Sprint(i))...)
					all[i%3].write(someOf(3, fmt.Sprint("b", i%7), fmt.Sprint(i))...)
					pass(100 * time.Millisecond)
				}
				pass(5 * time.Minute)
				for _, e := range all {
					require.NoError(t, e.Close(context.Background()))
				}
				require.Equal(t, 360, p.total())
				for key, most := range p.most {
					require.LessOrEqual(t, most, limit, key)
				}
				require.Equal(t, limit, p.most["a"], "the bound is used")
				require.Len(t, p.by, 3, "each process delivers some")
			})
		})
	}
}

func TestTheRateOfAKeyInAllProcesses(t *testing.T) {
	t.Parallel()
	const rate, processes = 5.0, 3
	synctest.Test(t, func(t *testing.T) {
		p, all := perKeyFleet(t, processes, outbox.Rules{KeyRate: rate}, time.Millisecond)
		for i := range 60 {
			all[i%3].write(someOf(5, "a", fmt.Sprint(i))...)
			all[i%3].write(someOf(1, fmt.Sprint("b", i%7), fmt.Sprint(i))...)
			pass(time.Second)
		}
		pass(5 * time.Minute)
		for _, e := range all {
			require.NoError(t, e.Close(context.Background()))
		}
		require.Equal(t, 360, p.total())
		require.Len(t, p.by, processes, "each process delivers some")
		for key, at := range p.at {
			worst := 0.
			for i := range at {
				for j := i; j < len(at); j++ {
					worst = max(worst, float64(j-i+1)-at[j].Sub(at[i]).Seconds()*rate)
				}
			}
			// In each process one delivery may begin at once, and one may come late to its slot.
			require.LessOrEqual(t, worst, 2.*processes, key)
		}
	})
}

// Each process gets events that another process deferred for its part of the rate. The processes together
// come near the rate, however many there are.
func TestTheRateOfAKeyIsUsedByManyProcesses(t *testing.T) {
	t.Parallel()
	const rate = 10.0
	for _, processes := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, all := perKeyFleet(t, processes, outbox.Rules{KeyRate: rate}, time.Millisecond)
				for i := range 60 {
					all[i%processes].write(someOf(10, "a", fmt.Sprint(i))...)
				}
				pass(50 * time.Second)
				p.mu.Lock()
				defer p.mu.Unlock()
				require.Greater(t, len(p.at["a"]), 300)
				require.LessOrEqual(t, len(p.at["a"]), int(50*rate)+2*processes, "as in TestTheRateOfAKeyInAllProcesses")
			})
		})
	}
}
