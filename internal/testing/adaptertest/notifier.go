package adaptertest

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// soon is far below the poll interval of the tests of notifiers, which is an hour.
const soon = 20 * time.Second

var (
	hourly = outbox.PollOptions{Interval: time.Hour}
	many   = outbox.MultiNode{Poll: hourly}
	single = outbox.SingleNode{Poll: hourly}
)

// RunNotifier tests that notifiers wake other processes, each of which is an outbox with a separate
// pool.
func RunNotifier(t *testing.T, target testdb.Target, notifier func(t testing.TB, db *testdb.DB) outbox.Notifier) {
	runNotifier(t, target, notifier, map[string]func(t *testing.T, n *nodes){
		"a process that only writes": func(_ *testing.T, n *nodes) { n.delivers(many, n.start(outbox.WriterOnly{}, nil).write) },
		"a standby":                  func(_ *testing.T, n *nodes) { testStandby(n) },
		"an unmanaged write":         func(_ *testing.T, n *nodes) { n.delivers(many, n.start(outbox.WriterOnly{}, nil).writeUnmanaged) },
		"a full hot queue":           testFullQueue,
		"processes that never start": func(_ *testing.T, n *nodes) { testNeverStarted(n) },
	})
}

// RunPostgresNotifier is [RunNotifier] for notifiers that LISTEN.
func RunPostgresNotifier(t *testing.T, target testdb.Target, notifier func(t testing.TB, db *testdb.DB) outbox.Notifier) {
	RunNotifier(t, target, notifier)
	runNotifier(t, target, notifier, map[string]func(t *testing.T, n *nodes){
		"a connection that was terminated": testTerminated,
		"the connections after closing":    testConnections,
		"a table of another schema":        testOtherSchema,
		"a table that was swapped":         testSwapped,
		"names that need quotes":           testQuotedNames,
	})
}

func runNotifier(t *testing.T, target testdb.Target, notifier func(t testing.TB, db *testdb.DB) outbox.Notifier, tests map[string]func(t *testing.T, n *nodes)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newNodes(t, testdb.Open(t, target), notifier))
		})
	}
}

// nodes are processes on one table.
type nodes struct {
	t        testing.TB
	db       *testdb.DB
	store    *sqlstore.Store
	notifier func(t testing.TB, db *testdb.DB) outbox.Notifier
	log      *slog.Logger
	hear     *atomic.Int32 // how many processes listen
}

func newNodes(t testing.TB, db *testdb.DB, notifier func(t testing.TB, db *testdb.DB) outbox.Notifier) *nodes {
	store, err := sqlstore.Detect(t.Context(), db)
	if err == nil {
		err = store.CreateSchema(t.Context(), db.DB)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &nodes{t, db, store, notifier, slog.New(slog.DiscardHandler), new(atomic.Int32)}
}

// counted counts the processes that listen.
type counted struct {
	outbox.Notifier
	hear *atomic.Int32
}

func (c counted) Listen(ctx context.Context, db outbox.DB, table string, wake func()) error {
	began := sync.OnceFunc(func() { c.hear.Add(1) })
	err := c.Notifier.Listen(ctx, db, table, func() {
		wake()
		began()
	})
	began()
	c.hear.Add(-1)
	return err
}

type node struct {
	*nodes
	*outbox.Outbox
	db *testdb.DB
}

// start starts a process with a listener for the events of [Event].
func (n *nodes) start(mode outbox.Mode, fn func(env outbox.Envelope)) *node {
	n.t.Helper()
	started := n.make(mode, fn)
	if err := started.Start(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	return started
}

// make makes a process that is not started.
func (n *nodes) make(mode outbox.Mode, fn func(env outbox.Envelope)) *node {
	n.t.Helper()
	pool := n.db.Reopen(n.t)
	ob, err := outbox.New(outbox.Config{DB: pool.DB, Store: n.store, Mode: mode, Logger: n.log, Notifier: counted{n.notifier(n.t, pool), n.hear}})
	if err == nil {
		err = ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			fn(env)
			return nil
		})))
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = ob.Close(context.Background()) })
	return &node{n, ob, pool}
}

