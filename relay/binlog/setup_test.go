package binlog_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay/binlog"
)

// Writers write before, while and after Setup stores the position. An event that is neither among the rows nor in
// the log would be lost.
func TestSetupLosesNoEvent(t *testing.T) {
	t.Parallel()
	eachBare(t, func(t *testing.T, s *shop) {
		ctx, end := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		counts := make([]int, 4)
		for w := range counts {
			writers.Go(func() {
				for ; ctx.Err() == nil; counts[w]++ {
					s.commit(fmt.Sprint(w), fmt.Sprintf("%d-%06d", w, counts[w]))
				}
			})
		}
		written := func(n int) {
			relaytest.Eventually(t, "events are written", func() bool { return s.ask("SELECT count(*) FROM outbox_event") >= n })
		}
		written(200)
		require.NoError(t, s.reader(nil).Setup(t.Context()))
		pending := len(s.broker.IDs())
		require.NotZero(t, pending)
		s.read(nil)
		written(s.ask("SELECT count(*) FROM outbox_event") + 100)
		end()
		writers.Wait()
		total := counts[0] + counts[1] + counts[2] + counts[3]
		relaytest.Eventually(t, "each event is published", func() bool { return len(distinct(s.broker.IDs())) == total })
		for w := range counts {
			var of []string
			for _, id := range distinct(s.broker.IDs()) {
				if strings.HasPrefix(id, fmt.Sprint(w, "-")) {
					of = append(of, id)
				}
			}
			require.True(t, slices.IsSorted(of), "in the order of the writes, across the rows and the log")
		}
		if s.kind.mariadb {
			require.Len(t, s.broker.IDs(), total, "each event is in exactly one of both")
		}
		before := len(s.broker.IDs())
		require.NoError(t, s.reader(nil).Setup(t.Context()), "again, while the reader runs")
		require.Len(t, s.broker.IDs(), before, "publishes nothing")
		require.NotContains(t, s.log.String(), "level=ERROR")
	})
}

// distinct is a list without the ids that were in it before.
func distinct(ids []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}

// A position that is stored without its pending events would lose them.
func TestASetupThatFailsLeavesNoPosition(t *testing.T) {
	t.Parallel()
	eachBare(t, func(t *testing.T, s *shop) {
		s.commit("a", "1", "2")
		ctx, cancel := context.WithCancel(t.Context())
		r := s.reader(func(cfg *binlog.Config) {
			cfg.Publish = func(ctx context.Context, batch []outbox.Envelope) []error {
				require.Error(t, s.reader(nil).Setup(t.Context()), "another Setup runs")
				cancel()
				return slices.Repeat([]error{ctx.Err()}, len(batch))
			}
		})
		require.ErrorIs(t, r.Setup(ctx), context.Canceled)
		require.Empty(t, s.position())
		err := s.reader(nil).Run(t.Context())
		require.ErrorIs(t, err, binlog.ErrNoPosition)
		require.ErrorContains(t, err, "call Setup once")
		relaytest.Eventually(t, "the server has noticed", func() bool { return s.reader(nil).Setup(t.Context()) == nil })
		require.Equal(t, []string{"1", "2"}, s.broker.IDs())
	})
}

func TestRowsThatAreDoneOrDeadAreNotPending(t *testing.T) {
	t.Parallel()
	eachBare(t, func(t *testing.T, s *shop) {
		s.commit("a", "1", "2", "3", "4")
		s.exec("UPDATE outbox_event SET status = 1 WHERE event_id = '1'", "UPDATE outbox_event SET status = 3 WHERE event_id = '3'", "UPDATE outbox_event SET status = 2 WHERE event_id = '4'")
		require.NoError(t, s.reader(func(cfg *binlog.Config) { cfg.BatchSize, cfg.DSN = 1, cfg.DSN+"?parseTime=true" }).Setup(t.Context()))
		require.Equal(t, []string{"2", "4"}, s.broker.IDs())
	})
}

