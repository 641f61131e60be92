package binlog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/binlog"
)

func TestEventsArePublishedInTheOrderOfTheirCommits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		stop := s.read(nil)
		first, undone := s.begin(), s.begin()
		require.NoError(t, s.write(first, "a", "1", "2"))
		require.NoError(t, s.write(undone, "a", "never"))
		s.commit("a", "3")
		require.NoError(t, undone.Rollback())
		require.NoError(t, first.Commit())
		s.commit("b", "4")
		s.published(4)
		require.Equal(t, []string{"3", "1", "2"}, slices.DeleteFunc(s.broker.IDs(), func(id string) bool { return id == "4" }), "of one key")
		m := s.broker.Message("1")
		require.Equal(t, []string{"orders", "a", "0", "00-1"}, []string{m.Topic, m.Key, string(m.Body), m.Headers["traceparent"]})
		require.WithinDuration(t, time.Now(), m.Time, time.Hour)
		require.Contains(t, m.Attributes, relay.Attribute{Name: "type", Value: "Placed"})
		require.NoError(t, stop())
	})
}

// The row is needed only in the log. A table that is altered while the reader is behind does not confuse the
// reader: the log has the names of the columns.
func TestTheTableStaysEmptyAndMayChange(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		tx := s.begin()
		require.NoError(t, s.write(tx, "a", "1"))
		_, err := tx.ExecContext(t.Context(), "DELETE FROM outbox_event")
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		s.exec("CREATE TABLE audit (id INT)", "INSERT INTO audit VALUES (1)")
		s.commit("a", "2")
		s.exec("ALTER TABLE outbox_event ADD COLUMN note TEXT FIRST, MODIFY payload LONGTEXT NOT NULL AFTER status")
		s.commit("a", "3")
		s.exec("UPDATE outbox_event SET status = 2 WHERE event_id = '2'", "DELETE FROM outbox_event")
		s.commit("a", "4")
		s.read(nil)
		s.published(4)
		require.Equal(t, []string{"1", "2", "3", "4"}, s.broker.IDs())
		for _, id := range s.broker.IDs() {
			m := s.broker.Message(id)
			require.Equal(t, []string{"a", "0"}, []string{m.Key, string(m.Body)})
		}
	})
}

func TestAReaderBeginsAgainAtItsStoredPosition(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		was := s.position()
		stop := s.read(nil)
		s.commit("a", "1", "2")
		s.published(2)
		require.NoError(t, stop())
		require.NotEqual(t, was, s.position())
		s.commit("a", "3", "4") // while no reader is there
		s.read(nil)
		s.published(4)
		require.Equal(t, []string{"1", "2", "3", "4"}, s.broker.IDs())
	})
}

func TestNothingIsLostWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.broker.SetAway(true)
		stop := s.read(nil)
		var want []string
		for i := range 1200 { // more than two batches
			want = append(want, fmt.Sprintf("%04d", i))
		}
		s.commit("a", want[0])
		relaytest.Eventually(t, "the reader has tried, and tries again", func() bool { return s.broker.Refused() > 1 })
		s.commit("a", want[1:700]...)
		s.commit("a", want[700:]...)
		require.NoError(t, stop()) // the reader dies with events in hand
		s.read(nil)
		s.follows(2)
		require.Empty(t, s.broker.IDs())
		s.broker.SetAway(false)
		s.published(len(want))
		require.Equal(t, want, s.broker.IDs())
	})
}

// The position that is stored for the events before is not the position after an event that is held up.
func TestAnEventThatIsRefusedHoldsUpTheReader(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.broker.Refuse("2")
		stop := s.read(nil)
		s.commit("a", "1")
		s.published(1)
		s.commit("a", "2", "3")
		relaytest.Eventually(t, "it is refused", func() bool { return s.broker.Refused() > 0 })
		s.commit("a", "4")
		require.NoError(t, stop())
		require.Equal(t, []string{"1"}, s.broker.IDs())
		s.broker.Refuse("")
		s.read(nil)
		s.published(4)
		require.Equal(t, []string{"1", "2", "3", "4"}, s.broker.IDs())
	})
}

