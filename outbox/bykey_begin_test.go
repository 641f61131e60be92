package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// claiming is a store whose first claim of runs is carried out by a test.
type claiming struct {
	*sqlstore.Store
	first    sync.Once
	claim    func(claim func())
	released chan string // events that were given back
}

func (s *claiming) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (b outbox.Batch, err error) {
	ctx = context.WithoutCancel(ctx) // the claim is carried out, however long the test takes
	claim := func() { b, err = s.Store.Claim(ctx, db, q) }
	s.first.Do(func() { s.claim(claim); claim = func() {} })
	claim()
	return b, err
}

func (s *claiming) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	left, err := s.Store.Mark(ctx, db, outcome, marks)
	for _, m := range marks {
		if outcome == outbox.OutcomeReleased {
			s.released <- m.EventID
		}
	}
	return left, err
}

// A process has read the run of a key and claims it. Meanwhile a DEAD event of the key is replayed,
// and another process reads and claims the event, which is the first of the key now. The first
// process gives its run back.
func TestAnEventThatComesFirstWhileAProcessClaimsIsDeliveredAlone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store, err := sqlstore.Detect(ctx, db.DB, sqlstore.WithKeyIndex())
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		began := make(chan string, 10)
		goOn := make(chan struct{})
		release := sync.OnceFunc(func() { close(goOn) })
		var d diary
		node := func(name string, pool *sql.DB, claim func(func())) (*outbox.Outbox, *claiming) {
			s := &claiming{Store: store, claim: claim, released: make(chan string, 100)}
			ob, err := outbox.New(outbox.Config{DB: pool, Store: s, Logger: quiet, Mode: outbox.OrderedByKey{
				OnDead: outbox.SkipDead, Claim: outbox.ClaimOptions{Owner: name}, Poll: outbox.PollOptions{Interval: 20 * time.Millisecond},
			}})
			require.NoError(t, err)
			require.NoError(t, ob.Register(outbox.On(outbox.Global, "Said", outbox.ListenerFunc(d.listen(func(env outbox.Envelope) error {
				began <- env.EventID
				<-goOn
				return nil
			})))))
			t.Cleanup(func() {
				release()
				_ = ob.Close(context.Background())
			})
			return ob, s
		}
		hasRead, claimed, mayClaim := make(chan struct{}), make(chan struct{}), make(chan struct{})
		second, _ := node("second", db.Reopen(t).DB, func(claim func()) {
			close(hasRead)
			<-mayClaim
			claim()
			close(claimed)
		})
		first, firstStore := node("first", db.DB, func(claim func()) {
			n, err := store.ReplayDead(ctx, db.DB, []string{"before"}, time.Now(), outbox.StatusRetry)
			if err != nil || n != 1 {
				panic(fmt.Sprint("the dead event is not replayed: ", n, err))
			}
			if err := second.Start(ctx); err != nil {
				panic(err)
			}
			<-hasRead
			claim()
			close(mayClaim)
			<-claimed
		})
		adapter := adaptertest.Adapter(t, db.DB, first.Writer())
		write := func(id string) {
			require.NoError(t, adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := adapter.Write(ctx, tx, of("key", id))
				return err
			}))
		}
		write("before")
		_, err = store.Mark(ctx, db.DB, outbox.OutcomeDead, []outbox.Mark{{EventID: "before"}})
		require.NoError(t, err)
		write("behind")
		require.NoError(t, first.Start(ctx))
		require.Equal(t, "before", receive(t, began))
		select {
		case id := <-firstStore.released:
			require.Equal(t, "behind", id)
		case id := <-began:
			require.Fail(t, "two events of a key at the same time", id)
		case <-time.After(patience):
			require.Fail(t, "the first process keeps its run")
		}
		release()
		require.Equal(t, "behind", receive(t, began))
		require.Empty(t, d.bad)
	})
}

// looking is a store whose look at the keys a test answers.
type looking struct {
	*cutOff
	look func(begin []string) ([]string, error)
}

func (s *looking) BeginKeys(ctx context.Context, db outbox.DB, ids []string) ([]string, error) {
	begin, err := s.cutOff.BeginKeys(ctx, db, ids)
	if err != nil {
		return nil, err
	}
	return s.look(begin)
}

// leasesOf are the leases of the rows.
func leasesOf(store *outboxtest.Store) (leased []string) {
	for _, row := range store.Rows() {
		if row.LockedBy != "" {
			leased = append(leased, row.Envelope.EventID)
		}
	}
	return leased
}

