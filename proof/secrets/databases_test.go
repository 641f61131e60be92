package secrets_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/pqnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/secrets"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The database goes silent, loses its answers, and is away, while events are written and
// delivered; then the outbox closes without it.
func TestOutagesShowNoSecret(t *testing.T) {
	for _, target := range servers() {
		if target.Name == "postgres/pq" {
			continue // it ignores the end of a context while the server is silent; the tests of closing have it
		}
		t.Run(target.Name, func(t *testing.T) {
			faulty, set := openWithPassword(t, target).Faulty(t)
			s := openShop(t, faulty, outbox.SingleNode{
				Dispatch: outbox.DispatchOptions{DrainTimeout: 100 * time.Millisecond}, Poll: outbox.PollOptions{Interval: 20 * time.Millisecond},
			})
			require.NoError(t, s.ob.Start(t.Context()))
			for _, fault := range []testdb.Fault{testdb.Silent, testdb.Mute, testdb.Away} {
				require.Eventually(t, func() bool { return s.write(planted("", "Works")) == nil }, soon, 10*time.Millisecond, "%s", s.trace)
				set(fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := s.ob.Stats(ctx)
				s.failed(t, "stats", err)
				s.failed(t, "a write", s.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
					_, err := s.a.Write(ctx, tx, planted("", "Works"))
					return err
				}))
				cancel()
				if fault != testdb.Away {
					set(testdb.Working)
				}
			}
			require.Eventually(t, func() bool { return strings.Contains(s.String(), "polling failed") }, soon, 10*time.Millisecond)
			s.failed(t, "close", s.ob.Close(context.Background()))
		})
	}
}

func TestACommitInDoubtShowsNoSecret(t *testing.T) {
	for _, target := range servers() {
		t.Run(target.Name, func(t *testing.T) {
			cut, _ := openWithPassword(t, target).CutCommits(t)
			s := openShop(t, cut, outbox.MultiNode{})
			err := s.write(planted("doubt", "Works"))
			s.failed(t, "a commit without an answer", err)
			require.ErrorIs(t, err, outbox.ErrOutcomeUnknown)
			require.Eventually(t, func() bool { return strings.Contains(s.String(), "hook panicked") }, soon, time.Millisecond)
		})
	}
}

