package systemtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// shop places orders, each a row of its own table and an event with the same id in one
// transaction, and records what it was told about each and what was delivered.
type shop struct {
	mu         sync.Mutex
	last       int
	ends       map[string]end
	errs       map[string]error // of the orders that were not acknowledged
	deliveries map[string][]delivery
	leaseLost  atomic.Int64
	// inHand holds up the delivery of an event until the channel is closed.
	inHand map[string]chan struct{}
	// gentle makes each client of the business pause between two orders.
	gentle atomic.Bool
}

// end is what the one who placed an order was told.
type end string

const (
	acknowledged end = "acknowledged"
	rolledBack   end = "rolled back"
	unknown      end = "unknown"
)

// delivery is a call of the listener.
type delivery struct {
	node string
	at   time.Time
}

func newShop() *shop {
	return &shop{ends: map[string]end{}, errs: map[string]error{}, deliveries: map[string][]delivery{}, inHand: map[string]chan struct{}{}}
}

// ordersDDL is the table of orders, on every database.
const ordersDDL = "CREATE TABLE orders (id VARCHAR(36) NOT NULL PRIMARY KEY)"

// errChangedMind is the error of a transaction that is to be rolled back.
var errChangedMind = errors.New("the customer changed his mind")

// node is a process of the shop: it places orders and delivers events.
type node struct {
	name string
	*outbox.Outbox
	// place inserts the order and writes the event in one transaction, in which then
	// runs last.
	place func(ctx context.Context, env outbox.Envelope, then func() error) error
}

// leaseDuration is so long that no lease expires because the machine is busy. To let
// leases expire a test calls expire.
const leaseDuration = time.Minute

// config is a node's, without its database.
func (s *shop) config(t testing.TB, name string) outbox.Config {
	return outbox.Config{
		Mode: outbox.MultiNode{
			Poll:  outbox.PollOptions{Interval: 100 * time.Millisecond},
			Claim: outbox.ClaimOptions{Owner: name, LeaseDuration: leaseDuration},
		},
		Logger:      testLog(t).With("node", name),
		RetryPolicy: outbox.ExponentialBackoff(50*time.Millisecond, time.Second),
		Metrics:     &counted{shop: s},
	}
}

// counted counts the outcomes that were refused.
type counted struct {
	outbox.NopMetrics
	shop *shop
}

func (c *counted) LeaseLost(n int) { c.shop.leaseLost.Add(int64(n)) }

// listener records the deliveries of a node. Every 50th order is one that it buries.
func (s *shop) listener(name string) outbox.Binding {
	return outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		s.mu.Lock()
		s.deliveries[env.EventID] = append(s.deliveries[env.EventID], delivery{name, time.Now()})
		leave := s.inHand[env.EventID]
		s.mu.Unlock()
		if leave != nil {
			select {
			case <-leave:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if dies(env.EventID) {
			return outbox.Dead(errors.New("nobody wants it"))
		}
		return nil
	}))
}

func dies(id string) bool { return id[len(id)-2:] == "00" || id[len(id)-2:] == "50" }

// order places an order of the given id and records its end.
func (s *shop) order(ctx context.Context, n *node, id string, then func() error) end {
	env := outbox.Envelope{EventID: id, EventType: "OrderPlaced", AggregateType: "Order", AggregateID: id, Payload: outbox.JSON(id)}
	err := n.place(ctx, env, then)
	got := rolledBack
	switch {
	case err == nil:
		got = acknowledged
	case isUnknown(err):
		got = unknown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends[id] = got
	if err != nil {
		s.errs[id] = err
	}
	return got
}

// place places so many orders at a node and returns their ids.
func (s *shop) place(ctx context.Context, n *node, count int) (ids []string) {
	for range count {
		id := s.next()
		s.order(ctx, n, id, nil)
		ids = append(ids, id)
	}
	return ids
}

func (s *shop) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return fmt.Sprintf("order-%06d", s.last)
}

// gentlePause is how long a client waits after an order that failed, or in gentle times.
const gentlePause = 50 * time.Millisecond

// business places orders at each node, by several clients, until it is stopped. One
// transaction in seven is rolled back.
func (s *shop) business(ctx context.Context, clients int, nodes ...*node) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, n := range nodes {
		for range clients {
			all.Go(func() {
				pace := time.NewTicker(3 * time.Millisecond) // refused connections fail fast
				defer pace.Stop()
				for i := 0; ctx.Err() == nil; i++ {
					var then func() error
					if i%7 == 6 {
						then = func() error { return errChangedMind }
					}
					// The context must not end a transaction: that is another fault.
					got := s.order(context.WithoutCancel(ctx), n, s.next(), then)
					if got == rolledBack && then == nil || s.gentle.Load() {
						time.Sleep(gentlePause)
					}
					<-pace.C
				}
			})
		}
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// goesOn waits until so many more orders are acknowledged.
func (s *shop) goesOn(t testing.TB, orders int) {
	t.Helper()
	before := s.acknowledgedCount()
	require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > before+orders }), "business does not go on")
}

// acknowledgedCount is how many orders were acknowledged so far.
func (s *shop) acknowledgedCount() int { return s.count(acknowledged) }

func (s *shop) count(of end) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, got := range s.ends {
		if got == of {
			n++
		}
	}
	return n
}

// delivered is how often an event was delivered.
func (s *shop) delivered(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.deliveries[id])
}

// hold makes the listener of the event wait until leave is called.
func (s *shop) hold(id string) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := make(chan struct{})
	s.inHand[id] = wait
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inHand, id)
		close(wait)
	}
}

// record is a copy of what the shop knows.
func (s *shop) record() (ends map[string]end, deliveries map[string][]delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ends), maps.Clone(s.deliveries)
}

func isUnknown(err error) bool { return errors.Is(err, outbox.ErrOutcomeUnknown) }
