package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func ofTenant(tenant string, n int) []outbox.Envelope {
	envs := make([]outbox.Envelope, n)
	for i := range envs {
		envs[i] = outbox.Envelope{EventType: "Said", TenantID: tenant, Payload: outbox.JSON(i)}
	}
	return envs
}

// inTurn is a mode whose queue has a hundred events.
func inTurn(owner string) outbox.MultiNode {
	return outbox.MultiNode{
		Dispatch: outbox.DispatchOptions{Workers: 2, ColdCapacity: 100},
		Poll:     outbox.PollOptions{BatchSize: 100, Interval: time.Hour},
		Claim:    outbox.ClaimOptions{Owner: owner, TenantsInTurn: true},
	}
}

// writerOnly returns a function that writes to the table and delivers nothing.
func writerOnly(t *testing.T, db *testdb.DB, store outbox.Store) func(envs ...outbox.Envelope) {
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	a := adaptertest.Adapter(t, db.DB, ob.Writer())
	return func(envs ...outbox.Envelope) {
		require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := a.WriteAll(ctx, tx, envs)
			return err
		}))
	}
}

// A tenant has 5,000 events in the table, and a node delivers them. What another tenant
// writes meanwhile comes behind what is in the queue, and within a batch or two.
func TestATenantWithABacklogDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB, sqlstore.WithTenantIndex())
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		write := writerOnly(t, db, store)
		write(ofTenant("A", 5000)...)

		var mu sync.Mutex
		var total, ofB, last int
		written := make(chan struct{}) // closed: the other tenant has written
		pool := db.Reopen(t)
		node, err := outbox.New(outbox.Config{DB: pool.DB, Store: store, Logger: quiet, Mode: inTurn("node")})
		require.NoError(t, err)
		require.NoError(t, node.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			mu.Lock()
			if total++; env.TenantID == "B" {
				ofB, last = ofB+1, total
			}
			early := total > 300
			mu.Unlock()
			if early { // so that there is a backlog, however fast the node is
				<-written
			}
			return nil
		}))))
		closeAfter(t, node)
		require.NoError(t, node.Start(t.Context()))
		count := func() (int, int) {
			mu.Lock()
			defer mu.Unlock()
			return total, ofB
		}
		require.Eventually(t, func() bool { n, _ := count(); return n > 300 }, time.Minute, time.Millisecond)
		write(ofTenant("B", 20)...)
		committed, _ := count()
		close(written)
		require.Eventually(t, func() bool { _, n := count(); return n == 20 }, time.Minute, time.Millisecond)
		require.LessOrEqual(t, last-committed, 400)
	})
}

// Nothing waits for the poll interval, which is an hour, however nodes meet.
func TestNodesThatReadTenantsInTurnDeliverAllOnce(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	writer := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
	writer.write(ofTenant("large", 700)...)
	want := 700
	for i := range 40 {
		writer.write(ofTenant([]string{"", fmt.Sprint("tenant-", i)}[i%2], i)...)
		want += i
	}
	var c calls
	for i := range 3 {
		start(t, outbox.Config{Store: store, Mode: inTurn(fmt.Sprint("node-", i))}, func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		})
	}
	require.Eventually(t, func() bool { events, _ := c.total(); return events == want }, 20*time.Second, time.Millisecond)
	_, deliveries := c.total()
	require.Equal(t, want, deliveries)
}

// A read looks at 500 tenants, and there are more whose events are due later.
func TestReadingTenantsInTurnEndsWhereNothingIsDue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB, sqlstore.WithTenantIndex())
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		var envs []outbox.Envelope
		for i := range 600 {
			envs = append(envs, ofTenant(fmt.Sprintf("%04d", i), 1)...)
			envs[i].AvailableAt = time.Now().Add(time.Hour)
		}
		envs[550].AvailableAt = time.Time{}
		writerOnly(t, db, store)(envs...)
		cycles := &cycles{Store: store}
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: cycles, Mode: inTurn("node"), Logger: quiet})
		require.NoError(t, err)
		delivered := make(chan string, 600)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			delivered <- env.EventID
			return nil
		}))))
		require.NoError(t, ob.Start(t.Context()))
		closeAfter(t, ob)
		require.Eventually(t, func() bool { return len(delivered) == 1 && cycles.ended.Load() > 0 }, time.Minute, time.Millisecond)
		ended := cycles.ended.Load()
		ob.Wake() // now nothing is due
		require.Eventually(t, func() bool { return cycles.ended.Load() > ended }, time.Minute, time.Millisecond)
		require.Len(t, delivered, 1)
	})
}

