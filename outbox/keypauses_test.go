package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
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

// sharing starts two processes that deliver from one table, and a process that only writes.
func sharing(t *testing.T, store *outboxtest.Store, hear [2]func(context.Context, outbox.Envelope) error) (nodes [2]*engine, operator *engine) {
	t.Helper()
	for i := range nodes {
		nodes[i] = start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: fmt.Sprint("node-", i)}}}, hear[i])
	}
	return nodes, start(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
}

// A listener of the first process pauses a key. The second process defers the events of the key without a
// call, and a third lifts the pause: the events of both come at once.
func TestThePauseOfAKeyHoldsInAllProcessesAndCanBeLifted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, a, b := outboxtest.NewStore(), newEndpoints(), newEndpoints()
		nodes, operator := sharing(t, store, [2]func(context.Context, outbox.Envelope) error{a.hear, b.hear})
		a.set("down", outbox.PauseKeyFor(2*time.Hour, errReceiverDown))
		ids := ofKey(nodes[0], "down", 5, "a")
		pass(6 * time.Second)
		for _, e := range []*engine{nodes[0], nodes[1], operator} {
			list, err := e.Paused(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, "down", list[0].AggregateID)
			require.Equal(t, "node-0", list[0].By)
			require.True(t, list[0].Automatic)
		}
		ids = append(ids, ofKey(nodes[1], "down", 5, "b")...)
		ofKey(nodes[1], "up", 5, "b")
		pass(time.Hour)
		require.Zero(t, b.called("down"), "the second process knows the pause")
		require.Len(t, b.delivered("up"), 5)
		requireNoAttempts(t, store)
		a.set("down", nil)
		row, _ := store.Row("downb00000")
		require.Equal(t, "the key is paused: provider down", row.LastError)

		require.NoError(t, operator.ResumeKey(t.Context(), outbox.EventKind{EventType: "Said"}, "other"))
		pass(10 * time.Second)
		require.Empty(t, b.delivered("down"), "the pause of another key was lifted")
		require.NoError(t, operator.ResumeKey(t.Context(), kindSaid, "down"))
		pass(10 * time.Second)
		require.ElementsMatch(t, ids, append(a.delivered("down"), b.delivered("down")...))
		list, err := operator.Paused(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
	})
}

// An event that was delayed by its writer to another time keeps this time when a pause is lifted.
func TestALiftedPauseLeavesDelayedEventsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := outboxtest.NewStore(), newEndpoints()
		nodes, operator := sharing(t, store, [2]func(context.Context, outbox.Envelope) error{r.hear, r.hear})
		until := time.Now().Add(time.Hour)
		require.NoError(t, operator.Pause(t.Context(), outbox.Pause{Kind: kindSaid, AggregateID: "a", Until: until, By: "ann"}))
		pass(6 * time.Second)
		later := said("later")
		later.AggregateID, later.AvailableAt = "a", until.Add(time.Millisecond)
		nodes[0].write(later)
		ids := ofKey(nodes[0], "a", 3, "x")
		pass(time.Minute)
		require.Zero(t, r.called("a"))
		require.NoError(t, nodes[1].ResumeKey(t.Context(), kindSaid, "a"))
		pass(10 * time.Second)
		require.ElementsMatch(t, ids, r.delivered("a"))
		pass(time.Hour)
		require.Len(t, r.delivered("a"), 4)
	})
}

// A shorter pause of an operator replaces the pause of a listener: the events come at its end.
func TestAnOperatorShortensThePauseOfAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := outboxtest.NewStore(), newEndpoints()
		nodes, operator := sharing(t, store, [2]func(context.Context, outbox.Envelope) error{r.hear, r.hear})
		r.set("a", outbox.PauseKeyFor(5*time.Hour, errReceiverDown))
		ids := ofKey(nodes[0], "a", 5, "x")
		pass(6 * time.Second)
		r.set("a", nil)
		r.called("a")
		require.NoError(t, operator.Pause(t.Context(), outbox.Pause{Kind: kindSaid, AggregateID: "a", Until: time.Now().Add(time.Minute)}))
		pass(50 * time.Second)
		require.Zero(t, r.called("a"))
		pass(20 * time.Second)
		require.ElementsMatch(t, ids, r.delivered("a"))
	})
}

