package cdc_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

// An idle database beside a busy database: the server must be able to free its log, though no row of the
// publication is ever written.
func TestTheLogOfOtherTablesAndDatabasesIsFreed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.exec("CREATE DATABASE busy")
	busy := open(t, strings.Replace(s.dsn, "/postgres?", "/busy?", 1))
	before := s.ask("SELECT restart_lsn - '0/0' FROM pg_replication_slots")
	s.read(nil)
	s.ready()
	relaytest.Eventually(t, "the server frees 64 MB", func() bool {
		for _, statement := range []string{"CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 8000)", "DROP TABLE filler", "CHECKPOINT"} {
			_, err := busy.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		return s.ask("SELECT restart_lsn - '0/0' FROM pg_replication_slots") > before+64<<20
	})
	relaytest.Eventually(t, "little is kept", func() bool {
		s.exec("CHECKPOINT") // writes the record by which the server finds a later position
		lag, err := s.reader(nil).Lag(t.Context())
		require.NoError(t, err)
		require.True(t, lag.Active)
		return lag.Kept < 1<<20 && lag.Behind < 1<<20
	})
	require.Empty(t, s.broker.IDs())
}

func TestLagCountsWhatIsNotPublished(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.broker.SetAway(true)
	stop := s.read(nil)
	s.ready()
	for i := range 100 {
		s.commit("a", fmt.Sprintf("%03d", i))
	}
	r := s.reader(nil)
	lag, err := r.Lag(t.Context())
	require.NoError(t, err)
	require.True(t, lag.Active)
	require.Greater(t, lag.Behind, int64(10_000))
	require.GreaterOrEqual(t, lag.Kept, lag.Behind)
	require.EqualValues(t, -1, lag.Left)
	require.Equal(t, "reserved", lag.Status)
	s.broker.SetAway(false)
	s.published(100)
	relaytest.Eventually(t, "the reader is not behind", func() bool {
		lag, err = r.Lag(t.Context())
		require.NoError(t, err)
		return lag.Behind < 1000
	})
	require.NoError(t, stop())
	s.exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
	relaytest.Eventually(t, "the slot is dropped", func() bool {
		s.exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
		return s.ask("SELECT count(*) FROM pg_replication_slots") == 0
	})
	_, err = r.Lag(t.Context())
	require.ErrorIs(t, err, cdc.ErrNoSlot)
}

func TestASecondReaderTakesOver(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.read(nil)
	s.ready()
	var log relaytest.Log
	s.read(func(cfg *cdc.Config, _ *cdc.Postgres) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	relaytest.Eventually(t, "the second reader waits", func() bool { return strings.Contains(log.String(), "another process follows the log") })
	s.commit("a", "1")
	s.published(1)
	require.NoError(t, first())
	s.commit("a", "2")
	s.published(2)
	require.Equal(t, []string{"1", "2"}, s.broker.IDs())
	require.NotContains(t, log.String(), "level=ERROR")
}

// A server that answers no more, such as the host of a primary that is gone, ends no connection.
func TestASilentServerIsLeft(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	u, err := url.Parse(s.dsn)
	require.NoError(t, err)
	proxy := relaytest.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	var log relaytest.Log
	s.read(func(cfg *cdc.Config, pg *cdc.Postgres) {
		pg.DSN, pg.Keepalive, cfg.Logger = u.String(), time.Second, slog.New(slog.NewTextHandler(&log, nil))
	})
	s.ready()
	relaytest.Eventually(t, "the reader reads", func() bool { return strings.Contains(log.String(), "the reader follows the slot") })
	thaw := proxy.BeginFreeze()
	s.commit("a", "1")
	relaytest.Eventually(t, "the reader has left the server", func() bool { return strings.Contains(log.String(), "the server was silent") })
	thaw()
	s.published(1)
}

// A fast shutdown of the server waits until the reader has confirmed the log. While the broker is away, the
// reader must not hold up the shutdown for ever.
func TestAFastShutdownEnds(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.read(nil)
	s.ready()
	s.commit("a", "1")
	s.published(1)
	require.NoError(t, s.db.Close())
	pid, err := os.ReadFile(filepath.Join(s.data, "postmaster.pid"))
	require.NoError(t, err)
	number, err := strconv.Atoi(strings.Fields(string(pid))[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(number, syscall.SIGINT))
	relaytest.Eventually(t, "the server has ended", func() bool {
		_, err := os.Stat(filepath.Join(s.data, "postmaster.pid"))
		return os.IsNotExist(err)
	})
}

// has reports whether an event is in the table, and waits for the server.
func (s *shop) has(id string) bool {
	n := 0
	relaytest.Eventually(s.t, "the server answers", func() bool {
		return s.db.QueryRowContext(s.t.Context(), "SELECT count(*) FROM outbox_event WHERE event_id = $1", id).Scan(&n) == nil
	})
	return n == 1
}

// Tens of thousands of events; meanwhile connections are terminated, readers end and begin, and the server
// is killed. Each event is published, and the events of a key first in the order of the commits.
func TestNoEventIsLostByFaults(t *testing.T) {
	s := newShop(t)
	const writers, each, batch = 4, 500, 10
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
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
			continue
		case <-time.After(time.Duration(50+rand.IntN(150)) * time.Millisecond):
		}
		switch faults++; rand.IntN(8) {
		case 0:
			require.NoError(t, stop())
			stop = s.read(nil)
		case 1:
			if kills++; kills <= 2 {
				s.server.Restart(t)
			}
		default:
			_, _ = s.db.ExecContext(t.Context(), "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
		}
	}
	relaytest.Eventually(t, "each event is published", func() bool {
		ids := s.broker.IDs()
		slices.Sort(ids)
		return len(slices.Compact(ids)) == writers*each*batch
	})
	require.NoError(t, stop())
	seen := map[string]bool{}
	last := map[string]string{}
	for _, id := range s.broker.IDs() {
		if !seen[id] {
			require.Less(t, last[id[:1]], id)
			last[id[:1]] = id
		}
		seen[id] = true
	}
	t.Logf("%d events, %d messages, %d faults", writers*each*batch, len(s.broker.IDs()), faults)
}
