package mutation_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/proof/checker"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

// scenario is a fault run that the outbox passes.
type scenario struct {
	name string
	spec faultrun.Spec
	// processes is how many there are at the beginning, and harm what is done to them,
	// or nil.
	processes int
	harm      func(l *lab)
}

const (
	interval = 20 * time.Millisecond
	lease    = 3 * time.Second
)

// spec is what the scenarios have in common.
func spec(mode string, change func(s *faultrun.Spec)) faultrun.Spec {
	s := faultrun.Spec{
		Mode: mode, Seed: 1, Interval: interval, MaxAttempts: 4, Writers: []string{"sqltx"}, Transactions: 60,
		RollBack: 20, Fail: 40, Slow: 4 * time.Millisecond,
	}
	if mode == "multi" || mode == "by-key" {
		s.Lease = lease
	}
	if change != nil {
		change(&s)
	}
	return s
}

var (
	alone    = scenario{"alone", spec("single", func(s *faultrun.Spec) { s.Slow = 60 * time.Millisecond }), 1, nil}
	deleting = scenario{"OnDone: Delete", spec("single", func(s *faultrun.Spec) { s.DeleteDone, s.Fail = true, 60 }), 1, nil}
	replayed = scenario{"dead letters are replayed", spec("single", func(s *faultrun.Spec) { s.Fail, s.Replay = 60, true }), 1, nil}
	standby  = scenario{"a standby", spec("single", nil), 2, nil}
	two      = scenario{"two processes", spec("multi", func(s *faultrun.Spec) { s.Slow, s.Lease = 100*time.Millisecond, 0 }), 2, nil}
	byKey    = scenario{"two processes, by key", spec("by-key", func(s *faultrun.Spec) { s.MaxAttempts = 50 }), 2, nil}

	polled = scenario{"two processes deliver what a third writes", spec("multi", func(s *faultrun.Spec) {
		s.Slow, s.Lease, s.Writers, s.Fail = 300*time.Millisecond, 0, nil, 0
	}), 2, func(l *lab) {
		delivers := l.spec
		l.spec.Mode, l.spec.Writers, l.spec.Transactions = "writer-only", []string{"sqltx", "sqltx"}, 150
		l.spec.Pace = 10 * time.Millisecond
		l.start("writer")
		l.spec = delivers
	}}
	unique = scenario{"two processes write events with unique keys", spec("multi", func(s *faultrun.Spec) {
		s.Unique, s.Fail = 80, 20
	}), 2, nil}
	takingBack = scenario{"two processes take events back", spec("multi", func(s *faultrun.Spec) {
		s.TakeBack, s.Transactions, s.Pace, s.Slow, s.Lease = 60, 150, 20*time.Millisecond, 200*time.Millisecond, 0
	}), 2, nil}
	takingBackAlone = scenario{"a process takes events back", spec("single", func(s *faultrun.Spec) {
		s.TakeBack, s.Transactions, s.Pace, s.Slow = 60, 250, 20*time.Millisecond, 200*time.Millisecond
	}), 1, nil}
	latest = scenario{"two processes keep the latest states", spec("multi", func(s *faultrun.Spec) {
		s.Latest, s.Transactions, s.Pace, s.Slow, s.Lease = 80, 100, 20*time.Millisecond, 200*time.Millisecond, 0
	}), 2, nil}
	expiring = scenario{"events expire, others have endless attempts", spec("multi", func(s *faultrun.Spec) {
		s.Seldom, s.Expires, s.Endless = 60, 2*time.Second, true
	}), 2, nil}
	deaf = scenario{"two processes, one of them without a listener for some events", spec("multi", func(s *faultrun.Spec) {
		s.Seldom, s.Rare, s.Later = 60, true, 10
	}), 2, nil}
	pausing = scenario{"a listener pauses its kind of event", spec("multi", func(s *faultrun.Spec) {
		s.Seldom, s.PauseFor, s.Down, s.Fail, s.Pace = 60, 3*time.Second, 20, 20, 50*time.Millisecond
	}), 2, nil}
	bounded = scenario{"two processes, a fleet-wide bound of one", spec("multi", func(s *faultrun.Spec) {
		s.Seldom, s.Bounded, s.Slow, s.Lease, s.Fail = 60, 1, 100*time.Millisecond, 0, 20
	}), 2, nil}
	keyBounded = scenario{"two processes, a fleet-wide bound of two for each key", spec("multi", func(s *faultrun.Spec) {
		s.Seldom, s.KeyBounded, s.Keys, s.Slow, s.Lease, s.Fail = 60, 2, 2, 100*time.Millisecond, 0, 20
	}), 2, nil}
	draining    = scenario{"two processes drain", spec("multi", func(s *faultrun.Spec) { s.Drains = 5 }), 2, nil}
	drainingAll = scenario{"two processes drain all that is due", spec("multi", func(s *faultrun.Spec) { s.Drains, s.Slow = 200, 60*time.Millisecond }), 2, nil}

	inTurn = scenario{"two processes, tenants in turn", spec("multi", func(s *faultrun.Spec) {
		s.Slow, s.Lease, s.Tenants = 100*time.Millisecond, 0, true
	}), 2, nil}

	killedInTurn = scenario{"a process is killed, tenants in turn", spec("multi", func(s *faultrun.Spec) { s.Slow, s.Tenants = time.Second, true }), 2, func(l *lab) {
		l.busy()
		l.processes[0].Kill()
	}}
	killed = scenario{"a process is killed", spec("multi", func(s *faultrun.Spec) { s.Slow = time.Second }), 2, func(l *lab) {
		l.busy()
		l.processes[0].Kill()
	}}
	inOrder = scenario{"a process is killed, in order", spec("ordered", func(s *faultrun.Spec) { s.Keys, s.Fail = 1, 20 }), 1, func(l *lab) {
		l.rows(30, "WHERE status = 1")
		l.processes[0].Kill()
		l.start("p1")
	}}
	slow = scenario{"listeners are slower than a lease, and a process is killed", spec("multi", func(s *faultrun.Spec) {
		s.Slow, s.Transactions, s.Fail, s.Workers = 3*lease, 10, 0, 40
	}), 3, func(l *lab) {
		l.busy()
		l.processes[0].Kill()
	}}
	stopped = scenario{"a process is stopped for longer than its lease", spec("multi", func(s *faultrun.Spec) {
		s.Slow, s.Fail, s.MaxAttempts, s.Workers, s.Transactions = 1500*time.Millisecond, 70, 12, 60, 15
	}), 4, func(l *lab) {
		l.busy()
		l.processes[0].Stop(l.ctx, 3*lease)
	}}
	requests = scenario{"two processes serve requests with keys", spec("multi", func(s *faultrun.Spec) {
		s.Writers, s.Requests, s.Fail = nil, true, 0
	}), 2, nil}
	unanswered = scenario{"two processes serve requests with keys, and COMMITs get no answer", requests.spec, 2, func(l *lab) {
		l.harmRequests(faultrun.NoCommit, 200*time.Millisecond)
	}}
	unsent = scenario{"two processes serve requests with keys, and COMMITs get lost", requests.spec, 2, func(l *lab) {
		l.harmRequests(faultrun.LostCommit, 200*time.Millisecond)
	}}
	closing = scenario{"a process closes under load", spec("multi", func(s *faultrun.Spec) {
		s.Mark, s.Transactions, s.Fail = 10*time.Second, 150, 0
	}), 2, func(l *lab) {
		l.busy()
		require.NoError(l.t, l.processes[0].Terminate(l.ctx))
	}}
)

