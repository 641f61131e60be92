package systemtest

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pair is a server and its replica, and the address through which clients reach the one
// that serves.
type pair struct {
	primary, standby interface {
		kill()
		address() string
	}
	clients *relay
	log     *relay  // the standby reads the primary's log through it
	old     *sql.DB // of the test's own, on the primary
	// survivor is another one on the standby.
	survivor *sql.DB
	// catchUp waits until the standby has all that the primary has.
	catchUp func(t testing.TB)
	// promote makes the standby the server, for the test alone.
	promote func(t testing.TB)
	// nodesOn creates the tables, and starts two nodes that reach the server through the
	// address of the clients.
	nodesOn func(t testing.TB, s *shop) (first, second *node)
}

// fail kills the primary, and leads the clients to the promoted standby.
func (p *pair) fail(t testing.TB, longer bool) fault {
	t.Helper()
	f := fault{began: time.Now()}
	p.primary.kill()
	p.clients.lead()
	p.promote(t)
	f.stored, f.frozen = storedNow(t, p.survivor), time.Now()
	if longer { // than any lease lasts: what the nodes have in hand may be taken over
		expire(t, p.survivor, "%")
	}
	p.clients.lead(p.standby.address())
	f.over = time.Now()
	return f
}

// With a synchronous standby nothing that was acknowledged is lost.
func TestASynchronousStandbyTakesOver(t *testing.T) {
	wholeSystem(t)
	for name, longer := range map[string]bool{"at once": false, "when the leases have expired": true} {
		t.Run(name, func(t *testing.T) { testNothingIsLost(t, postgresPair(t, true), longer) })
	}
}

func testNothingIsLost(t *testing.T, p *pair, longer bool) *shop {
	t.Helper()
	s := newShop()
	first, second := p.nodesOn(t, s)
	held := s.next()
	leave := s.hold(held)
	require.Equal(t, acknowledged, s.order(t.Context(), first, held, nil))

	stop := s.business(t.Context(), 4, first, second)
	require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > 500 && s.delivered(held) > 0 }))
	f := p.fail(t, longer)
	s.goesOn(t, 500)
	stop()
	leave()
	settle(t, p.survivor)
	s.check(t, p.survivor, nil, nil, f)
	return s
}

// With an asynchronous standby, what was not replicated when the primary died is lost,
// also if it was acknowledged: an order and its event together. Consumers may have had
// such an event, which then is of an order that does not exist. An event whose outcome
// was lost is delivered once more, also if it was stored long before the fault.
func TestAnAsynchronousStandbyTakesOver(t *testing.T) {
	wholeSystem(t)
	testTheLatestIsLost(t, postgresPair(t, false))
}

func testTheLatestIsLost(t *testing.T, p *pair) {
	t.Helper()
	s := newShop()
	first, second := p.nodesOn(t, s)
	stop := s.business(t.Context(), 4, first, second)
	require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > 300 }))
	stop()
	settle(t, p.old)
	repeated := s.next()
	leave := s.hold(repeated)
	require.Equal(t, acknowledged, s.order(t.Context(), first, repeated, nil))
	require.True(t, eventually(patience, func() bool { return s.delivered(repeated) == 1 }))
	p.catchUp(t)

	p.log.lead() // from now on nothing is replicated
	leave()
	lost := slices.Concat(s.place(t.Context(), first, 20), s.place(t.Context(), second, 20))
	settle(t, p.old)
	f := p.fail(t, true)

	orders := setOf(column(t, p.survivor, "SELECT id FROM orders"))
	for _, id := range lost {
		ends, _ := s.record()
		require.Equal(t, acknowledged, ends[id])
		require.Equal(t, 1, s.delivered(id), "the consumer had it")
		require.False(t, orders[id], "and it is gone")
	}
	stop = s.business(t.Context(), 2, first, second)
	s.goesOn(t, 100)
	stop()
	settle(t, p.survivor)
	require.Equal(t, 2, s.delivered(repeated), "its outcome was lost")
	s.check(t, p.survivor, lost, []string{repeated}, f)
}