func TestASecondReaderTakesOver(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		first := s.read(nil)
		s.follows(1)
		var log relaytest.Log
		s.read(func(cfg *binlog.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		relaytest.Eventually(t, "the second reader waits", func() bool { return strings.Contains(log.String(), "another process follows the log") })
		s.commit("a", "1")
		s.published(1)
		require.NoError(t, first())
		s.commit("a", "2")
		s.published(2)
		require.Equal(t, []string{"1", "2"}, s.broker.IDs())
		require.NotContains(t, log.String(), "level=ERROR")
	})
}

// A server that answers no more, such as the host of a primary that is gone, ends no connection.
func TestASilentServerIsLeft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		proxy := relaytest.NewProxy(t, s.kind.addr)
		s.read(func(cfg *binlog.Config) {
			cfg.DSN, cfg.Keepalive = strings.Replace(cfg.DSN, s.kind.addr, proxy.Addr, 1), time.Second
		})
		s.follows(1)
		thaw := proxy.BeginFreeze()
		s.commit("a", "1")
		relaytest.Eventually(t, "the reader has left the server", func() bool { return strings.Contains(s.log.String(), "reading the log failed") })
		thaw()
		s.published(1)
	})
}

// A reader whose host is gone ends no connection either. Its lock ends with its silence.
func TestALockEndsWithTheSilenceOfItsReader(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		proxy := relaytest.NewProxy(t, s.kind.addr)
		s.read(func(cfg *binlog.Config) {
			cfg.DSN, cfg.Keepalive = strings.Replace(cfg.DSN, s.kind.addr, proxy.Addr, 1), time.Second
			cfg.Publish = func(_ context.Context, batch []outbox.Envelope) []error {
				return slices.Repeat([]error{errors.New("gone")}, len(batch))
			}
		})
		s.follows(1)
		thaw := proxy.BeginFreeze()
		defer thaw()
		s.read(nil)
		s.commit("a", "1")
		s.published(1)
	})
}

// A transaction of many large events does not come into memory at once, whatever the broker's pace.
func TestALargeTransactionIsPublishedInBatches(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		const events, body, bytes = 4096, 2_000, 1 << 18
		s.exec("CREATE TABLE digit (d INT)", "INSERT INTO digit VALUES (0), (1), (2), (3), (4), (5), (6), (7)",
			"INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, available_at, created_at) "+
				"SELECT CONCAT(a.d, b.d, c.d, e.d), 'Placed', 'Order', a.d, CONCAT('\"', REPEAT('x', 1998), '\"'), 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM digit a, digit b, digit c, digit e")
		var largest, published, most atomic.Int64
		stop := s.read(func(cfg *binlog.Config) {
			cfg.BatchBytes = bytes
			cfg.Publish = func(_ context.Context, batch []outbox.Envelope) []error {
				n := 0
				for _, env := range batch {
					n += len(env.Payload.Bytes())
				}
				largest.Store(max(largest.Load(), int64(n)))
				most.Store(max(most.Load(), int64(len(batch))))
				published.Add(int64(len(batch)))
				return nil
			}
		})
		relaytest.Eventually(t, "all events are published", func() bool { return published.Load() == events })
		require.NoError(t, stop())
		require.LessOrEqual(t, largest.Load(), int64(bytes))
		require.Greater(t, most.Load(), int64(20), "batches are full under load")
		s.commit("a", "last")
		s.read(nil)
		s.published(1)
		require.Equal(t, []string{"last"}, s.broker.IDs(), "the position after the transaction was stored")
	})
}

// values are payloads that a reader of the log might change.
var values = []string{
	`{"n": 12345678901234567890123, "f": 1.10, "e": 1e400}`,
	"{\"b\":1,  \"a\":\t[],\"b\":2}",
	`"smörgåsbord 😀 \\ ' <&>"`,
	`null`, `0`, `-0.0`, `[18446744073709551615, -9223372036854775808]`,
	`"` + strings.Repeat("long ", 100_000) + `"`,
}

