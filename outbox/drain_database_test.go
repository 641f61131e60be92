package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
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

// drainer is a function's process: an outbox on a pool of its own, which is never started.
type drainer struct {
	*outbox.Outbox
	db      *testdb.DB
	adapter *sqltx.Adapter
}

// indexed is the store of a database, with the indexes that the modes need.
func indexed(t *testing.T, db *testdb.DB) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.Detect(t.Context(), db.DB, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	return store
}

func newDrainer(t *testing.T, db *testdb.DB, store *sqlstore.Store, mode outbox.Mode, fn outbox.ListenerFunc) *drainer {
	t.Helper()
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: mode, Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("", "Said", fn)))
	closeAfter(t, ob)
	return &drainer{ob, db, adaptertest.Adapter(t, db.DB, ob.Writer())}
}

func (d *drainer) write(t *testing.T, envs ...outbox.Envelope) {
	t.Helper()
	require.NoError(t, d.adapter.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := d.adapter.WriteAll(ctx, tx, envs)
		return err
	}))
}

// leavesNoTrace checks that no lease is in the table, and no process in the control table.
func (d *drainer) leavesNoTrace(t *testing.T, store *sqlstore.Store) {
	t.Helper()
	nodes, err := d.Nodes(t.Context())
	require.NoError(t, err)
	require.Empty(t, nodes, "holders, reports and owners of leases")
	list, err := store.Ranges(t.Context(), d.db.DB)
	require.NoError(t, err)
	require.Empty(t, list.Ranges)
}

// keysInOrder notes deliveries, and the events that came after a later event of their key.
type keysInOrder struct {
	mu    sync.Mutex
	calls map[string]int
	last  map[string]string
	early []string
}

func (k *keysInOrder) add(env outbox.Envelope) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls[env.EventID]++
	if env.EventID < k.last[env.AggregateID] {
		k.early = append(k.early, env.EventID)
	}
	k.last[env.AggregateID] = env.EventID
}

// Eight processes drain at once. In the modes in which one process holds the table, the others
// return at once.
func TestManyProcessesDrainAtOnce(t *testing.T) {
	t.Parallel()
	for name, mode := range everyMode {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
				const keys, each = 20, 50
				store := indexed(t, db)
				order := &keysInOrder{calls: map[string]int{}, last: map[string]string{}}
				processes := make([]*drainer, 8)
				for i := range processes {
					processes[i] = newDrainer(t, db.Reopen(t), store, mode, func(_ context.Context, env outbox.Envelope) error {
						order.add(env)
						return nil
					})
				}
				for key := range keys {
					processes[0].write(t, numbered(fmt.Sprintf("k%02d", key), each)...)
				}
				var all sync.WaitGroup
				var done atomic.Int64
				for _, p := range processes {
					all.Go(func() {
						got, err := p.Drain(t.Context(), keys*each)
						if err != nil {
							t.Error(err)
						}
						done.Add(int64(got.Done))
					})
				}
				all.Wait()
				got, err := processes[0].Drain(t.Context(), keys*each)
				require.NoError(t, err, "the events that others had when a Drain looked for them")
				require.Zero(t, got.Left)
				require.EqualValues(t, keys*each, done.Load()+int64(got.Done))
				require.Len(t, order.calls, keys*each)
				for id, n := range order.calls {
					require.Equal(t, 1, n, id)
				}
				if name == "by key" || name == "ordered" {
					require.Empty(t, order.early)
				}
				processes[0].leavesNoTrace(t, store)
			})
		})
	}
}

// A warm instance drains again and again. The pool may be closed as soon as a Drain has returned.
func TestAProcessDrainsManyTimes(t *testing.T) {
	t.Parallel()
	for name, mode := range everyMode {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
				store := indexed(t, db)
				done := func(context.Context, outbox.Envelope) error { return nil }
				p := newDrainer(t, db.Reopen(t), store, mode, done)
				for i := range 20 {
					p.write(t, numbered(fmt.Sprint("k", i), 3)...)
					got, err := p.Drain(t.Context(), 100)
					require.NoError(t, err)
					require.Equal(t, outbox.Drained{Done: 3}, got)
				}
				p.leavesNoTrace(t, store)
				p.write(t, numbered("last", 30)...)
				got, err := p.Drain(t.Context(), 10)
				require.NoError(t, err)
				require.Equal(t, outbox.Drained{Done: 10, Left: 20, More: true}, got)
				require.NoError(t, p.db.Close())

				next := newDrainer(t, db, store, mode, done)
				got, err = next.Drain(t.Context(), 100)
				require.NoError(t, err)
				require.Equal(t, outbox.Drained{Done: 20}, got)
				next.leavesNoTrace(t, store)
			})
		})
	}
}

// drainLease is the lease of the processes of [TestAProcessThatIsKilledInADrain].
const drainLease = time.Second

// drainModes are modes whose leases are short.
var drainModes = map[string]outbox.Mode{
	"single": outbox.SingleNode{},
	"multi":  outbox.MultiNode{Claim: outbox.ClaimOptions{LeaseDuration: drainLease}},
	"by key": outbox.OrderedByKey{Claim: outbox.ClaimOptions{LeaseDuration: drainLease}},
}

// drainMode is the mode of a child process.
const drainMode = "OUTBOX_TEST_DRAIN_MODE"

// drainProcess drains, with a listener that never returns, until it is killed.
func drainProcess() {
	ctx := context.Background()
	db, err := sql.Open(os.Getenv(processDriver), os.Getenv(processDSN))
	check(err)
	store, err := sqlstore.Detect(ctx, db, sqlstore.WithKeyIndex())
	check(err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Logger: quiet, Mode: drainModes[os.Getenv(drainMode)]})
	check(err)
	began := make(chan struct{}, 100)
	check(ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
		began <- struct{}{}
		select {}
	}))))
	go func() {
		<-began
		fmt.Println("began")
	}()
	_, err = ob.Drain(ctx, 100)
	check(err)
}

func TestAProcessThatIsKilledInADrain(t *testing.T) {
	for name, mode := range drainModes {
		t.Run(name, func(t *testing.T) {
			t.Setenv(drainMode, name)
			for _, target := range adaptertest.Main() {
				t.Run(target.Name, func(t *testing.T) {
					db := testdb.Open(t, target)
					store := indexed(t, db)
					var c calls
					p := newDrainer(t, db, store, mode, func(_ context.Context, env outbox.Envelope) error {
						c.add(env.EventID)
						return nil
					})
					for i := range 20 {
						p.write(t, of(fmt.Sprint("k", i), fmt.Sprintf("e%02d", i)))
					}
					process, next := startProcess(t, "drain", db)
					require.Equal(t, "began", next())
					require.NoError(t, process.Kill())
					_, err := process.Wait()
					require.NoError(t, err)
					done := 0
					require.Eventually(t, func() bool {
						got, err := p.Drain(t.Context(), 100)
						require.NoError(t, err)
						require.Equal(t, 20, got.Done+got.Left+done)
						done += got.Done
						return got.Left == 0
					}, time.Minute, 50*time.Millisecond)
					events, deliveries := c.total()
					require.Equal(t, []int{20, 20}, []int{events, deliveries})
				})
			}
		})
	}
}
