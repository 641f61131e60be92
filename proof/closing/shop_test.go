package closing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// ledger is what listeners and writers of all nodes of one table did.
type ledger struct {
	mu        sync.Mutex
	committed map[string]bool // true: the writer knows; false: the commit is in doubt
	done      map[string]int  // events whose listener returned without an error
	running   atomic.Int64    // listeners
	begun     atomic.Int64    // listeners, in all
}

func newLedger() *ledger { return &ledger{committed: map[string]bool{}, done: map[string]int{}} }

func (l *ledger) commit(id string, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed[id] = known
}

// answers is how many deliveries succeeded.
func (l *ledger) answers() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, times := range l.done {
		n += times
	}
	return n
}

// listen is a listener: it takes a moment, and heeds the end of its context.
func (l *ledger) listen(ctx context.Context, env outbox.Envelope) error {
	l.begun.Add(1)
	l.running.Add(1)
	defer l.running.Add(-1)
	timer := time.NewTimer(time.Duration(rand.IntN(3000)) * time.Microsecond) //nolint:gosec // any moment does.
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[env.EventID]++
	return nil
}

// listenBatch is a batch listener.
func (l *ledger) listenBatch(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
	errs := make([]error, len(batch))
	for i, env := range batch {
		errs[i] = l.listen(ctx, env)
	}
	return errs, nil
}

// node is one process on the table.
type node struct {
	*outbox.Outbox
	a *sqltx.Adapter
}

// open opens a node. It is not started.
func (l *ledger) open(t *testing.T, db *testdb.DB, k kind) node {
	t.Helper()
	ob, err := outbox.New(outbox.Config{
		DB: db.DB, Store: storeOf(db.Kind), Mode: k.mode,
		Purge: &outbox.PurgeOptions{}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	var listener outbox.Listener = outbox.ListenerFunc(l.listen)
	if k.batches {
		listener = outbox.BatchListener(outbox.BatchOptions{Size: 7, Wait: 3 * time.Millisecond}, l.listenBatch)
	}
	require.NoError(t, ob.Register(outbox.On("Order", "Placed", listener)))
	return node{ob, adaptertest.Adapter(t, db.DB, ob.Writer())}
}

func storeOf(kind testdb.Kind) *sqlstore.Store {
	opts := []sqlstore.Option{sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex(), sqlstore.WithAgeIndex()}
	return map[testdb.Kind]func(...sqlstore.Option) *sqlstore.Store{
		testdb.Postgres: sqlstore.Postgres, testdb.MySQL: sqlstore.MySQL, testdb.SQLite: sqlstore.SQLite,
	}[kind](opts...)
}

var serial atomic.Int64

// write writes some events in a transaction.
func (l *ledger) write(ctx context.Context, n node, count int) error {
	envs := make([]outbox.Envelope, count)
	for i := range envs {
		id := fmt.Sprintf("e%09d", serial.Add(1))
		envs[i] = outbox.Envelope{
			EventID: id, EventType: "Placed", AggregateType: "Order", AggregateID: id[8:], TenantID: id[9:], Payload: outbox.JSON(id),
		}
	}
	err := n.a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := n.a.WriteAll(ctx, tx, envs)
		return err
	})
	for _, env := range envs {
		if err == nil || errors.Is(err, outbox.ErrOutcomeUnknown) {
			l.commit(env.EventID, err == nil)
		}
	}
	return err
}

// writeUntil writes with several goroutines until stop is called, which waits for them. A
// writer whose write failed ends.
func (l *ledger) writeUntil(t *testing.T, n node, failed func(error)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			pause := time.NewTicker(5 * time.Millisecond)
			defer pause.Stop()
			for ctx.Err() == nil {
				if err := l.write(context.WithoutCancel(ctx), n, 1+rand.IntN(3)); err != nil { //nolint:gosec // any number does.
					failed(err)
					return
				}
				<-pause.C
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		writers.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// rows counts the rows of a condition.
func rows(t *testing.T, db *testdb.DB, where string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM outbox_event WHERE "+where).Scan(&n))
	return n
}

// claims are what an error of Close says is left.
type claims struct{ outcomes, leases int }

var (
	outcomesLeft = regexp.MustCompile(`(\d+) outcomes could not be stored`)
	leasesLeft   = regexp.MustCompile(`(\d+) leases could not be given back`)
)

// told reads an error of Close.
func told(t *testing.T, err error) (c claims) {
	t.Helper()
	if err != nil {
		c.outcomes, c.leases = number(t, outcomesLeft, err), number(t, leasesLeft, err)
	}
	return c
}

func number(t *testing.T, of *regexp.Regexp, err error) int {
	t.Helper()
	found := of.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// ignoring is how much longer Close may take where the driver ignores the end of a
// context: SQLite's while it waits for another writer, lib/pq while the server is silent.
func ignoring(db *testdb.DB) time.Duration {
	if db.Kind == testdb.SQLite || db.Name == "postgres/pq" {
		return 10 * time.Second
	}
	return 0
}