// A listener gets from the log the bytes that a listener gets from the table.
func TestAnEventOfTheLogIsTheEventOfTheTable(t *testing.T) {
	t.Parallel()
	eachBare(t, func(t *testing.T, s *shop) {
		var envs []outbox.Envelope
		for i, value := range values {
			envs = append(envs, outbox.Envelope{
				EventID: fmt.Sprint(i), EventType: "Placed", AggregateType: "Order", AggregateID: "ü😀 ", TenantID: "t",
				Payload: outbox.RawJSON(value), Headers: map[string]string{"ключ": "<&> \"é\" \\ 1234567890123456789012"},
			})
		}
		envs = append(envs, outbox.Envelope{EventID: "bytes", EventType: "Placed", Payload: outbox.Bytes("application/x", []byte{0, 255, 1, '\'', 254})})
		var table, log []outbox.Envelope
		var mu sync.Mutex
		into := func(list *[]outbox.Envelope) func(cfg *binlog.Config) {
			return func(cfg *binlog.Config) {
				cfg.Publish = func(_ context.Context, batch []outbox.Envelope) []error {
					mu.Lock()
					defer mu.Unlock()
					*list = append(*list, batch...)
					return nil
				}
			}
		}
		_, err := s.writer.WriteUnmanaged(t.Context(), s.db, envs)
		require.NoError(t, err)
		require.NoError(t, s.reader(into(&table)).Setup(t.Context()))
		s.exec("CREATE TABLE copy LIKE outbox_event", "INSERT INTO copy SELECT * FROM outbox_event", "DELETE FROM outbox_event", "INSERT INTO outbox_event SELECT * FROM copy ORDER BY created_at, event_id")
		s.read(into(&log))
		relaytest.Eventually(t, "all events are read", func() bool { mu.Lock(); defer mu.Unlock(); return len(log) >= len(envs) })
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, table, len(envs))
		byID := func(list []outbox.Envelope) map[string]outbox.Envelope {
			m := map[string]outbox.Envelope{}
			for _, env := range list {
				m[env.EventID] = env
			}
			return m
		}
		require.Equal(t, byID(table), byID(log))
		for i, value := range values {
			require.Equal(t, value, byID(log)[fmt.Sprint(i)].Payload.String())
		}
		require.Equal(t, envs[len(values)].Payload.Bytes(), byID(log)["bytes"].Payload.Bytes())
		require.Equal(t, envs[0].Headers, byID(log)["0"].Headers)
	})
}

// The payload of a table of an older version is JSON, which MySQL stores in a format of its own.
func TestAPayloadInAColumnOfJSON(t *testing.T) {
	t.Parallel()
	eachBare(t, func(t *testing.T, s *shop) {
		s.exec("ALTER TABLE outbox_event MODIFY payload JSON NOT NULL")
		require.NoError(t, s.reader(nil).Setup(t.Context()))
		var got []string
		var mu sync.Mutex
		s.read(func(cfg *binlog.Config) {
			cfg.Publish = func(_ context.Context, batch []outbox.Envelope) []error {
				mu.Lock()
				defer mu.Unlock()
				for _, env := range batch {
					got = append(got, env.Payload.String())
				}
				return nil
			}
		})
		list := []string{`{"a": [1, true, null, "é<"], "n": 18446744073709551615, "m": -9223372036854775808}`, `12345678901234567`, `"text"`, `[]`}
		for i, payload := range list {
			_, err := s.writer.WriteUnmanaged(t.Context(), s.db, []outbox.Envelope{{EventID: fmt.Sprint(i), EventType: "Placed", Payload: outbox.RawJSON(payload)}})
			require.NoError(t, err)
		}
		relaytest.Eventually(t, "all events are read", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) >= len(list) })
		for i := range list {
			require.JSONEq(t, list[i], got[i])
		}
		require.Contains(t, got[0], "18446744073709551615")
		require.Contains(t, got[0], "-9223372036854775808")
		require.Equal(t, list[1], got[1])
	})
}

// The log has the rows of an XA transaction before it says whether the transaction commits.
func TestARowOfAnXATransactionIsNotPublished(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		conn, err := s.db.Conn(t.Context())
		require.NoError(t, err)
		for _, statement := range []string{"XA START '" + s.database + "'", insert("1"), "XA END '" + s.database + "'", "XA PREPARE '" + s.database + "'"} {
			_, err = conn.ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
		}
		var dead []string
		s.read(func(cfg *binlog.Config) {
			cfg.Dead = func(_ context.Context, env outbox.Envelope, err error) error {
				dead = append(dead, env.EventID+err.Error())
				return nil
			}
		})
		s.commit("a", "2")
		s.published(1)
		_, err = conn.ExecContext(t.Context(), "XA ROLLBACK '"+s.database+"'")
		require.NoError(t, errors.Join(err, conn.Close()))
		s.commit("a", "3")
		s.published(2)
		require.Equal(t, []string{"2", "3"}, s.broker.IDs())
		require.Len(t, dead, 1)
		require.Contains(t, dead[0], "XA transaction")
	})
}
