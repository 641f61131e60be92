package systemtest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// nodesOn starts a node on database/sql and one on pgx, which reach the server through
// the pair's address.
func (p *pair) nodesOn(t testing.TB, s *shop) (onSQL, onPgx *node) {
	t.Helper()
	execute(t, p.old, ordersDDL)
	require.NoError(t, sqlstore.Postgres().CreateSchema(t.Context(), p.old))
	dsn := postgresDSN(p.clients.addr)
	return s.sqlNode(t, "database-sql", "pgx", dsn, sqlstore.Postgres()), s.pgxNode(t, "pgx", dsn)
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
		t.Run(name, func(t *testing.T) { testSynchronousStandby(t, longer) })
	}
}

func testSynchronousStandby(t *testing.T, longer bool) {
	t.Helper()
	p, s := startPair(t, true), newShop()
	onSQL, onPgx := p.nodesOn(t, s)
	held := s.next()
	leave := s.hold(held)
	require.Equal(t, acknowledged, s.order(t.Context(), onSQL, held, nil))

	stop := s.business(t.Context(), 4, onSQL, onPgx)
	require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > 500 && s.delivered(held) > 0 }))
	f := p.fail(t, longer)
	before := s.acknowledgedCount()
	require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > before+500 }), "business does not go on")
	stop()
	leave()
	settle(t, p.survivor)
	s.check(t, p.survivor, f, nil, nil)
}

// With an asynchronous standby, what was not replicated when the primary died is lost,
// also if it was acknowledged: an order and its event together. Consumers may have had
// such an event, which then is of an order that does not exist. An event whose outcome
// was lost is delivered once more, also if it was stored long before the fault.
func TestAnAsynchronousStandbyTakesOver(t *testing.T) {
	wholeSystem(t)
	p, s := startPair(t, false), newShop()
	onSQL, onPgx := p.nodesOn(t, s)
	stop := s.business(t.Context(), 4, onSQL, onPgx)
	require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > 300 }))
	stop()
	settle(t, p.old)
	repeated := s.next()
	leave := s.hold(repeated)
	require.Equal(t, acknowledged, s.order(t.Context(), onSQL, repeated, nil))
	require.True(t, eventually(patience, func() bool { return s.delivered(repeated) == 1 }))
	var written string
	require.NoError(t, p.old.QueryRowContext(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&written))
	awaitTrue(t, p.survivor, "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", written)

	p.wal.lead() // from now on nothing is replicated
	leave()
	lost := slices.Concat(s.place(t.Context(), onSQL, 20), s.place(t.Context(), onPgx, 20))
	settle(t, p.old)
	f := p.fail(t, true)

	orders := setOf(column(t, p.survivor, "SELECT id FROM orders"))
	for _, id := range lost {
		ends, _ := s.record()
		require.Equal(t, acknowledged, ends[id])
		require.Equal(t, 1, s.delivered(id), "the consumer had it")
		require.False(t, orders[id], "and it is gone")
	}
	stop = s.business(t.Context(), 2, onSQL, onPgx)
	before := s.acknowledgedCount()
	require.True(t, eventually(patience, func() bool { return s.acknowledgedCount() > before+100 }), "business does not go on")
	stop()
	settle(t, p.survivor)
	require.Equal(t, 2, s.delivered(repeated), "its outcome was lost")
	s.check(t, p.survivor, f, lost, []string{repeated})
}
