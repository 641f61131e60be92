package outbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// keyLease is the lease of the processes that deliver by key. On a busy machine a claim
// takes a second, and what it claimed is only delivered while the lease lasts.
const keyLease = 3 * time.Second

// The environment of a process that delivers by key, beside its database: the
// listeners' log, its workers, and one in how many deliveries stops it. A process
// that is stopped has one worker. Then no other delivery can be between the look at
// its lease and the first line of its listener.
const (
	keyLog     = "OUTBOX_TEST_KEY_LOG"
	keyWorkers = "OUTBOX_TEST_KEY_WORKERS"
	keyStops   = "OUTBOX_TEST_KEY_STOPS"
)

func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	check(err)
	return n
}

// byKeyProcess delivers by key until it is killed or terminated.
func byKeyProcess() {
	ctx := context.Background()
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	db, err := sql.Open(os.Getenv(processDriver), os.Getenv(processDSN))
	check(err)
	db.SetMaxOpenConns(10) // four processes, beside the other tests, have one server
	store, err := sqlstore.Detect(ctx, db, sqlstore.WithKeyIndex())
	check(err)
	lines, err := os.OpenFile(os.Getenv(keyLog), os.O_APPEND|os.O_WRONLY, 0o600)
	check(err)
	l := &keyListener{db: db, table: store.Table(), lines: lines, owner: fmt.Sprint("process-", os.Getpid()), stops: number(keyStops)}
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store, Logger: quiet, RetryPolicy: outbox.ExponentialBackoff(5*time.Millisecond, 20*time.Millisecond),
		Mode: outbox.OrderedByKey{
			Dispatch:  outbox.DispatchOptions{Workers: number(keyWorkers), MaxAttempts: 1000, MarkInterval: 20 * time.Millisecond},
			Poll:      outbox.PollOptions{Interval: 50 * time.Millisecond},
			Claim:     outbox.ClaimOptions{LeaseDuration: keyLease, Owner: l.owner},
			RunLength: 8,
		},
	})
	check(err)
	check(ob.Register(outbox.On("", "Said", outbox.ListenerFunc(l.deliver))))
	check(ob.Start(ctx))
	<-terminated
	check(ob.Close(ctx))
	os.Exit(0)
}

// keyListener is the listener of a process. Its deliveries write lines into the log;
// one in ten fails.
type keyListener struct {
	db         *sql.DB
	table      string
	owner      string
	lines      *os.File
	stops      int
	deliveries atomic.Int64
}

func (l *keyListener) deliver(ctx context.Context, env outbox.Envelope) error {
	n := l.deliveries.Add(1)
	line := func(kind string) {
		_, err := fmt.Fprintf(l.lines, "%s %s %s %s/%d\n", kind, env.AggregateID, env.EventID, l.owner, n)
		check(err)
	}
	line(began)
	// Had another process taken the event over before the line was in the log, the
	// place of the line would mean nothing.
	held, err := l.holds(ctx, env.EventID)
	switch {
	case err != nil:
		return err
	case !held:
		line(overtaken)
		return errors.New("another process has the event")
	}
	line(confirmed)
	if l.stops > 0 && (n == 1 || rand.N(l.stops) == 0) {
		line(stopped)
		fmt.Println("stops")
		check(syscall.Kill(os.Getpid(), syscall.SIGSTOP))
	}
	<-time.After(rand.N(2 * time.Millisecond))
	if rand.N(10) == 0 {
		return errors.New("boom")
	}
	line(succeeded)
	return nil
}

// holds reports whether this process still has the lease of an event.
func (l *keyListener) holds(ctx context.Context, id string) (bool, error) {
	var lease sql.NullString
	err := l.db.QueryRowContext(ctx, "SELECT locked_by FROM "+l.table+" WHERE event_id = '"+id+"'").Scan(&lease)
	return strings.HasPrefix(lease.String, l.owner+"/"), err
}

// keyNodes are the processes of one test.
type keyNodes struct {
	t       *testing.T
	db      *testdb.DB
	log     string
	closing chan struct{}
	most    int // kills of one process, which then delivers what is left
	kills   atomic.Int32
	wg      sync.WaitGroup
}

func (n *keyNodes) start(workers, stops int) (*exec.Cmd, io.Reader) {
	child := exec.Command(os.Args[0])
	driver := map[testdb.Kind]string{testdb.Postgres: "pgx", testdb.MySQL: "mysql"}[n.db.Kind]
	child.Env = append(os.Environ(), processName+"=by key", processDriver+"="+driver, processDSN+"="+n.db.DSN,
		keyLog+"="+n.log, keyWorkers+"="+strconv.Itoa(workers), keyStops+"="+strconv.Itoa(stops))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err = errors.Join(err, child.Start()); err != nil {
		n.t.Error(err)
	}
	return child, out
}

