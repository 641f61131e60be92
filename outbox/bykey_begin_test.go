package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
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
		require.Equal(t, "before", <-began)
		select {
		case id := <-firstStore.released:
			require.Equal(t, "behind", id)
		case id := <-began:
			require.Fail(t, "two events of a key at the same time", id)
		}
		release()
		require.Equal(t, "behind", <-began)
		require.Empty(t, d.bad)
	})
}