// Addresses that are wrong in ways that make drivers quote them.
var (
	postgresAddresses = []string{
		"postgres://u:" + secrets.Password + "@127.0.0.1:x/db", "postgres://u:" + secrets.Password + " @127.0.0.1/db",
		"postgres://u:" + secrets.Password + "%zz@127.0.0.1/db", "postgres://u:" + secrets.Password + "#@127.0.0.1/db",
		"postgres://u:" + secrets.Password + "@127.0.0.1:70000/db", "postgres://u:" + secrets.Password + "@127.0.0.1/db?sslmode=no",
		"host=127.0.0.1 port=x password=" + secrets.Password, "password='" + secrets.Password, "password=" + secrets.Password + `\`,
		"u:" + secrets.Password + "@tcp(127.0.0.1:1)/db", // MySQL's
	}
	mysqlAddresses = []string{
		"u:" + secrets.Password + "@127.0.0.1:1/db", "u:" + secrets.Password + "@tcp(127.0.0.1:1)", "u:" + secrets.Password + "@tcp(127.0.0.1:1/db",
		"u:" + secrets.Password + "/x@tcp(127.0.0.1:1)/db?a=%zz", "mysql://u:" + secrets.Password + "@127.0.0.1:1/db",
	}
)

func TestWrongAddressesShowNoPassword(t *testing.T) {
	tr, _ := newTrace(t)
	wrong := map[string]int{}
	note := func(what string, err error) {
		if err != nil { // a driver may accept an address that is not the one that was meant
			wrong[what]++
			tr.failed(t, what, err)
		}
	}
	open := func(driver, address string) {
		db, err := sqltx.Open(driver, address)
		if err == nil {
			_, err = sqlstore.Detect(t.Context(), db)
			_ = db.Close()
		}
		note(driver, err)
	}
	for _, address := range postgresAddresses {
		open("pgx", address)
		open("postgres", address)
		_, err := pgnotify.FromDSN(address)
		note("pgnotify", err)
		_, err = pqnotify.New(address)
		note("pqnotify", err)
	}
	for _, address := range mysqlAddresses {
		open("mysql", address)
	}
	for _, what := range []string{"pgx", "postgres", "pgnotify", "pqnotify", "mysql"} {
		require.Greater(t, wrong[what], 2, what)
	}
}

// PostgreSQL may be set to trust everybody, so here a server of the test's own asks for
// a password and refuses it.
func TestARefusedPasswordIsNotShown(t *testing.T) {
	postgres := "postgres://u:" + secrets.Password + "@" + refusingServer(t) + "/db?sslmode=disable"
	mysql := "u:" + secrets.Password + "@" + strings.SplitN(testdb.MySQLDSN(), "@", 2)[1]
	nobody := "127.0.0.1:1" // where no server listens
	for name, tt := range map[string]struct{ driver, dsn string }{
		"pgx, refused":        {"pgx", postgres},
		"lib/pq, refused":     {"postgres", postgres},
		"pgdriver, refused":   {"pg", postgres},
		"mysql, refused":      {"mysql", mysql},
		"pgx, no server":      {"pgx", "postgres://u:" + secrets.Password + "@" + nobody + "/db?sslmode=disable"},
		"lib/pq, no server":   {"postgres", "postgres://u:" + secrets.Password + "@" + nobody + "/db?sslmode=disable"},
		"pgdriver, no server": {"pg", "postgres://u:" + secrets.Password + "@" + nobody + "/db?sslmode=disable"},
		"mysql, no server":    {"mysql", "u:" + secrets.Password + "@tcp(" + nobody + ")/db"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, logger := newTrace(t)
			db, err := sqltx.Open(tt.driver, tt.dsn)
			require.NoError(t, err)
			defer func() { _ = db.Close() }()
			_, err = sqlstore.Detect(t.Context(), db)
			tr.failed(t, "detecting the database", err)
			store, notifier := sqlstore.MySQL(), outbox.Notifier(nil)
			if tt.driver != "mysql" {
				store = sqlstore.Postgres()
				notifier, err = pqnotify.New(tt.dsn)
				require.NoError(t, err)
				other, err := pgnotify.FromDSN(tt.dsn)
				require.NoError(t, err)
				tr.failed(t, "listening", other.Listen(t.Context(), db, "outbox_event", func() {}))
				tr.failed(t, "listening", notifier.Listen(t.Context(), db, "outbox_event", func() {}))
			}
			ob, err := outbox.New(outbox.Config{DB: db, Store: store, Logger: logger, Notifier: notifier})
			require.NoError(t, err)
			tr.failed(t, "starting", ob.Start(t.Context()))
			err = adaptertest.Adapter(t, db, ob.Writer()).RunInTx(t.Context(), nil, func(context.Context, *sql.Tx) error { return nil })
			tr.failed(t, "beginning a transaction", err)
			require.NoError(t, ob.Close(context.Background()))
		})
	}
}

// refusingServer speaks as much of PostgreSQL's protocol as to ask for a password and
// refuse it. It returns its address.
func refusingServer(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go refuse(conn)
		}
	}()
	return listener.Addr().String()
}

func refuse(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if skip(conn) != nil { // the startup message
		return
	}
	_, _ = conn.Write([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 3}) // a password in clear text
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil || skip(conn) != nil {
		return
	}
	fields := "SFATAL\x00VFATAL\x00C28P01\x00Mpassword authentication failed for user \"u\"\x00\x00"
	message := binary.BigEndian.AppendUint32([]byte{'E'}, uint32(4+len(fields))) //nolint:gosec // it is short.
	_, _ = conn.Write(append(message, fields...))
}

// skip reads a message of the protocol.
func skip(conn io.Reader) error {
	var length uint32
	if err := binary.Read(conn, binary.BigEndian, &length); err != nil {
		return err
	}
	if length < 4 || length > 1<<16 {
		return errors.New("no message of the protocol")
	}
	_, err := io.CopyN(io.Discard, conn, int64(length)-4)
	return err
}
