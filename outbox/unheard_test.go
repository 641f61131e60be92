package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// sung is an event of a kind for which [build] registers no listener.
func sung(id string) outbox.Envelope {
	return outbox.Envelope{EventID: id, EventType: "Sung", Payload: outbox.JSON(id)}
}

// modesThatLeave are the modes in which events without a listener stay as they are.
var modesThatLeave = map[string]outbox.Mode{
	"single node": outbox.SingleNode{}, "multi node": outbox.MultiNode{}, "ordered by key": outbox.OrderedByKey{},
	"tenants in turn": outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}}, "poller only": outbox.SingleNode{Dispatch: outbox.DispatchOptions{PollerOnly: true}},
}

// Events without a listener here are no failure: their rows stay as they were written, and hold up no
// other events. The log names the kind once.
func TestEventsWithoutAListenerStayAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, mode := range modesThatLeave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book := &logbook{}
				e := start(t, outbox.Config{Logger: slog.New(book), Mode: mode}, handled)
				var before []outboxtest.Row
				for i := range 10 {
					e.write(sung(fmt.Sprintf("sung-%d", i)), said(fmt.Sprintf("said-%d", i)))
				}
				before = rowsOf(e.store, "Sung")
				time.Sleep(time.Hour)
				for i := range 10 {
					e.await(fmt.Sprintf("said-%d", i), outbox.StatusDone)
				}
				for i, row := range rowsOf(e.store, "Sung") {
					require.Equal(t, outbox.StatusNew, row.Status)
					require.Zero(t, row.Attempts)
					require.Empty(t, row.LastError)
					require.Empty(t, row.LockedBy)
					require.Equal(t, before[i].AvailableAt, row.AvailableAt)
				}
				e.write(sung("later"))
				time.Sleep(time.Minute)
				row, _ := e.store.Row("later")
				require.Equal(t, outbox.StatusNew, row.Status)
				require.Empty(t, book.about("the hot queue"))
				lines := book.about("have no listener in this process")
				require.NotEmpty(t, lines)
				require.LessOrEqual(t, len(lines), 2, "the first event, and those that were in hand")
				require.Equal(t, "Sung", lines[0].attrs["event_type"].String())
				stats, err := e.Stats(t.Context())
				require.NoError(t, err)
				require.Equal(t, []outbox.EventKind{{AggregateType: outbox.Global, EventType: "Sung"}}, stats.Unheard)
				require.Equal(t, stats.Unheard, nodesOf(t, e.Outbox)[0].Unheard)
			})
		})
	}
}

// rowsOf are the rows of an event type, oldest first.
func rowsOf(store *outboxtest.Store, eventType outbox.EventType) (rows []outboxtest.Row) {
	for _, row := range store.Rows() {
		if row.Envelope.EventType == eventType {
			rows = append(rows, row)
		}
	}
	return rows
}

// A rolling deploy: the old process writes and reads events that only the new process knows.
func TestAProcessThatHasTheListenerDeliversTheOthers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"multi node", "ordered by key", "tenants in turn"} {
		for _, notified := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, notified %t", name, notified), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					bus, book := newBus(), &logbook{}
					cfg := outbox.Config{Store: outboxtest.NewStore(), Mode: modesThatLeave[name], Logger: slog.New(book)}
					within := 10 * time.Second // two intervals of the poller
					if notified {
						cfg.Notifier, within = bus, time.Second
					}
					older := start(t, cfg, handled)
					newer := build(t, cfg, handled)
					var got calls
					require.NoError(t, newer.Register(outbox.On("", "Sung", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
						got.add(env.EventID)
						return nil
					}))))
					require.NoError(t, newer.Start(t.Context()))
					time.Sleep(time.Minute)
					for i := range 20 {
						older.write(sung(fmt.Sprintf("sung-%d", i)), said(fmt.Sprintf("said-%d", i)))
						time.Sleep(within)
						require.Equal(t, 1, got.of(fmt.Sprintf("sung-%d", i)))
						older.await(fmt.Sprintf("said-%d", i), outbox.StatusDone)
					}
					require.Empty(t, book.about("the hot queue"))
					require.NoError(t, older.Close(context.Background()))
					require.NoError(t, newer.Close(context.Background()))
				})
			})
		}
	}
}

// The holder of the table keeps no event for ever: the process that follows delivers what waited.
func TestTheNextHolderDeliversWhatWaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		older := start(t, outbox.Config{Store: store}, handled)
		newer := build(t, outbox.Config{Store: store}, handled)
		require.NoError(t, newer.Register(outbox.On("", "Sung", outbox.ListenerFunc(handled))))
		require.NoError(t, newer.Start(t.Context()))
		older.write(sung("sung"))
		time.Sleep(time.Minute)
		row, _ := store.Row("sung")
		require.Equal(t, outbox.StatusNew, row.Status)
		require.NoError(t, older.Close(context.Background()))
		time.Sleep(2 * time.Second)
		newer.await("sung", outbox.StatusDone)
		require.NoError(t, newer.Close(context.Background()))
	})
}