// A reader that began at the end of the log would leave out events without a word.
func TestAReaderEndsWhenItsPositionIsDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		ended := make(chan error, 1)
		r := s.reader(nil)
		go func() { ended <- r.Run(t.Context()) }()
		s.follows(1)
		s.exec("DELETE FROM outbox_event_control WHERE kind = 'cdc'")
		s.commit("a", "1")
		require.ErrorIs(t, <-ended, binlog.ErrNoPosition)
		_, err := s.reader(nil).Lag(t.Context())
		require.ErrorIs(t, err, binlog.ErrNoPosition)
	})
}

// This is the recovery that docs/how-to/change-data-capture.md describes.
func TestNoEventIsLostWhenTheLogIsPurged(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		stop := s.read(nil)
		s.commit("a", "1")
		s.published(1)
		require.NoError(t, stop())
		s.commit("a", "2")
		s.exec("FLUSH BINARY LOGS")
		s.commit("a", "3")
		relaytest.Eventually(t, "the log is purged", func() bool {
			rows, err := s.db.QueryContext(t.Context(), "SHOW BINARY LOGS")
			require.NoError(t, err)
			defer func() { _ = rows.Close() }()
			columns, err := rows.Columns()
			require.NoError(t, err)
			var name string
			for n := 0; rows.Next(); n++ {
				targets := []any{&name}
				for range columns[1:] {
					targets = append(targets, new(any))
				}
				require.NoError(t, rows.Scan(targets...))
			}
			require.NoError(t, rows.Close())
			s.exec("PURGE BINARY LOGS TO '" + name + "'")
			_, err = s.reader(nil).Lag(t.Context())
			return err != nil
		})
		err := s.reader(nil).Run(t.Context())
		require.ErrorIs(t, err, binlog.ErrPositionLost)
		require.ErrorIs(t, s.reader(nil).Setup(t.Context()), binlog.ErrPositionLost)
		lag, lost := s.reader(nil).Lag(t.Context())
		require.ErrorIs(t, lost, binlog.ErrPositionLost)
		require.GreaterOrEqual(t, lag.Transactions, int64(2))

		way := regexp.MustCompile("run: (DELETE .*), and call Setup once").FindStringSubmatch(err.Error())
		require.Len(t, way, 2, err)
		s.exec("UPDATE outbox_event SET status = 1, done_at = created_at WHERE event_id = '1'") // published for certain
		s.exec(way[1])
		require.NoError(t, s.reader(nil).Setup(t.Context()))
		s.read(nil)
		s.commit("a", "4")
		s.published(4)
		require.Equal(t, []string{"1", "2", "3", "4"}, s.broker.IDs())
	})
}

