package relaytest

import (
	"cmp"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
)

// Topic is the topic to which [Prove] publishes, unless the broker has another topic.
const Topic = "proof.counted"

// Broker is a broker that a test can harm.
type Broker struct {
	Addr string
	// Topic is the topic of the events. Defaults to [Topic].
	Topic string
	// Connect makes a publisher whose connections go to addr.
	Connect func(t testing.TB, addr string) relay.Publisher
	// Server is the broker's process.
	Server Server
	// Away is how long the broker is away when [Prove] kills it.
	Away time.Duration
	// Stored are the messages that a consumer of the topic gets from the beginning.
	Stored func(t testing.TB) []Stored
	// Deduplicates says that the broker drops a message that it already has.
	Deduplicates bool
}

// Server is a broker that a test can kill and start again. Start returns when the broker answers.
type Server interface {
	Kill(t testing.TB)
	Start(t testing.TB)
}

// Stored is a message that a broker has: the id and the payload.
type Stored struct {
	ID   string
	Body []byte
}

// count is the payload: the Nth event of a key.
type count struct {
	Key  string
	N    int
	Text string `json:",omitempty"`
}

var counted = outbox.NewTopic[count]("Counter", "Counted")

// timeout is the timeout of a publisher's call. A frozen node exceeds it.
const timeout = 4 * time.Second

// keys is how many keys the events have.
const keys = 250

// proof is a run of [Prove].
type proof struct {
	t       testing.TB
	broker  Broker
	db      *testdb.DB
	store   *sqlstore.Store
	writer  *outbox.Writer
	proxies []*Proxy
	seen    seen
	log     Log
	written int
	next    map[string]int // by key
	prefix  string         // of the keys
	text    string         // of each event
}

// Prove lets two nodes deliver 5,000 events by key, 100,000 with OUTBOX_TEST_LONG=relay, on
// PostgreSQL: first without faults, then while the broker is killed and the nodes' connections are
// cut and frozen. No event may be lost, a key keeps its order, an event is published twice only
// after a failure, and no attempt is counted.
func Prove(t testing.TB, broker Broker) {
	t.Helper()
	events := 5_000
	if os.Getenv("OUTBOX_TEST_LONG") == "relay" {
		events = 100_000
	}
	p := newProof(t, broker, sqlstore.Postgres(sqlstore.WithKeyIndex()))
	stop := []func(){p.node("one"), p.node("two")}

	began := time.Now()
	p.write(events / 5)
	p.delivered()
	quiet := p.written
	require.Zero(t, p.seen.failures(), "failures without a fault: %v", p.seen.errors)
	require.Len(t, broker.Stored(t), quiet, "an event was published twice without a fault")

	faults := p.harm(events - quiet)
	p.delivered()
	for _, end := range stop {
		end()
	}
	p.check()
	t.Logf("%d events and %d faults in %.1f s; %d events failed to be published at first; %d lines of log; errors: %v",
		p.written, faults, time.Since(began).Seconds(), p.seen.failures(), p.log.count(), p.seen.errors)
}