// A process without listeners takes nothing from a process that has some: not the hold, no range and no
// lease.
func TestAProcessWithoutListenersOnlyWrites(t *testing.T) {
	t.Parallel()
	modes := map[string]outbox.Mode{"ordered": outbox.Ordered{}}
	maps.Copy(modes, modesThatLeave)
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book, bus := &logbook{}, newBus()
				store := outboxtest.NewStore()
				api := start(t, outbox.Config{Store: store, Logger: slog.New(book), Mode: mode, Notifier: bus}, nil)
				api.write(said("before"))
				time.Sleep(time.Hour)
				worker := start(t, outbox.Config{Store: store, Mode: mode, Notifier: bus}, handled)
				time.Sleep(time.Second)
				worker.await("before", outbox.StatusDone)
				api.write(said("one"), said("two"))
				time.Sleep(time.Second) // far less than the poll interval
				for _, row := range store.Rows() {
					require.Equal(t, outbox.StatusDone, row.Status)
					require.Zero(t, row.Attempts)
				}
				stats, err := api.Stats(t.Context())
				require.NoError(t, err)
				require.Zero(t, stats.PollInterval)
				nodes, err := api.Nodes(t.Context())
				require.NoError(t, err)
				require.Len(t, nodes, 2)
				delivering := slices.DeleteFunc(nodes, func(n outbox.Node) bool { return !n.Delivers() })
				require.Len(t, delivering, 1)
				require.Equal(t, []outbox.EventKind{{AggregateType: outbox.Global, EventType: "Said"}}, delivering[0].Kinds)
				require.NoError(t, api.Close(context.Background()))
				require.NoError(t, worker.Close(context.Background()))
				lines := book.problems()
				require.Len(t, lines, 1)
				require.Equal(t, "outbox: this process only writes because no listener is registered; register listeners, or use the mode WriterOnly", lines[0].message)
			})
		})
	}
}

func TestUnroutableEventsAreDeadWhereTheOptionSaysSo(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{OnUnroutable: outbox.KillUnroutable}},
		"ordered":     outbox.Ordered{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, outbox.Config{Mode: mode}, handled)
			e.write(sung("lost"))
			e.Wake()
			row := e.await("lost", outbox.StatusDead)
			require.Zero(t, row.Attempts)
			require.Equal(t, "outbox: unroutable: no listener is registered for __GLOBAL__/Sung: register one, here or in another process; a dead letter can then be replayed", row.LastError)
		})
	}
}

// Where a kind cannot be left out, its rows wait longer and longer.
func TestDeferralsOfUnroutableEventsGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, book := outboxtest.NewStore(), &logbook{}
		deferred := 0
		e := start(t, outbox.Config{Store: store, Logger: slog.New(book), Mode: outbox.Ordered{OnUnroutable: outbox.LeaveUnroutable}, Metrics: countDeferrals{n: &deferred}}, handled)
		e.write(sung("lost"), said("next"))
		e.Wake()
		time.Sleep(time.Hour)
		row, _ := store.Row("lost")
		require.Equal(t, outbox.StatusNew, row.Status)
		require.Zero(t, row.Attempts)
		require.Equal(t, "no listener for __GLOBAL__/Sung in the process that took it; deferred by 5m0s", row.LastError)
		e.await("next", outbox.StatusDone)
		require.NoError(t, e.Close(context.Background()))
		require.Greater(t, deferred, 9)
		require.Less(t, deferred, 30)
		require.LessOrEqual(t, len(book.about("have no listener")), 2*60, "a line a minute")
	})
}

type countDeferrals struct {
	outbox.NopMetrics
	n *int
}

func (c countDeferrals) Deferred(outbox.EventKind) { *c.n++ }

// A read leaves out a bounded number of kinds. The rows of the others are deferred.
func TestManyKindsWithoutAListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, outbox.Config{}, handled)
		for i := range 300 {
			env := sung(fmt.Sprintf("e-%d", i))
			env.EventType = outbox.EventType(fmt.Sprintf("Kind-%d", i))
			e.write(env)
		}
		e.write(said("known"))
		time.Sleep(time.Hour)
		e.await("known", outbox.StatusDone)
		stats, err := e.Stats(t.Context())
		require.NoError(t, err)
		require.Len(t, stats.Unheard, 100)
		untouched := 0
		for _, row := range e.store.Rows() {
			if row.Envelope.EventType != "Said" {
				require.Equal(t, outbox.StatusNew, row.Status)
				require.Zero(t, row.Attempts)
			}
			if row.Status == outbox.StatusNew && row.LastError == "" {
				untouched++
			}
		}
		require.Equal(t, 100, untouched)
		require.NoError(t, e.Close(context.Background()))
	})
}

