package relaytest

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
)

const (
	// nodes is how many nodes deliver during an outage.
	nodes = 2
	// heapLimit is the most bytes by which the heap may grow in an outage.
	heapLimit = 64 << 20
	// logLimit is the most lines that the nodes may log about an outage.
	logLimit = 20
)

// Outage kills the broker for 3 s or a poll, and for a minute with OUTBOX_TEST_LONG=relay, while
// events are written that two nodes are to publish. The nodes have their default
// configuration. No attempt may be counted, the heap and the log are bounded, and
// afterwards all events are published.
func Outage(t *testing.T, broker Broker) {
	t.Helper()
	away, events := 3*time.Second, 2_000
	if os.Getenv("OUTBOX_TEST_LONG") == "relay" {
		away, events = time.Minute, 60_000
	}
	for _, tc := range []struct {
		name    string
		mode    outbox.Mode
		ordered bool
	}{
		{"MultiNode", outbox.MultiNode{}, false},
		{"OrderedByKey", outbox.OrderedByKey{}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProof(t, broker, sqlstore.Postgres(sqlstore.WithKeyIndex()))
			p.prefix = tc.name
			for range nodes {
				p.defaultNode(tc.mode)
			}
			p.write(500)
			p.delivered()
			before, calls := heap(), p.seen.published()

			broker.Server.Kill(t)
			began := time.Now()
			largest := p.writeAway(events, away)
			Eventually(t, "the broker is tried, after a poll", func() bool { return p.seen.published() > calls })
			probes, most := p.seen.published()-calls, nodes*(relay.DefaultConcurrency+5+int(time.Since(began)/relay.DefaultMaxBackoff))
			broker.Server.Start(t)
			restarted := time.Now()
			p.delivered()
			caughtUp := time.Since(restarted)

			require.Zero(t, p.query("attempts > 0"), "the outage counted attempts")
			p.complete(tc.ordered)
			t.Logf("away for %.0f s; %d events of %d MB wait; %d calls of the broker; the heap grew by %.1f MB at most; %d lines of log; all are published %.1f s after the broker was ready",
				away.Seconds(), events, events*outageText>>20, probes, float64(largest-before)/(1<<20), p.log.count(), caughtUp.Seconds())
			require.LessOrEqual(t, probes, most, "calls while the broker is away")
			require.LessOrEqual(t, p.log.count(), logLimit, "%s", p.log.String())
			require.LessOrEqual(t, largest-before, int64(heapLimit))
		})
	}
}

// outageText is how many bytes of text an event has, so that a backlog in memory would show.
const outageText = 2_000

// defaultNode starts a node that logs, and ends with the test.
func (p *proof) defaultNode(mode outbox.Mode) {
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	r, err := relay.New(relay.Config{
		Publisher: recorder{p.broker.Connect(p.t, p.broker.Addr), &p.seen}, Source: "/counters",
		Routes: []relay.Route{relay.To(p.topic(), counted.Kind())}, Logger: log,
	})
	require.NoError(p.t, err)
	ob, err := outbox.New(outbox.Config{DB: p.db.Reopen(p.t), Store: p.store, Logger: log, Mode: mode})
	require.NoError(p.t, err)
	require.NoError(p.t, ob.Register(r.Bindings()...))
	require.NoError(p.t, ob.Start(p.t.Context()))
	p.t.Cleanup(func() {
		require.NoError(p.t, ob.Close(context.Background()))
		require.NoError(p.t, r.Close(context.Background()))
	})
}

// writeAway writes events during the first half of an outage, which lasts longer if the machine is too
// slow to write them, and returns the largest heap.
func (p *proof) writeAway(events int, away time.Duration) (largest int64) {
	p.text = strings.Repeat("x", outageText)
	const pieces = 20
	for began := time.Now(); events > 0 || time.Since(began) < away; {
		if events > 0 {
			n := min(events, max(500, events/pieces))
			p.write(n)
			events -= n
		}
		largest = max(largest, heap())
		time.Sleep(away / (4 * pieces))
	}
	return largest
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// complete checks that the broker has every event that this proof wrote.
func (p *proof) complete(ordered bool) {
	seen, next := map[string]bool{}, map[string]int{}
	for _, m := range p.broker.Stored(p.t) {
		c, err := counted.Decode(outbox.Envelope{Payload: outbox.RawJSON(m.Body)})
		require.NoError(p.t, err)
		if seen[m.ID] || !strings.HasPrefix(c.Key, p.prefix) {
			continue
		}
		seen[m.ID] = true
		if next[c.Key]++; ordered {
			require.Equal(p.t, next[c.Key], c.N, "the order of key %s", c.Key)
		}
	}
	require.Len(p.t, seen, p.written, "events are lost")
}