// A table has a bounded number of paused keys. Further keys are paused in their process.
func TestFurtherKeysArePausedInTheirProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		var made atomic.Int32
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}}, func(context.Context, outbox.Envelope) error {
			made.Add(1)
			return outbox.PauseKeyFor(time.Hour, errReceiverDown)
		})
		envs := make([]outbox.Envelope, 1200)
		for i := range envs {
			envs[i] = said(fmt.Sprintf("e%05d", i))
			envs[i].AggregateID = envs[i].EventID
		}
		e.write(envs...)
		pass(time.Minute)
		list, err := e.Paused(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1000)
		require.EqualValues(t, 1200, made.Load())
		for i := range envs {
			envs[i].EventID += "b"
		}
		e.write(envs...)
		pass(time.Minute)
		require.EqualValues(t, 1200, made.Load())
	})
}

func TestAPauseOfAKeyThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	e := start(t, outbox.Config{Mode: outbox.MultiNode{}}, func(context.Context, outbox.Envelope) error { return nil })
	require.ErrorContains(t, e.Pause(t.Context(), outbox.Pause{Kind: kindSaid, AggregateID: "a"}), "Pause.Until is required for the pause of a key")
	require.ErrorContains(t, e.ResumeKey(t.Context(), kindSaid, ""), "aggregateID is empty")
	ordered := start(t, outbox.Config{Mode: outbox.OrderedByKey{}}, func(context.Context, outbox.Envelope) error { return nil })
	require.ErrorContains(t, ordered.Pause(t.Context(), outbox.Pause{Kind: kindSaid, AggregateID: "a", Until: time.Now().Add(time.Hour)}), "keeps an order")
}

// On databases: one process pauses the key, the other defers, and a process that only writes lifts the
// pause. Without an index the events stay deferred.
func TestThePauseOfAKeyIsLiftedOnDatabases(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]sqlstore.Option{"key index": {sqlstore.WithKeyIndex()}, "search index": {sqlstore.WithSearchIndex()}, "no index": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) { runLift(t, db, opts) })
		})
	}
}

func runLift(t *testing.T, db *testdb.DB, opts []sqlstore.Option) {
	ctx := t.Context()
	store, err := sqlstore.Detect(ctx, db.DB, opts...)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	kind := outbox.EventKind{AggregateType: "Endpoint", EventType: "Webhook"}
	var up atomic.Bool
	var delivered calls
	var made [2]atomic.Int32
	var nodes []*outbox.Outbox
	pools := []*sql.DB{db.DB, db.Reopen(t).DB, db.Reopen(t).DB}
	for i, pool := range pools {
		var mode outbox.Mode = outbox.WriterOnly{}
		if i < 2 {
			mode = outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: fmt.Sprint("node-", i)}, Poll: outbox.PollOptions{Interval: 50 * time.Millisecond}}
		}
		ob, err := outbox.New(outbox.Config{DB: pool, Store: store, Logger: quiet, Mode: mode})
		require.NoError(t, err)
		if i < 2 {
			require.NoError(t, ob.Register(outbox.On(kind.AggregateType, kind.EventType, outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
				made[i].Add(1)
				if !up.Load() {
					return outbox.PauseKeyFor(time.Hour, errors.New("receiver down"))
				}
				delivered.add(env.EventID)
				return nil
			}))))
			require.NoError(t, ob.Start(ctx))
			closeAfter(t, ob)
		}
		nodes = append(nodes, ob)
	}
	write := func(i, n int) {
		a := adaptertest.Adapter(t, pools[i], nodes[i].Writer())
		for range n {
			require.NoError(t, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.Write(ctx, tx, outbox.Envelope{AggregateType: kind.AggregateType, AggregateID: "7", EventType: kind.EventType, Payload: outbox.JSON(i)})
				return err
			}))
		}
	}
	eventually := func(what string, condition func() bool) {
		t.Helper()
		require.Eventually(t, condition, 60*time.Second, 5*time.Millisecond, what)
	}
	deferred := func() (n int) {
		_ = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE last_error LIKE '%receiver down' AND status = 0 AND locked_by IS NULL").Scan(&n)
		return n
	}
	write(0, 10)
	eventually("an operator sees the pause", func() bool {
		list, err := nodes[2].Paused(ctx)
		return err == nil && len(list) == 1 && list[0].AggregateID == "7" && list[0].Automatic
	})
	eventually("the events of the first process are deferred", func() bool { return deferred() == 10 })
	require.NoError(t, nodes[1].ResumeKey(ctx, kind, "other")) // reads the pauses
	before := made[1].Load()
	write(1, 10)
	eventually("the events of the second process are deferred", func() bool { return deferred() == 20 })
	require.Equal(t, before, made[1].Load(), "the second process called its listener")
	up.Store(true)
	if err := nodes[2].ResumeKey(ctx, kind, "7"); err != nil { // a statement of a process may still have a row; the processes make it due
		require.ErrorContains(t, err, "the pause has ended, but the events that it deferred could not be made due: open transactions have locked some of the events")
	}
	list, err := nodes[2].Paused(ctx)
	require.NoError(t, err)
	require.Empty(t, list)
	if opts == nil {
		require.Equal(t, 20, deferred())
		return
	}
	eventually("all events come", func() bool {
		events, _ := delivered.total()
		return events == 20
	})
	for _, ob := range nodes[:2] {
		require.NoError(t, ob.Close(context.Background()))
	}
	_, deliveries := delivered.total()
	require.Equal(t, 20, deliveries, "an event was delivered twice")
}

