package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The environment of this test binary as a process that kills itself: where, and its
// database.
const (
	killAt     = "SQLTX_TEST_KILL_AT"
	killDriver = "SQLTX_TEST_DRIVER"
	killDSN    = "SQLTX_TEST_DSN"
)

// boundaries are those of the statements of a listener's transaction: before and after
// BEGIN, the effect, the completion and COMMIT.
const boundaries = 8

// inListener marks the context of a listener's transaction.
type inListener struct{}

// suicide kills the process at the given boundary of a listener's transaction.
type suicide struct{ left int }

func (s *suicide) boundary() {
	if s.left--; s.left < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// dyingConnector makes connections whose statements are boundaries.
type dyingConnector struct {
	driver.Connector
	at *suicide
}

func (c dyingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &dyingConn{wholeConn: inner.(wholeConn), at: c.at}, nil
}

type wholeConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

// dyingConn belongs to one goroutine at a time, as every connection does.
type dyingConn struct {
	wholeConn
	at     *suicide
	inside bool // a listener's transaction is open
}

func (c *dyingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.inside = ctx.Value(inListener{}) != nil
	tx, err := around(c, func() (driver.Tx, error) { return c.wholeConn.BeginTx(ctx, opts) })
	return dyingTx{tx, c}, err
}

func (c *dyingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return around(c, func() (driver.Result, error) { return c.wholeConn.ExecContext(ctx, query, args) })
}

func (c *dyingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.inside {
		return nil, driver.ErrSkip // sqltx then executes the statement without preparing it
	}
	return c.wholeConn.PrepareContext(ctx, query)
}

type dyingTx struct {
	driver.Tx
	c *dyingConn
}

func (t dyingTx) Commit() error {
	_, err := around(t.c, func() (struct{}, error) { return struct{}{}, t.Tx.Commit() })
	t.c.inside = false
	return err
}

func around[T any](c *dyingConn, run func() (T, error)) (T, error) {
	if c.inside {
		c.at.boundary()
	}
	result, err := run()
	if c.inside {
		c.at.boundary()
	}
	return result, err
}

// dyingProcess delivers into the ledger until it kills itself.
func dyingProcess() {
	at, err := strconv.Atoi(os.Getenv(killAt))
	must(err)
	plain, err := sql.Open(os.Getenv(killDriver), os.Getenv(killDSN))
	must(err)
	var inner driver.Connector = dsnOf{plain.Driver(), os.Getenv(killDSN)}
	if d, ok := plain.Driver().(driver.DriverContext); ok {
		inner, err = d.OpenConnector(os.Getenv(killDSN))
		must(err)
	}
	db := sqltx.OpenDB(dyingConnector{inner, &suicide{at}})
	store, err := sqlstore.Detect(context.Background(), db)
	must(err)
	_, err = startLedger(db, store)
	must(err)
	select {}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

type dsnOf struct {
	d   driver.Driver
	dsn string
}

func (c dsnOf) Connect(context.Context) (driver.Conn, error) { return c.d.Open(c.dsn) }
func (c dsnOf) Driver() driver.Driver                        { return c.d }

// startLedger starts one of several processes that deliver into the ledger, one event
// at a time.
func startLedger(db *sql.DB, store outbox.Store) (*outbox.Outbox, error) {
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store, Logger: slog.New(slog.DiscardHandler),
		Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: 1, MaxAttempts: 1000},
			Poll:     outbox.PollOptions{Interval: 10 * time.Millisecond, BatchSize: 1},
			Claim:    outbox.ClaimOptions{LeaseDuration: time.Second},
		},
		RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, 10*time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	a, err := sqltx.New(db, ob.Writer())
	if err != nil {
		return nil, err
	}
	err = ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		return a.RunInTx(context.WithValue(ctx, inListener{}, true), nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger (event_id) VALUES ('%s')", env.EventID)); err != nil {
				return err
			}
			return a.Complete(ctx, tx)
		})
	})))
	if err != nil {
		return nil, err
	}
	return ob, ob.Start(context.Background())
}

// A process is killed at each boundary of the statements of a listener's transaction.
// Each event has its effect once.
func TestAKillAtAnyStatementLeavesOneEffect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, plain *testdb.DB) {
		db := plain.Via(t, sqltx.Open)
		adaptertest.Exec(t, db.DB, "CREATE TABLE ledger (event_id VARCHAR(64) NOT NULL)")
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		w, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: outbox.WriterOnly{}})
		require.NoError(t, err)
		a, err := sqltx.New(db.DB, w.Writer())
		require.NoError(t, err)
		const events = boundaries + 2
		require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			for range events {
				if _, err := a.Write(ctx, tx, event()); err != nil {
					return err
				}
			}
			return nil
		}))
		name := map[testdb.Kind]string{testdb.Postgres: "pgx", testdb.MySQL: "mysql", testdb.SQLite: "sqlite"}[db.Kind]
		for at := range boundaries {
			child := osexec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), killAt+"="+strconv.Itoa(at), killDriver+"="+name, killDSN+"="+db.DSN)
			child.Stderr = os.Stderr
			require.EqualError(t, child.Run(), "signal: killed", "boundary %d", at)
		}
		ob, err := startLedger(db.DB, store)
		require.NoError(t, err)
		defer func() { _ = ob.Close(context.WithoutCancel(t.Context())) }()
		require.Eventually(t, func() bool {
			var left int
			err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE status <> 1").Scan(&left)
			return err == nil && left == 0
		}, time.Minute, 10*time.Millisecond)
		var effects, different int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*), COUNT(DISTINCT event_id) FROM ledger").Scan(&effects, &different))
		require.Equal(t, events, different)
		require.Equal(t, events, effects)
	})
}