// cycles is a store that counts the ends of cycles of the poller.
type cycles struct {
	*sqlstore.Store
	ended atomic.Int32
}

func (c *cycles) NextDue(ctx context.Context, db outbox.DB, after time.Time) (time.Time, error) {
	defer c.ended.Add(1)
	return c.Store.NextDue(ctx, db, after)
}

// lockedOnce is a store whose first claim finds no more than a few rows that are not
// locked.
type lockedOnce struct {
	*outboxtest.Store
	free   int
	claims atomic.Int32
}

func (s *lockedOnce) memory() *outboxtest.Store { return s.Store }

func (s *lockedOnce) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if len(q.EventIDs) > 0 && s.claims.Add(1) == 1 {
		if q.EventIDs = q.EventIDs[:s.free]; s.free == 0 {
			return outbox.Batch{}, nil
		}
	}
	return s.Store.Claim(ctx, db, q)
}

func TestLockedRowsOfTenantsAreReadAgain(t *testing.T) {
	t.Parallel()
	for _, events := range []int{3, 300} {
		for _, free := range []int{0, 1} {
			store := &lockedOnce{Store: outboxtest.NewStore(), free: free}
			build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil).write(ofTenant("A", events)...)
			var c calls
			start(t, outbox.Config{Store: store, Mode: inTurn("node")}, func(_ context.Context, env outbox.Envelope) error {
				c.add(env.EventID)
				return nil
			})
			require.Eventually(t, func() bool { _, n := c.total(); return n == events }, 20*time.Second, time.Millisecond, "%d events, %d free", events, free)
		}
	}
}

// trickle is a store in which another event is due at each look, as while others write.
type trickle struct {
	*outboxtest.Store
	mu      sync.Mutex
	lengths []int
}

func (s *trickle) memory() *outboxtest.Store { return s.Store }

func (s *trickle) ReadTenants(_ context.Context, _ outbox.DB, q outbox.TenantQuery) (outbox.Tenants, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lengths = append(s.lengths, q.Length)
	read := outbox.Tenants{End: true, Wrapped: true}
	for i := range min(len(s.lengths), 45) {
		read.EventIDs = append(read.EventIDs, fmt.Sprint("none-", i))
	}
	return read, nil
}

// A poller doubles how many events of a tenant it takes while it finds more of them. Nodes of a
// quiet table did so for ever: the number became negative, and the process died.
func TestATrickleOfEventsOfTenantsTakesNoMoreThanABatch(t *testing.T) {
	t.Parallel()
	store := &trickle{Store: outboxtest.NewStore()}
	build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil).write(ofTenant("A", 1)...)
	mode := inTurn("node")
	mode.Dispatch.ColdCapacity = 200 // room for a batch beside the event that waits for a worker
	start(t, outbox.Config{Store: store, Mode: mode}, func(context.Context, outbox.Envelope) error {
		return nil
	})
	var lengths []int
	require.Eventually(t, func() bool {
		store.mu.Lock()
		defer store.mu.Unlock()
		lengths = append(lengths[:0], store.lengths...)
		return len(lengths) >= 8
	}, 20*time.Second, time.Millisecond)
	require.Equal(t, []int{1, 2, 4, 8, 16, 32, 64, 100}, lengths[:8])
	for _, n := range lengths {
		require.LessOrEqual(t, n, 100)
	}
}

func TestTenantsInTurnNeedAStoreAndItsIndex(t *testing.T) {
	t.Parallel()
	memory := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: memory.DB(), Store: plainStore{memory}, Mode: inTurn("node")})
	require.ErrorContains(t, err, "Config.Store is a outbox_test.plainStore, which has no ReadTenants")
	_, err = outbox.New(outbox.Config{DB: memory.DB(), Store: memory, Mode: outbox.OrderedByKey{Claim: outbox.ClaimOptions{TenantsInTurn: true}}})
	require.ErrorContains(t, err, "Mode.Claim.TenantsInTurn is set, but OrderedByKey")
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet, Mode: inTurn("node")})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(handled))))
		require.ErrorContains(t, ob.Start(t.Context()), "ClaimOptions.TenantsInTurn needs the index idx_outbox_event_tenant, which sqlstore.WithTenantIndex() adds")
	})
}