// A registry may learn a listener after the start.
func TestAListenerThatComesLaterGetsWhatWaited(t *testing.T) {
	t.Parallel()
	for name, mode := range modesThatLeave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry := outbox.NewRegistry()
				require.NoError(t, registry.Register(outbox.On("", "Said", outbox.ListenerFunc(handled))))
				e := start(t, outbox.Config{Registry: registry, Mode: mode}, nil)
				e.write(sung("early"))
				time.Sleep(time.Hour)
				require.NoError(t, registry.Register(outbox.On("", "Sung", outbox.ListenerFunc(handled))))
				time.Sleep(10 * time.Second)
				e.await("early", outbox.StatusDone)
				stats, err := e.Stats(t.Context())
				require.NoError(t, err)
				require.Empty(t, stats.Unheard)
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

func TestADeferralKeepsItsReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		store := outboxtest.NewStore()
		e := start(t, outbox.Config{Store: store}, func(context.Context, outbox.Envelope) error {
			if calls++; calls == 1 {
				return fmt.Errorf("the broker is away: %w", outbox.Defer(time.Hour))
			}
			return outbox.Defer(time.Hour)
		})
		e.write(said("a"))
		for range 2 { // a deferral without a reason leaves the last one
			time.Sleep(time.Minute)
			row, _ := store.Row("a")
			require.Equal(t, "the broker is away: deferred for 1h0m0s", row.LastError)
			require.Equal(t, outbox.StatusNew, row.Status)
			time.Sleep(time.Hour)
		}
		require.NoError(t, e.Close(t.Context()))
	})
}

// An API and its worker may share a configuration, which has rules for the worker's listeners.
func TestRulesNeedNoListenerInAProcessThatOnlyWrites(t *testing.T) {
	t.Parallel()
	cfg := outbox.Config{Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{
		Rules: map[outbox.EventKind]outbox.Rules{{EventType: "Sung"}: {Rate: 1}},
	}}}
	require.NoError(t, build(t, cfg, nil).Start(t.Context()))
	require.ErrorContains(t, build(t, cfg, handled).Start(t.Context()), "for which no listener is registered")
}

// A report has room for 8 KiB of names: of the kinds with a listener all or none, of the others the
// first.
func TestTheReportOfANodeIsBounded(t *testing.T) {
	t.Parallel()
	long := func(i int) outbox.EventType {
		return outbox.EventType(fmt.Sprintf("%03d-%s", i, strings.Repeat("x", 120)))
	}
	for listeners, reported := range map[int]int{40: 41, 80: 0} {
		synctest.Test(t, func(t *testing.T) {
			e := build(t, outbox.Config{}, handled)
			for i := range listeners {
				require.NoError(t, e.Register(outbox.On("Order", long(i), outbox.ListenerFunc(handled))))
			}
			require.NoError(t, e.Start(t.Context()))
			for i := range 90 {
				env := sung(fmt.Sprintf("e-%d", i))
				env.EventType = long(i)
				e.write(env)
			}
			time.Sleep(time.Minute)
			node := nodesOf(t, e.Outbox)[0]
			require.Len(t, node.Kinds, reported)
			require.Greater(t, len(node.Unheard), 50)
			require.Less(t, len(node.Unheard), 70)
			require.Equal(t, long(0), node.Unheard[0].EventType)
			require.NoError(t, e.Close(t.Context()))
		})
	}
}

// awayAtFirst is a store whose first two checks fail.
type awayAtFirst struct {
	*outboxtest.Store
	checks int
}

func (s *awayAtFirst) memory() *outboxtest.Store { return s.Store }

func (s *awayAtFirst) Check(ctx context.Context, db outbox.DB, claims bool) error {
	if s.checks++; s.checks <= 2 {
		return errAway
	}
	return s.Store.Check(ctx, db, claims)
}

// Run starts again and again while the database is away.
func TestAProcessThatOnlyWritesSaysSoWhenItHasStarted(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	e := build(t, outbox.Config{Store: &awayAtFirst{Store: outboxtest.NewStore()}, Logger: slog.New(book)}, nil)
	require.ErrorIs(t, e.Start(t.Context()), errAway)
	require.ErrorIs(t, e.Start(t.Context()), errAway)
	require.Empty(t, book.about("only writes"))
	require.NoError(t, e.Start(t.Context()))
	require.Len(t, book.about("only writes"), 1)
}