// Without an answer to the look at the keys, all that was claimed is given back, a row that cannot
// be decoded included.
func TestRunsAreGivenBackWithoutALookAtTheirKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &looking{cutOff: &cutOff{Store: outboxtest.NewStore()}}
		var looks atomic.Int32
		store.look = func(begin []string) ([]string, error) {
			if looks.Add(1) <= 5 {
				return nil, errCut
			}
			return begin, nil
		}
		var d diary
		e := build(t, outbox.Config{Store: store, Mode: outbox.OrderedByKey{OnDead: outbox.SkipDead}}, d.listen(nil))
		e.write(slices.Concat(numbered("a", 3), numbered("b", 3))...)
		store.CorruptHeaders("a-00000")
		store.CorruptHeaders("b-00001")
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(20 * time.Second) // a lease lasts five minutes
		require.Greater(t, looks.Load(), int32(5))
		require.Equal(t, []string{"a-00001", "a-00002"}, d.of("a"))
		require.Equal(t, []string{"b-00000", "b-00002"}, d.of("b"))
		require.Empty(t, leasesOf(store.Store))
	})
}

// A row that cannot be decoded is given back, not DEAD, if another event begins its key by then.
func TestAnUndecodableEventThatBeginsItsKeyNoMoreIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &looking{cutOff: &cutOff{Store: outboxtest.NewStore()}}
		var looks atomic.Int32
		store.look = func(begin []string) ([]string, error) {
			if looks.Add(1) <= 3 { // another event begins the key
				return nil, nil
			}
			return begin, nil
		}
		e := build(t, outbox.Config{Store: store, Mode: outbox.OrderedByKey{}}, handled)
		e.write(of("a", "bad"))
		store.CorruptHeaders("bad")
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(10 * time.Second)
		e.await("bad", outbox.StatusDead)
		require.Equal(t, int32(4), looks.Load())
	})
}

// unburying is a store that stores no DEAD.
type unburying struct{ *cutOff }

func (s unburying) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if outcome == outbox.OutcomeDead {
		return nil, errCut
	}
	return s.cutOff.Mark(ctx, db, outcome, marks)
}

// The first row of a run that is taken over cannot be decoded, and cannot be marked DEAD. The rows
// behind it are given back.
func TestRowsBehindAnUndecodableTakeoverAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		died := &cutOff{Store: store}
		hang := make(chan struct{})
		defer close(hang)
		e, _ := keyNode(t, died, outbox.OrderedByKey{}, func(outbox.Envelope) error {
			died.down.Store(true)
			<-hang
			return nil
		})
		e.write(numbered("a", 3)...)
		time.Sleep(time.Second)
		require.Len(t, leasesOf(store), 3)
		store.CorruptHeaders("a-00000")
		start(t, outbox.Config{
			Store: unburying{&cutOff{Store: store}}, Mode: outbox.OrderedByKey{Claim: outbox.ClaimOptions{LeaseDuration: minute}},
		}, handled)
		time.Sleep(90 * time.Second) // the leases have expired, and the takeover is under way
		require.Equal(t, []string{"a-00000"}, leasesOf(store))
	})
}

// lags are the ages of the oldest event that batches had.
type lags struct {
	outbox.NopMetrics
	mu   sync.Mutex
	seen []time.Duration
}

func (l *lags) OldestLag(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, d)
}

// A read for takeovers that finds none does not say that the backlog has no lag; when the backlog is
// delivered, the lag is zero.
func TestTheLagByKeyIsThatOfTheFreeEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := &lags{}
		var d diary
		e := build(t, outbox.Config{Store: outboxtest.NewStore(), Metrics: metrics, Mode: outbox.OrderedByKey{Poll: outbox.PollOptions{BatchSize: 10}}}, d.listen(nil))
		for i := range 100 {
			e.write(of(fmt.Sprintf("k%d", i), fmt.Sprintf("e%d", i)))
		}
		time.Sleep(time.Hour)
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(time.Minute)
		metrics.mu.Lock()
		defer metrics.mu.Unlock()
		require.NotEmpty(t, metrics.seen)
		require.GreaterOrEqual(t, metrics.seen[0], time.Hour)
		require.Zero(t, metrics.seen[len(metrics.seen)-1])
		idle := slices.Index(metrics.seen, 0)
		require.Zero(t, slices.Max(metrics.seen[idle:]), "the lag was zero while events waited")
	})
}