// lab runs a scenario once.
type lab struct {
	scenario
	t         *testing.T
	ctx       context.Context
	db        *testdb.DB
	proxy     *faultrun.Proxy // between the processes and the database, if they serve requests
	run       *faultrun.Run
	processes []*faultrun.Process
	clients   *faultrun.Clients // nil unless the processes serve requests
	sent      chan struct{}     // closed when the clients have sent their requests
}

// postgres is the database: all modes and more than one process run on it.
var postgres = testdb.Main()[0]

// runs plays the scenario with a program. patience is how long the events have to come
// to an end.
func (s scenario) runs(t *testing.T, program string, patience time.Duration) checker.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	l := &lab{scenario: s, t: t, ctx: ctx, db: testdb.Open(t, postgres)}
	l.spec.Driver, l.spec.DSN = "pgx", l.db.DSN
	require.NoError(t, faultrun.CreateTables(ctx, l.db.DB, l.spec))
	var err error
	l.run, err = faultrun.NewRun(program, t.TempDir())
	require.NoError(t, err)
	defer l.run.End()
	if l.spec.Requests {
		l.send()
	}
	for i := range s.processes {
		l.start(fmt.Sprintf("p%d", i))
	}
	if s.harm != nil {
		s.harm(l)
	}
	return l.end(patience)
}