// newProof makes a proof with a database and a writer.
func newProof(t testing.TB, broker Broker, store *sqlstore.Store) *proof {
	t.Helper()
	p := &proof{
		t: t, broker: broker, db: testdb.Open(t, testdb.Main()[0]), store: store,
		seen: seen{failed: map[string]int{}, errors: map[string]int{}}, next: map[string]int{}, prefix: "k",
	}
	require.NoError(t, p.store.CreateSchema(t.Context(), p.db))
	only, err := outbox.New(outbox.Config{DB: p.db, Store: p.store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	p.writer = only.Writer()
	return p
}

// topic is the topic of the events.
func (p *proof) topic() string { return cmp.Or(p.broker.Topic, Topic) }

// key is the key of the nth event.
func (p *proof) key(n int) string { return fmt.Sprintf("%s%d", p.prefix, n%keys) }

// node starts a node behind a separate proxy. end closes the node's outbox, then the node's relay.
func (p *proof) node(name string) (end func()) {
	proxy := NewProxy(p.t, p.broker.Addr)
	p.proxies = append(p.proxies, proxy)
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	r, err := relay.New(relay.Config{
		Publisher: recorder{p.broker.Connect(p.t, proxy.Addr), &p.seen}, Source: "/counters",
		Routes: []relay.Route{relay.To(p.topic(), counted.Kind())}, Batch: outbox.BatchOptions{Wait: 2 * time.Millisecond},
		Timeout: timeout, MaxBackoff: 2 * time.Second, Logger: log,
	})
	require.NoError(p.t, err)
	ob, err := outbox.New(outbox.Config{
		DB: p.db.Reopen(p.t), Store: p.store, Logger: slog.New(slog.DiscardHandler),
		Mode: outbox.OrderedByKey{Poll: outbox.PollOptions{Interval: 200 * time.Millisecond}, Claim: outbox.ClaimOptions{Owner: name}},
	})
	require.NoError(p.t, err)
	require.NoError(p.t, ob.Register(r.Bindings()...))
	require.NoError(p.t, ob.Start(p.t.Context()))
	end = sync.OnceFunc(func() {
		require.NoError(p.t, ob.Close(p.t.Context()))
		require.NoError(p.t, r.Close(p.t.Context()))
	})
	p.t.Cleanup(func() {
		if p.t.Failed() {
			_ = ob.Close(p.t.Context())
		}
	})
	return end
}

// write writes n events, the keys in turn, 500 in a transaction.
func (p *proof) write(n int) {
	for n > 0 {
		var envs []outbox.Envelope
		for ; n > 0 && len(envs) < 500; n-- {
			key := p.key(p.written)
			p.next[key]++
			p.written++
			envs = append(envs, counted.Envelope(key, count{key, p.next[key], p.text}))
		}
		tx, err := p.db.BeginTx(p.t.Context(), nil)
		require.NoError(p.t, err)
		_, err = p.writer.WriteUnmanaged(p.t.Context(), tx, envs)
		require.NoError(p.t, err)
		require.NoError(p.t, tx.Commit())
	}
}

// harm causes one fault after the other, each while events are being published, and writes n events
// meanwhile.
func (p *proof) harm(n int) (faults int) {
	const piece = 800
	for ; n > 0; n -= piece {
		before := p.seen.acks()
		p.write(min(n, piece))
		Eventually(p.t, "events are published", func() bool { return p.seen.acks() > before })
		switch faults % 5 {
		case 0:
			p.proxies[0].Cut(200 * time.Millisecond)
		case 1:
			p.broker.Server.Kill(p.t)
			time.Sleep(p.broker.Away)
			p.broker.Server.Start(p.t)
		case 2:
			p.proxies[1].Freeze(timeout + time.Second)
		case 3:
			var both sync.WaitGroup
			for _, proxy := range p.proxies {
				both.Go(func() { proxy.Cut(50 * time.Millisecond) })
			}
			both.Wait()
		case 4:
			p.proxies[0].Delay(timeout + time.Second)
		}
		faults++
	}
	return faults
}

// query reads a number from the table.
func (p *proof) query(where string) (n int) {
	err := p.db.QueryRowContext(p.t.Context(), "SELECT count(*) FROM "+p.store.Table()+" WHERE "+where).Scan(&n)
	if err != nil {
		require.ErrorIs(p.t, err, sql.ErrNoRows)
	}
	return n
}

// delivered waits until every event is DONE.
func (p *proof) delivered() {
	for last := -1; ; {
		done := p.query("status = 1")
		if done == p.written {
			return
		}
		require.NotEqual(p.t, last, done, "nothing was delivered for a minute; %d of %d are; errors: %v", done, p.written, &p.seen.errors)
		last = done
		for end := time.Now().Add(time.Minute); p.query("status = 1") == last && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// check checks the messages that the broker has.
func (p *proof) check() {
	require.Zero(p.t, p.query("attempts > 0"), "an outage counted attempts")
	stored := p.broker.Stored(p.t)
	copies, next := map[string]int{}, map[string]int{}
	twice := 0
	for _, m := range stored {
		if copies[m.ID]++; copies[m.ID] > 1 {
			twice++
			require.NotZero(p.t, p.seen.failed[m.ID], "event %s is there twice without a failure", m.ID)
			continue
		}
		c, err := counted.Decode(outbox.Envelope{Payload: outbox.RawJSON(m.Body)})
		require.NoError(p.t, err)
		next[c.Key]++
		require.Equal(p.t, next[c.Key], c.N, "the order of key %s", c.Key)
	}
	require.Len(p.t, copies, p.written, "events are lost")
	if p.broker.Deduplicates {
		require.Zero(p.t, twice, "messages that the broker has twice")
	}
	p.t.Logf("%d messages, %d of them copies of earlier ones", len(stored), twice)
}

// Log keeps the lines that a test's outbox and publisher log, and is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write keeps a line.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// String returns the logged lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *Log) count() int {
	return strings.Count(l.String(), "\n")
}