// refusingTakeBack is a store that takes nothing back for a while.
type refusingTakeBack struct {
	*outboxtest.Store
	refuses atomic.Bool
}

func (s *refusingTakeBack) memory() *outboxtest.Store { return s.Store }

func (s *refusingTakeBack) TakeBack(ctx context.Context, tx outbox.Execer, w outbox.Waiting, c outbox.Change) (outbox.TakenBack, error) {
	if s.refuses.Load() {
		return outbox.TakenBack{}, errors.New("away")
	}
	return s.Store.TakeBack(ctx, tx, w, c)
}

// The events of a key that was resumed cannot be made due at first. The pause is over, and the process that
// knows the pause tries again.
func TestTheEventsOfAResumedKeyAreMadeDueLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r, book := &refusingTakeBack{Store: outboxtest.NewStore()}, newEndpoints(), &logbook{}
		node := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}, Logger: slog.New(book)}, r.hear)
		operator := start(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
		r.set("a", outbox.PauseKeyFor(time.Hour, errReceiverDown))
		ids := ofKey(node, "a", 5, "x")
		pass(6 * time.Second)
		r.set("a", nil)
		store.refuses.Store(true)
		anna := outbox.WithOperator(t.Context(), outbox.Operator{Name: "anna"})
		require.ErrorContains(t, operator.ResumeKey(anna, kindSaid, "a"), "the pause has ended, but the events that it deferred could not be made due: away")
		list, err := operator.Paused(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
		changes, err := operator.Audit(t.Context(), outbox.AuditQuery{})
		require.NoError(t, err)
		require.Len(t, changes.Rows, 1, "the pause has ended")
		require.Equal(t, "__GLOBAL__/Said aggregate_id=a", changes.Rows[0].Target)
		pass(time.Minute)
		require.Empty(t, r.delivered("a"))
		require.NotEmpty(t, book.about("the events of a key that was resumed could not be made due"))
		require.Empty(t, book.about("could not be stored"))
		store.refuses.Store(false)
		pass(10 * time.Second)
		require.ElementsMatch(t, ids, r.delivered("a"))
	})
}

// refusingPauses is a store that stores no pauses.
type refusingPauses struct{ *outboxtest.Store }

func (s *refusingPauses) memory() *outboxtest.Store { return s.Store }