// Each problem is an error that says what to do, and Run does not try again.
func TestADatabaseThatIsNotSetUp(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		run := func(change func(*binlog.Config), texts ...string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := s.reader(change).Run(ctx)
			require.ErrorIs(t, err, binlog.ErrNotSetUp)
			for _, text := range texts {
				require.ErrorContains(t, err, text)
			}
			require.NotContains(t, err.Error(), "secret")
		}
		for variable, value := range map[string]string{"binlog_format": "MIXED", "binlog_row_image": "MINIMAL", "binlog_row_metadata": "MINIMAL"} {
			was := s.text("SELECT @@GLOBAL." + variable)
			s.exec("SET GLOBAL " + variable + " = " + value)
			run(nil, variable+" is "+value, "SET GLOBAL "+variable)
			s.exec("SET GLOBAL " + variable + " = " + was)
		}
		if !s.kind.mariadb {
			s.exec("SET GLOBAL gtid_mode = ON_PERMISSIVE")
			run(nil, "gtid_mode is ON_PERMISSIVE")
			s.exec("SET GLOBAL gtid_mode = ON")
		}
		run(func(cfg *binlog.Config) { cfg.Tables = []string{"nowhere"} }, "nowhere does not exist in the database "+s.database)
		s.exec("CREATE TABLE old (event_id VARCHAR(36)) CHARACTER SET latin1")
		run(func(cfg *binlog.Config) { cfg.Tables = []string{"outbox_event", "old"} }, "character set latin1", "CONVERT TO CHARACTER SET utf8mb4")
		s.exec("CREATE TABLE fewer (event_id VARCHAR(36) CHARACTER SET utf8mb4)", "INSERT INTO fewer VALUES ('1')")
		run(func(cfg *binlog.Config) { cfg.Tables = []string{"outbox_event", s.database + ".fewer"} }, "has not all of the columns")
		run(func(cfg *binlog.Config) { cfg.Tables = []string{"fewer"} }, "fewer_control")

		user := "u" + s.database
		s.exec("CREATE USER "+user+" IDENTIFIED BY 'secret'", "GRANT SELECT ON "+s.database+".* TO "+user)
		as := func(cfg *binlog.Config) { cfg.DSN = strings.Replace(s.dsn(), "root@", user+":secret@", 1) }
		client := map[bool]string{true: "BINLOG MONITOR", false: "REPLICATION CLIENT"}[s.kind.mariadb]
		run(as, client)
		s.exec("GRANT " + client + " ON *.* TO " + user)
		run(as, "REPLICATION SLAVE")
		s.exec("GRANT REPLICATION SLAVE ON *.* TO " + user)
		s.commit("a", "1")
		run(as, "SELECT, INSERT, UPDATE")
		s.exec("GRANT INSERT, UPDATE ON " + s.database + ".outbox_event_control TO " + user)
		n := len(s.broker.IDs())
		s.read(as)
		s.published(n + 1)
		s.exec("DROP USER " + user)
	})
}

// MySQL makes a certificate for itself. The settings of DSN hold for the connection that reads the log too.
func TestTheLogIsReadByTLS(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		if s.kind.mariadb {
			require.Empty(t, s.text("SELECT COALESCE(@@GLOBAL.ssl_cert, '')"), "this server has no certificate")
			return
		}
		user := "u" + s.database
		s.exec("CREATE USER "+user+" IDENTIFIED BY 'secret' REQUIRE SSL", "GRANT ALL ON *.* TO "+user)
		defer s.exec("DROP USER " + user)
		dsn := strings.Replace(s.dsn(), "root@", user+":secret@", 1)
		require.ErrorContains(t, s.reader(func(cfg *binlog.Config) { cfg.DSN = dsn }).Setup(t.Context()), "1045")
		s.read(func(cfg *binlog.Config) { cfg.DSN = dsn + "?tls=skip-verify" })
		s.commit("a", "1")
		s.published(1)
	})
}

// A session may choose another format than the server's. The log has no row then.
func TestAStatementInTheLogIsAnError(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		s.commit("a", "0")
		s.exec("DELETE FROM outbox_event")
		conn, err := s.db.Conn(t.Context())
		require.NoError(t, err)
		for _, statement := range []string{"SET SESSION binlog_format = 'STATEMENT'", "CREATE TABLE other (id INT, t TEXT)", "INSERT INTO other VALUES (1, 'INSERT INTO outbox_event')", "INSERT INTO outbox_event_control (kind, name) VALUES ('a', 'b')", "UPDATE outbox_event SET status = 1", insert("1"), "SET SESSION binlog_format = 'ROW'"} {
			_, err = conn.ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
		}
		require.NoError(t, conn.Close())
		err = s.reader(nil).Run(t.Context())
		require.ErrorIs(t, err, binlog.ErrNotSetUp)
		require.ErrorContains(t, err, "binlog_format")
		require.Equal(t, []string{"0"}, s.broker.IDs(), "an event before the error is published: its row is nowhere else")
		s.exec("DELETE FROM outbox_event_control WHERE kind = 'cdc'", "UPDATE outbox_event SET status = 0")
		require.NoError(t, s.reader(nil).Setup(t.Context()))
		require.Equal(t, []string{"0", "1"}, s.broker.IDs())
	})
}