// write commits an event.
func (n *node) write() string {
	n.t.Helper()
	a := Adapter(n.t, n.db.DB, n.Writer())
	var id string
	err := a.RunInTx(n.t.Context(), nil, func(ctx context.Context, tx *sql.Tx) (err error) {
		id, err = a.Write(ctx, tx, Event())
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}

// writeUnmanaged commits an event in a transaction that the outbox does not see end.
func (n *node) writeUnmanaged() string {
	n.t.Helper()
	tx, err := n.db.BeginTx(n.t.Context(), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	ids, err := n.Writer().WriteUnmanaged(n.t.Context(), tx, []outbox.Envelope{Event()})
	if err == nil {
		time.Sleep(50 * time.Millisecond) // longer than until the first look
		err = tx.Commit()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return ids[0]
}

// delivers checks that another process soon delivers written events.
func (n *nodes) delivers(mode outbox.Mode, write func() string) {
	n.t.Helper()
	ids := make(chan string, 100)
	n.start(mode, func(env outbox.Envelope) { ids <- env.EventID })
	n.awaitHear(1)
	await(n.t, ids, write())
	await(n.t, ids, write())
}

func await(t testing.TB, ids <-chan string, want string) {
	t.Helper()
	select {
	case id := <-ids:
		if id != want {
			t.Fatalf("event %s was delivered, want %s", id, want)
		}
	case <-time.After(soon):
		t.Fatal("the event waits for the interval")
	}
}

// awaitHear waits until want processes listen.
func (n *nodes) awaitHear(want int32) {
	n.t.Helper()
	for deadline := time.Now().Add(soon); n.hear.Load() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("%d processes listen, want %d", n.hear.Load(), want)
		}
	}
}

// listening selects the connections that LISTEN for the table, on PostgreSQL.
const listening = " FROM pg_stat_activity WHERE trim(both '\"' from substr(query, 8)) = 'outbox_' || current_schema() || '.outbox_event' AND query LIKE 'LISTEN %'"

// awaitListeners waits until want connections listen.
func (n *nodes) awaitListeners(want int) {
	n.t.Helper()
	for deadline := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) {
		var got int
		if err := n.db.QueryRowContext(n.t.Context(), "SELECT count(*)"+listening).Scan(&got); err != nil {
			n.t.Fatal(err)
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%d processes listen, want %d", got, want)
		}
	}
}

func testStandby(n *nodes) {
	ids := make(chan string, 100)
	n.start(single, func(env outbox.Envelope) { ids <- env.EventID })
	standby := n.start(single, func(outbox.Envelope) { n.t.Error("the standby delivers") })
	n.awaitHear(2)
	await(n.t, ids, standby.write())
	await(n.t, ids, standby.writeUnmanaged())
}

// testNeverStarted: processes of each mode write and end. The outbox that sees the commit notifies
// in it, and the other outbox as it closes.
func testNeverStarted(n *nodes) {
	ids := make(chan string, 100)
	n.start(many, func(env outbox.Envelope) { ids <- env.EventID })
	n.awaitHear(1)
	for _, mode := range []outbox.Mode{outbox.WriterOnly{}, many, single, outbox.OrderedByKey{}, outbox.Ordered{}} {
		await(n.t, ids, n.make(mode, nil).write())
		unseen := n.make(mode, nil)
		id := unseen.writeUnmanaged()
		if err := unseen.Close(n.t.Context()); err != nil {
			n.t.Fatal(err)
		}
		await(n.t, ids, id)
	}
}

func testFullQueue(t *testing.T, n *nodes) {
	leave := make(chan struct{})
	defer close(leave)
	full := n.start(outbox.MultiNode{Dispatch: outbox.DispatchOptions{Workers: 1, HotCapacity: 1, ColdCapacity: 1}, Poll: hourly}, func(outbox.Envelope) { <-leave })
	ids := make(chan string, 100)
	n.start(many, func(env outbox.Envelope) { ids <- env.EventID })
	n.awaitHear(2)
	for range 10 {
		full.write()
	}
	for range 7 { // a worker, a place in each queue
		select {
		case <-ids:
		case <-time.After(soon):
			t.Fatal("an event waits for the interval")
		}
	}
}

func testTerminated(t *testing.T, n *nodes) {
	ids := make(chan string, 100)
	n.start(many, func(env outbox.Envelope) { ids <- env.EventID })
	writer := n.start(outbox.WriterOnly{}, nil)
	for range 3 {
		n.awaitListeners(1)
		Exec(t, n.db.DB, "SELECT pg_terminate_backend(pid)"+listening)
		await(t, ids, writer.write())
	}
}

func testConnections(t *testing.T, n *nodes) {
	listener := n.start(many, func(outbox.Envelope) {})
	n.start(outbox.WriterOnly{}, nil)
	n.awaitListeners(1)
	if err := listener.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.awaitListeners(0)
}

// qualified is the name of the table as an outbox finds it.
func (n *nodes) qualified() string {
	n.t.Helper()
	var schema string
	if err := n.db.QueryRowContext(n.t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
		n.t.Fatal(err)
	}
	return schema + ".outbox_event"
}

// testSwapped: another table takes the name, as when a table is made again without bloat, between
// the starts of two processes and while both run.
func testSwapped(t *testing.T, n *nodes) {
	swap := func() {
		for _, statement := range []string{
			"CREATE TABLE next_event (LIKE outbox_event INCLUDING ALL)",
			"ALTER TABLE outbox_event RENAME TO last_event", "ALTER TABLE next_event RENAME TO outbox_event", "DROP TABLE last_event",
		} {
			Exec(t, n.db.DB, statement)
		}
	}
	ids := make(chan string, 100)
	n.start(many, func(env outbox.Envelope) { ids <- env.EventID })
	writer := n.start(outbox.WriterOnly{}, nil)
	n.awaitListeners(1)
	swap()
	await(t, ids, writer.write())
	await(t, ids, n.start(outbox.WriterOnly{}, nil).write())
}

func testOtherSchema(t *testing.T, n *nodes) {
	notifier, heard := n.notifier(t, n.db), make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- notifier.Listen(ctx, n.db, n.qualified(), func() { heard <- struct{}{} })
	}()
	<-heard
	other := newNodes(t, testdb.Open(t, testdb.Main()[0]), n.notifier)
	if err := notifier.Notify(t.Context(), other.db, other.qualified()); err != nil {
		t.Fatal(err)
	}
	if err := notifier.Notify(t.Context(), n.db, n.qualified()); err != nil {
		t.Fatal(err)
	}
	<-heard
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("Listen returned no error")
	}
	if len(heard) > 0 {
		t.Fatal("a notification for a table of the same name arrived")
	}
}

func testQuotedNames(t *testing.T, n *nodes) {
	notifier := n.notifier(t, n.db)
	for _, table := range []string{`Tenant "A" of 1.outbox_event`, strings.Repeat("läng", 15) + ".outbox_event"} {
		ctx, cancel := context.WithCancel(t.Context())
		heard, ended := make(chan struct{}, 100), make(chan error, 1)
		go func() { ended <- notifier.Listen(ctx, n.db, table, func() { heard <- struct{}{} }) }()
		for range 2 { // once for listening, once for the notification
			select {
			case <-heard:
			case err := <-ended:
				t.Fatalf("table %s: %v", table, err)
			}
			if err := notifier.Notify(t.Context(), n.db, table); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		t.Log("listening ended:", <-ended)
	}
}
