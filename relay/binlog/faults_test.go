package binlog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay/binlog"
)

// has reports whether an event is in the table, and waits for the server.
func (s *shop) has(id string) bool {
	n := 0
	relaytest.Eventually(s.t, "the server answers", func() bool {
		return s.db.QueryRowContext(s.t.Context(), "SELECT count(*) FROM outbox_event WHERE event_id = ?", id).Scan(&n) == nil
	})
	return n == 1
}

// kill ends connections of readers: those that send the log, and with all also those that hold a lock.
func (s *shop) kill(all bool) {
	rows, err := s.db.QueryContext(s.t.Context(), "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%' OR ? AND id <> CONNECTION_ID() AND command = 'Sleep' AND user = 'root'", all)
	if err != nil {
		return // the server was killed
	}
	defer func() { _ = rows.Close() }()
	var ids []int64
	for rows.Next() {
		var id int64
		if rows.Scan(&id) == nil {
			ids = append(ids, id)
		}
	}
	_ = rows.Close()
	for _, id := range ids {
		_, _ = s.db.ExecContext(s.t.Context(), fmt.Sprintf("KILL %d", id))
	}
}

// A server that cannot send waits for net_write_timeout, a minute by default, in which a broker may well be away.
func TestTheServerWaitsWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel() // no other test lets the server wait so long
	each(t, func(t *testing.T, s *shop) {
		s.exec("SET GLOBAL net_write_timeout = 1")
		defer s.exec("SET GLOBAL net_write_timeout = 60")
		const events = 2048 // 16 MB, more than the connection takes
		s.exec("CREATE TABLE digit (d INT)", "INSERT INTO digit VALUES (0), (1), (2), (3), (4), (5), (6), (7)",
			"INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at) "+
				"SELECT CONCAT(a.d, b.d, c.d, e.d), 'Placed', CONCAT('\"', REPEAT('x', 8000), '\"'), 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM digit a, digit b, digit c, digit e WHERE a.d < 4")
		var published atomic.Int64
		s.read(func(cfg *binlog.Config) {
			cfg.Publish = func(_ context.Context, batch []outbox.Envelope) []error {
				if published.Load() == 0 {
					<-time.After(3 * time.Second)
				}
				published.Add(int64(len(batch)))
				return nil
			}
		})
		relaytest.Eventually(t, "all events are published", func() bool { return published.Load() >= events })
		require.EqualValues(t, events, published.Load())
		require.NotContains(t, s.log.String(), "level=ERROR")
	})
}

// Thousands of events; meanwhile connections are terminated, readers end and begin, and the server is
// killed. Each event is published, and the events of a key first in the order of the commits.
func TestNoEventIsLostByFaults(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		writers, each, batch, most := 4, 100, 5, 1 // a killed MySQL takes seconds to start
		if strings.Contains(os.Getenv("OUTBOX_TEST_LONG"), "relay") {
			each, most = 2000, 5
		}
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for i := range each {
					var ids []string
					for n := range batch {
						ids = append(ids, fmt.Sprintf("%d-%06d", w, i*batch+n))
					}
					// After a kill nobody knows whether the transaction committed; its ids say it.
					for !s.has(ids[0]) {
						_ = s.tryCommit(fmt.Sprint(w), ids...)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { group.Wait(); close(done) }()
		faults, kills := 0, 0
		stop := s.read(nil)
		for ended := false; !ended || kills < 1; {
			select {
			case <-done:
				ended = true
			case <-time.After(time.Duration(50+rand.IntN(150)) * time.Millisecond):
			}
			switch faults++; rand.IntN(8) {
			case 0:
				require.NoError(t, stop())
				stop = s.read(nil)
			case 1:
				if kills++; kills <= most {
					s.kind.process.Restart(t)
				}
			default:
				s.kill(faults%2 == 0)
			}
		}
		relaytest.Eventually(t, "each event is published", func() bool { return len(distinct(s.broker.IDs())) == writers*each*batch })
		require.NoError(t, stop())
		last := map[string]string{}
		for _, id := range distinct(s.broker.IDs()) {
			require.Less(t, last[id[:1]], id)
			last[id[:1]] = id
		}
		t.Logf("%d events, %d messages, %d faults", writers*each*batch, len(s.broker.IDs()), faults)
	})
}