// killed keeps a process running that is killed again and again.
func (n *keyNodes) killed(workers int) {
	n.wg.Go(func() {
		for kills := 0; ; kills++ {
			child, _ := n.start(workers, 0)
			if kills < n.most {
				select {
				case <-time.After(400*time.Millisecond + rand.N(800*time.Millisecond)):
					_ = child.Process.Kill()
					_ = child.Wait()
					n.kills.Add(1)
					continue
				case <-n.closing:
				}
			}
			<-n.closing
			n.end(child, n.closing)
			return
		}
	})
}

// stopped keeps a process running that stops itself: each time it goes on when its
// lease is over, at about the time at which another process takes its events over.
func (n *keyNodes) stopped(stops int) {
	child, out := n.start(1, stops)
	ended := make(chan struct{})
	n.wg.Go(func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			<-time.After(keyLease + rand.N(keyLease/5))
			_ = child.Process.Signal(syscall.SIGCONT)
		}
	})
	n.wg.Go(func() {
		<-n.closing
		n.end(child, ended)
	})
}

// end terminates a process, which closes its outbox.
func (n *keyNodes) end(child *exec.Cmd, read <-chan struct{}) {
	_ = child.Process.Signal(syscall.SIGTERM)
	<-read // all that it prints
	// One that has not begun to wait for the signal ends by it.
	if err := child.Wait(); err != nil && err.Error() != "signal: terminated" {
		n.t.Errorf("a process: %v", err)
	}
}

// Four processes deliver many keys. One delivery in ten fails, two processes are
// killed again and again, and two are stopped within a listener until their leases
// are over. The log of the listeners shows no event out of its order.
func TestManyProcessesKeepEachKeysOrder(t *testing.T) {
	t.Parallel()
	keys, rounds, kills := 40, 16, 6
	if os.Getenv(longTests) != "" {
		keys, rounds, kills = 1000, 40, 40
	}
	testdb.Each(t, serverTargets(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB, sqlstore.WithKeyIndex())
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		n := &keyNodes{t: t, db: db, closing: make(chan struct{}), most: kills, log: filepath.Join(t.TempDir(), "log")}
		require.NoError(t, os.WriteFile(n.log, nil, 0o600))
		writer, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet, Mode: outbox.WriterOnly{}})
		require.NoError(t, err)
		for range 2 {
			n.killed(8)
			n.stopped(40)
		}
		for round := range rounds {
			n.write(writer, keys, round)
			<-time.After(rand.N(400 * time.Millisecond))
		}
		done := func() bool {
			st, err := writer.Stats(t.Context())
			require.NoError(t, err)
			require.Zero(t, st.Dead)
			return st.Pending == 0
		}
		for deadline := time.Now().Add(5 * time.Minute); !done() && time.Now().Before(deadline); {
			<-time.After(20 * time.Millisecond)
		}
		close(n.closing)
		n.wg.Wait()
		require.True(t, done(), "events were lost")
		log, err := os.ReadFile(n.log)
		require.NoError(t, err)
		checked := checkKeys(string(log), rounds)
		t.Logf("%d deliveries of %d events, %d again; %d kills, %d stops; %d began when another process had the event",
			checked.deliveries, keys*rounds, checked.again, n.kills.Load(), checked.stops, checked.overtaken)
		for _, wrong := range checked.wrong { // and all that the log has of its key
			for line := range strings.Lines(string(log)) {
				if fields := strings.Fields(line); strings.Contains(" "+wrong, " "+fields[1]+" ") {
					t.Log(strings.TrimSpace(line))
				}
			}
		}
		require.Empty(t, checked.wrong)
		require.Len(t, checked.keys, keys)
		require.Less(t, checked.overtaken, checked.deliveries/10, "deliveries that began when another process had their event")
		require.Positive(t, checked.stops)
		require.Positive(t, n.kills.Load())
	})
}

// write writes one event of each key.
func (n *keyNodes) write(writer *outbox.Outbox, keys, round int) {
	envs := make([]outbox.Envelope, keys)
	for key := range envs {
		envs[key] = of(fmt.Sprint("k", key), fmt.Sprintf("k%d-%05d", key, round))
	}
	tx, err := n.db.BeginTx(n.t.Context(), nil)
	require.NoError(n.t, err)
	_, err = writer.Writer().WriteUnmanaged(n.t.Context(), tx, envs)
	require.NoError(n.t, err)
	require.NoError(n.t, tx.Commit())
}

func serverTargets() (targets []testdb.Target) {
	for _, target := range testdb.Main() {
		if target.Kind != testdb.SQLite { // a stopped process would keep its file locked
			targets = append(targets, target)
		}
	}
	return targets
}