func (s *refusingPauses) Pause(context.Context, outbox.DB, outbox.Pause) error {
	return errors.New("away")
}

// The pause of a key that could not be stored yet ends in the process that made it.
func TestAPauseOfAKeyThatIsNotStoredIsLifted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newEndpoints()
		node := start(t, outbox.Config{Store: &refusingPauses{outboxtest.NewStore()}, Mode: outbox.MultiNode{}}, r.hear)
		r.set("a", outbox.PauseKeyFor(time.Hour, errReceiverDown))
		ids := ofKey(node, "a", 5, "x")
		pass(6 * time.Second)
		r.set("a", nil)
		ids = append(ids, ofKey(node, "a", 5, "y")...)
		pass(time.Minute)
		require.Empty(t, r.delivered("a"), "the pause holds in its process")
		require.NoError(t, node.ResumeKey(t.Context(), kindSaid, "a"))
		pass(10 * time.Second)
		require.ElementsMatch(t, ids, r.delivered("a"))
	})
}

// A key is resumed, and paused again for a shorter time by another process, before the process that paused
// it first reads the pauses. The first process does not keep to the pause that was lifted.
func TestAKeyIsPausedAgainForAShorterTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, a, b := outboxtest.NewStore(), newEndpoints(), newEndpoints()
		nodes, operator := sharing(t, store, [2]func(context.Context, outbox.Envelope) error{a.hear, b.hear})
		a.set("a", outbox.PauseKeyFor(5*time.Hour, errReceiverDown))
		ids := ofKey(nodes[0], "a", 5, "x")
		pass(6 * time.Second)
		a.set("a", nil)
		b.set("a", outbox.PauseKeyFor(10*time.Second, errReceiverDown))
		require.NoError(t, operator.ResumeKey(t.Context(), kindSaid, "a"))
		require.NoError(t, nodes[1].ResumeKey(t.Context(), kindSaid, "other")) // reads the pauses
		ids = append(ids, ofKey(nodes[1], "a", 5, "y")...)
		pass(500 * time.Millisecond)
		b.set("a", nil)
		pass(time.Minute)
		ids = append(ids, ofKey(nodes[0], "a", 5, "z")...)
		pass(time.Minute)
		require.ElementsMatch(t, ids, append(a.delivered("a"), b.delivered("a")...))
	})
}

// A pause is replaced by a longer pause, by an operator or by a delivery that began before the pause. When
// the longer pause is lifted, the events that the first pause deferred come too.
func TestALongerPauseIsLifted(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"operator": nil, "listener": outbox.PauseKeyFor(2*time.Hour, errReceiverDown)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, r := outboxtest.NewStore(), newEndpoints()
				hear := func(ctx context.Context, env outbox.Envelope) error {
					if env.EventID == "slow" && answer != nil {
						time.Sleep(20 * time.Second)
						return answer
					}
					return r.hear(ctx, env)
				}
				nodes, operator := sharing(t, store, [2]func(context.Context, outbox.Envelope) error{hear, hear})
				slow := said("slow")
				slow.AggregateID = "a"
				nodes[0].write(slow)
				pass(time.Second)
				pause := outbox.Pause{Kind: kindSaid, AggregateID: "a", Until: time.Now().Add(time.Hour)}
				asked := pause
				asked.Kind.AggregateType, asked.Automatic = outbox.Global, true
				require.NoError(t, store.Pause(t.Context(), store.DB(), asked))
				pass(6 * time.Second)
				ids := append(ofKey(nodes[0], "a", 5, "x"), ofKey(nodes[1], "a", 5, "y")...)
				pass(6 * time.Second)
				if answer == nil {
					pause.Until = pause.Until.Add(time.Hour)
					require.NoError(t, operator.Pause(t.Context(), pause))
				}
				pass(20 * time.Second)
				require.NotSubset(t, r.delivered("a"), ids[:1], "the key is paused")
				require.NoError(t, operator.ResumeKey(t.Context(), kindSaid, "a"))
				pass(30 * time.Second)
				require.Subset(t, r.delivered("a"), ids)
			})
		})
	}
}