// A server that takes no writes is a replica until the failover.
func TestAReplicaIsTriedAgain(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		s.exec("SET GLOBAL read_only = 1")
		s.read(nil)
		relaytest.Eventually(t, "the reader waits", func() bool { return strings.Contains(s.log.String(), "read only") })
		s.exec("SET GLOBAL read_only = 0")
		s.commit("a", "1")
		s.published(1)
	})
}

// The log may be compressed.
func TestACompressedLog(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		if s.kind.mariadb {
			s.exec("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
			defer s.exec("SET GLOBAL log_bin_compress = OFF")
			s.exec(insert("1"), insert("2"))
		} else {
			tx, err := open(t, s.dsn()+"?binlog_transaction_compression=ON").BeginTx(t.Context(), nil)
			require.NoError(t, err)
			for _, statement := range []string{insert("1"), "UPDATE outbox_event SET status = 2", insert("2")} {
				_, err = tx.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			require.NoError(t, tx.Commit())
		}
		stop := s.read(nil)
		s.published(2)
		require.NoError(t, stop())
		s.commit("a", "3")
		s.read(nil)
		s.published(3)
		require.Equal(t, []string{"1", "2", "3"}, s.broker.IDs())
	})
}

func TestLag(t *testing.T) {
	each(t, func(t *testing.T, s *shop) {
		r := s.reader(nil)
		lag, err := r.Lag(t.Context())
		require.NoError(t, err)
		require.False(t, lag.Active)
		was := lag.Transactions
		s.broker.SetAway(true)
		stop := s.read(nil)
		for i := range 20 {
			s.commit("a", fmt.Sprintf("%03d", i))
		}
		relaytest.Eventually(t, "the reader is active", func() bool {
			lag, err = r.Lag(t.Context())
			return errors.Is(err, nil) && lag.Active
		})
		require.GreaterOrEqual(t, lag.Transactions, was+20)
		if s.kind.mariadb { // MariaDB keeps its log for ever by default
			require.Zero(t, lag.Kept)
			s.exec("SET GLOBAL expire_logs_days = 1.5")
			lag, err = r.Lag(t.Context())
			require.NoError(t, err)
			s.exec("SET GLOBAL expire_logs_days = 0")
			require.Equal(t, 36*time.Hour, lag.Kept)
		} else {
			require.Equal(t, 30*24*time.Hour, lag.Kept)
		}
		s.broker.SetAway(false)
		s.published(20)
		require.NoError(t, stop())
		lag, err = r.Lag(t.Context())
		require.NoError(t, err)
		require.False(t, lag.Active)
		require.Less(t, lag.Transactions, int64(20), "only the stores of the position, one for each batch")
		require.Less(t, lag.Behind, time.Hour)
	})
}

func TestAConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := binlog.New(binlog.Config{})
	require.ErrorContains(t, err, "binlog.Config.DSN")
	require.ErrorContains(t, err, "binlog.Config.Publish")
	require.ErrorContains(t, err, "binlog.ToListener")
	_, err = binlog.New(binlog.Config{
		DSN: "u:secret@", Name: "a'b", Tables: []string{"a b"}, Keepalive: time.Millisecond,
		MaxAttempts: -1, BatchSize: -1, BatchBytes: -1, MaxBackoff: time.Millisecond,
	})
	for _, field := range []string{"DSN", "Name", "Tables[0]", "Keepalive", "MaxAttempts", "BatchSize", "BatchBytes", "MaxBackoff"} {
		require.ErrorContains(t, err, "binlog.Config."+field)
	}
	require.NotContains(t, err.Error(), "secret")
	publish := func(context.Context, []outbox.Envelope) []error { return nil }
	_, err = binlog.New(binlog.Config{DSN: "u@tcp(h:1)/", Publish: publish})
	require.ErrorContains(t, err, "DSN names no database")
	_, err = binlog.New(binlog.Config{DSN: "u@tcp(h:1)/", Tables: []string{"shop.outbox_event"}, Publish: publish})
	require.NoError(t, err)
	_, err = binlog.New(binlog.Config{DSN: "u@other(h:1)/shop", Publish: publish})
	require.ErrorContains(t, err, "network")
}
