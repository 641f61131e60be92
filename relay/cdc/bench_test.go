package cdc_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

const backlog = 100_000

// counter is a broker that acknowledges at once.
type counter struct {
	n    atomic.Int64
	came chan struct{} // when set
}

func (c *counter) Publish(_ context.Context, messages []relay.Message) []error {
	c.n.Add(int64(len(messages)))
	if c.came != nil {
		c.came <- struct{}{}
	}
	return nil
}
func (c *counter) Ping(context.Context) error  { return nil }
func (c *counter) Close(context.Context) error { return nil }

// newBench makes a shop whose broker is c, on a server that flushes its log.
func newBench(b *testing.B, c *counter) *shop {
	b.Helper()
	s := bareShop(b, sqlstore.Postgres())
	s.exec("ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()")
	s.createTable()
	var err error
	s.relay, err = relay.New(relay.Config{Publisher: c, Source: "/orders", Routes: []relay.Route{relay.To("orders", placed.Kind())}})
	require.NoError(b, err)
	return s
}

// start starts an outbox on the table that delivers to the broker.
func (s *shop) start(b *testing.B, db *sql.DB) *outbox.Outbox {
	b.Helper()
	ob, err := outbox.New(outbox.Config{DB: db, Store: s.store, Mode: outbox.SingleNode{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	require.NoError(b, ob.Register(s.relay.Bindings()...))
	require.NoError(b, ob.Start(b.Context()))
	return ob
}

// poll runs an outbox on the table.
func (s *shop) poll(b *testing.B) (stop func()) {
	b.Helper()
	db, err := sql.Open("pgx", s.dsn)
	require.NoError(b, err)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	ob := s.start(b, db)
	return func() { _ = ob.Close(context.Background()); _ = db.Close() }
}

// way is a way in which the events leave the table.
type way struct {
	name  string
	start func(b *testing.B, s *shop) (stop func())
}

var ways = []way{
	{"log", func(_ *testing.B, s *shop) func() {
		stop := s.read(func(cfg *cdc.Config, _ *cdc.Postgres) { cfg.Logger = slog.New(slog.DiscardHandler) })
		return func() { _ = stop() }
	}},
	{"poller", func(b *testing.B, s *shop) func() { return s.poll(b) }},
}

// load is what the server did.
type load struct {
	cpu time.Duration // of all its processes
	log float64       // bytes
}

func (s *shop) load(b *testing.B) (l load) {
	b.Helper()
	require.NoError(b, s.db.QueryRowContext(b.Context(), "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')").Scan(&l.log))
	pid, err := os.ReadFile(filepath.Join(s.data, "postmaster.pid"))
	require.NoError(b, err)
	master, _, _ := strings.Cut(string(pid), "\n")
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(b, err)
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		times := f[11:13] // in user and system mode, in hundredths of a second
		switch {
		case filepath.Base(filepath.Dir(file)) == master:
			times = f[11:15] // with those of the processes that have ended
		case f[1] != master:
			continue
		}
		for _, ticks := range times {
			n, err := strconv.Atoi(ticks)
			require.NoError(b, err)
			l.cpu += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return l
}

// BenchmarkDrain is a backlog of 100,000 events that another process wrote, ten in each transaction. In each
// round the events are read from the log and, of another server, from the table by the poller. The time ends
// when the broker has the last event.
func BenchmarkDrain(b *testing.B) {
	figures := map[string][]float64{}
	for round := 0; b.Loop(); round++ {
		for i := range ways {
			w := ways[(round+i)%len(ways)]
			c := &counter{}
			s := newBench(b, c)
			require.NoError(b, s.reader(nil).Setup(b.Context()))
			s.exec("DO $$ BEGIN FOR i IN 1..10000 LOOP INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, headers, status, available_at, created_at) " +
				"SELECT i || '-' || n, 'Placed', 'Order', (i * 10 + n)::text, '{\"order\": 1234567, \"lines\": [1, 2, 3]}', '{\"traceparent\": \"00-1\"}', 0, now(), now() FROM generate_series(1, 10) n; COMMIT; END LOOP; END $$")
			if w.name != "log" { // a slot would keep the log, and the server would not need it
				s.exec("SELECT pg_drop_replication_slot('cdc')")
			}
			before, began := s.load(b), time.Now()
			stop := w.start(b, s)
			for c.n.Load() < backlog {
				time.Sleep(time.Millisecond)
			}
			rate := backlog / time.Since(began).Seconds()
			after := s.load(b)
			stop()
			s.server.Kill(b)
			for name, value := range map[string]float64{
				"events/s": rate, "server-us/event": (after.cpu - before.cpu).Seconds() * 1e6 / backlog, "log-bytes/event": (after.log - before.log) / backlog,
			} {
				figures[w.name+"-"+name] = append(figures[w.name+"-"+name], value)
			}
		}
	}
	for name, values := range figures {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], name)
	}
}

// BenchmarkLatency is the time from the return of a commit to the broker, one event at a time: from the log, in
// another process than the writer's, and, in turns, on the hot path of the process that wrote the event.
func BenchmarkLatency(b *testing.B) {
	came := map[string]chan struct{}{}
	commit := map[string]func(id string){}
	for _, name := range []string{"log", "hot"} {
		c := &counter{came: make(chan struct{}, 1)}
		s := newBench(b, c)
		came[name] = c.came
		if name == "log" {
			require.NoError(b, s.reader(nil).Setup(b.Context()))
			s.read(nil)
			s.ready()
			commit[name] = func(id string) { s.commit("a", id) }
			continue
		}
		pool, err := sqltx.Open("pgx", s.dsn)
		require.NoError(b, err)
		b.Cleanup(func() { _ = pool.Close() })
		ob := s.start(b, pool)
		b.Cleanup(func() { _ = ob.Close(context.Background()) })
		adapter, err := sqltx.New(pool, ob.Writer())
		require.NoError(b, err)
		commit[name] = func(id string) {
			env := placed.Envelope("a", 1)
			env.EventID = id
			require.NoError(b, adapter.RunInTx(b.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := adapter.Write(ctx, tx, env)
				return err
			}))
		}
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, commit := range commit {
			commit(newID())
			began := time.Now()
			<-came[name]
			took[name] = append(took[name], time.Since(began))
		}
	}
	for name, list := range took {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds()), name+"-p50-us")
		b.ReportMetric(float64(list[len(list)*99/100].Microseconds()), name+"-p99-us")
	}
}

var benchID atomic.Int64

// newID is an id that no other event has.
func newID() string {
	return "bench-" + time.Now().Format("150405.000000000") + "-" + string(rune('a'+benchID.Add(1)%26))
}