// send has clients send requests, and puts a proxy before the database.
func (l *lab) send() {
	dsn, err := url.Parse(l.spec.DSN)
	require.NoError(l.t, err)
	l.proxy, err = faultrun.NewProxy(dsn.Host)
	require.NoError(l.t, err)
	l.t.Cleanup(l.proxy.Close)
	dsn.Host = l.proxy.Addr
	l.spec.DSN = dsn.String()
	l.clients, err = l.run.NewClients()
	require.NoError(l.t, err)
	l.sent = make(chan struct{})
	go func() {
		defer close(l.sent)
		l.clients.Send(l.ctx, 4, 40, 20*time.Millisecond)
	}()
}

// harmRequests does harm to the connections to the database again and again, until the clients have
// sent their requests.
func (l *lab) harmRequests(harm faultrun.Harm, d time.Duration) {
	sent := func() bool {
		select {
		case <-l.sent:
			return true
		default:
			return false
		}
	}
	for began := time.Now(); !sent(); {
		l.proxy.Do(l.ctx, harm, d)
		l.run.Fault(checker.Network, "", began, time.Now())
		answered := l.clients.Answered()
		require.Eventually(l.t, func() bool { return sent() || l.clients.Answered() > answered+5 }, time.Minute, time.Millisecond)
	}
}

func (l *lab) start(process string) {
	l.spec.Process = process
	l.spec.Deaf = l.spec.Rare && len(l.processes) == 0
	p, err := l.run.Start(l.spec)
	require.NoError(l.t, err)
	l.processes = append(l.processes, p)
}

// busy waits until there is something in hand.
func (l *lab) busy() {
	require.NoError(l.t, l.processes[0].Ready(l.ctx))
	l.rows(30, "")
}

// rows waits until the table has more rows than that.
func (l *lab) rows(n int, where string) {
	require.Eventually(l.t, func() bool {
		var there int
		return l.db.QueryRowContext(l.ctx, "SELECT COUNT(*) FROM outbox_event "+where).Scan(&there) == nil && there > n
	}, time.Minute, 5*time.Millisecond)
}

// end waits until all is written and delivered, closes the processes and judges.
func (l *lab) end(patience time.Duration) checker.Report {
	for _, p := range l.processes {
		_ = p.Written(l.ctx) // one that was killed never has
	}
	if l.clients != nil {
		<-l.sent
	}
	settle, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	if l.clients != nil {
		l.clients.Finish(settle)
	}
	_ = faultrun.Delivered(settle, l.db.DB)
	for _, p := range l.processes {
		_ = p.Terminate(l.ctx)
	}
	h, err := l.run.History(l.ctx, l.db.DB, l.spec.Promise())
	require.NoError(l.t, err)
	return checker.Check(h)
}
