package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// nodeOf starts an outbox of a mode on a store; it is closed by the returned function.
func nodeOf(t *testing.T, store outbox.Store, mode outbox.Mode) (*outbox.Outbox, func()) {
	t.Helper()
	ob, err := outbox.New(outbox.Config{DB: outboxtest.NewStore().DB(), Store: store, Mode: mode})
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(handled))))
	require.NoError(t, ob.Start(t.Context()))
	return ob, func() { require.NoError(t, ob.Close(context.WithoutCancel(t.Context()))) }
}

func nodesOf(t *testing.T, ob *outbox.Outbox) []outbox.Node {
	t.Helper()
	nodes, err := ob.Nodes(t.Context())
	require.NoError(t, err)
	return nodes
}

func TestANodeReportsTheVersionOfItsProgram(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.Mode{outbox.MultiNode{}, outbox.WriterOnly{}} {
		synctest.Test(t, func(t *testing.T) {
			store := outboxtest.NewStore()
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: mode, Version: "v1.2.3"})
			require.NoError(t, err)
			require.NoError(t, ob.Start(t.Context()))
			synctest.Wait()
			require.Equal(t, "v1.2.3", nodesOf(t, ob)[0].Version)
			require.NoError(t, ob.Close(context.WithoutCancel(t.Context())))
		})
	}
	for version, problem := range map[string]string{
		strings.Repeat("é", 129): "Config.Version is 129 characters long; the limit is 128",
		"v1\nv2":                 "Config.Version holds the control character U+000A",
	} {
		_, err := outbox.New(outbox.Config{DB: outboxtest.NewStore().DB(), Store: outboxtest.NewStore(), Version: version})
		require.ErrorContains(t, err, problem)
	}
}

func TestANodeReportsWhileItRuns(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single-node":    outbox.SingleNode{},
		"multi-node":     outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: "web-1"}},
		"ordered-by-key": outbox.OrderedByKey{Claim: outbox.ClaimOptions{Owner: "web-1"}},
		"ordered":        outbox.Ordered{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ob, closing := nodeOf(t, outboxtest.NewStore(), mode)
				started := time.Now()
				synctest.Wait()
				nodes := nodesOf(t, ob)
				require.Len(t, nodes, 1)
				first := nodes[0]
				require.Equal(t, name, first.Mode)
				require.True(t, first.Live)
				require.WithinDuration(t, started, first.Started, time.Millisecond)
				if name == "multi-node" || name == "ordered-by-key" {
					require.Equal(t, "web-1", first.Owner)
				} else {
					require.True(t, first.Holds, "the owner is that of the hold")
				}
				time.Sleep(10*time.Second + time.Millisecond)
				synctest.Wait()
				second := nodesOf(t, ob)[0]
				require.InDelta(t, 9.5, second.SeenAt.Sub(first.SeenAt).Seconds(), 0.5)
				require.Equal(t, first.Started, second.Started)
				require.WithinDuration(t, time.Now(), second.LastPoll, 6*time.Second)
				closing()
				require.Empty(t, nodesOf(t, ob), "it withdrew its report")
			})
		})
	}
}

func TestAStandbyReportsToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		holder, closeHolder := nodeOf(t, store, outbox.SingleNode{})
		_, closeStandby := nodeOf(t, store, outbox.SingleNode{})
		time.Sleep(25 * time.Second)
		synctest.Wait()
		nodes := nodesOf(t, holder)
		require.Len(t, nodes, 2)
		require.NotEqual(t, nodes[0].Holds, nodes[1].Holds, "one of them holds the table")
		for _, n := range nodes {
			require.True(t, n.Live)
			require.Less(t, time.Since(n.SeenAt), 10*time.Second)
		}
		closeHolder()
		closeStandby()
		require.Empty(t, nodesOf(t, holder))
	})
}

func TestNodesThatStartTogetherDoNotReportTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		one, closeOne := nodeOf(t, store, outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: "one"}})
		_, closeOther := nodeOf(t, store, outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: "other"}})
		time.Sleep(15 * time.Second)
		nodes := nodesOf(t, one)
		require.NotEqual(t, nodes[0].SeenAt, nodes[1].SeenAt)
		closeOne()
		closeOther()
	})
}

func TestANodeWarnsOnceOfAnotherMode(t *testing.T) {
	t.Parallel()
	warnings := func(t *testing.T, second outbox.Mode) (lines []string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			store := outboxtest.NewStore()
			_, closeFirst := nodeOf(t, store, outbox.SingleNode{})
			_, closeWriter := nodeOf(t, store, outbox.WriterOnly{})
			synctest.Wait()
			log := slog.New(slogHandler(func(r slog.Record) {
				if r.Level == slog.LevelWarn && strings.Contains(r.Message, "another mode") {
					line := r.Message
					r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
					lines = append(lines, line)
				}
			}))
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: second, Logger: log})
			require.NoError(t, err)
			require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(handled))))
			require.NoError(t, ob.Start(t.Context()))
			time.Sleep(time.Minute)
			closeFirst()
			closeWriter()
			require.NoError(t, ob.Close(t.Context()))
		})
		return lines
	}
	require.Empty(t, warnings(t, outbox.SingleNode{}))
	require.Empty(t, warnings(t, outbox.WriterOnly{}))
	lines := warnings(t, outbox.MultiNode{})
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "give both the same mode mode=multi-node other_mode=single-node other=")
}

func TestANodeThatDiedInAnotherModeIsNoWarning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		require.NoError(t, store.Announce(t.Context(), nil, outbox.Node{Owner: "died", Mode: "ordered"}, time.Second))
		time.Sleep(2 * time.Second)
		log := slog.New(slogHandler(func(r slog.Record) { require.NotContains(t, r.Message, "another mode") }))
		ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.MultiNode{}, Logger: log})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(handled))))
		require.NoError(t, ob.Start(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, ob.Close(t.Context()))
	})
}

func TestAWriterReportsToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := outboxtest.NewStore()
		first, closeFirst := nodeOf(t, store, outbox.WriterOnly{})
		_, closeSecond := nodeOf(t, store, outbox.WriterOnly{})
		ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.MultiNode{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(handled))))
		require.NoError(t, ob.Start(t.Context()))
		time.Sleep(time.Minute)
		modes := map[string]int{}
		for _, n := range nodesOf(t, first) {
			require.True(t, n.Live)
			require.Equal(t, n.Mode == "multi-node", n.Delivers())
			modes[n.Mode]++
		}
		require.Equal(t, map[string]int{"writer-only": 2, "multi-node": 1}, modes)
		require.NotContains(t, log.String(), "in another mode", "a writer delivers nothing twice")
		require.NoError(t, ob.Close(t.Context()))
		closeFirst()
		require.Len(t, nodesOf(t, first), 1)
		closeSecond()
	})
}

// A database may answer reads and take no writes: each process knows by its report.
func TestWritesThatFailAreCounted(t *testing.T) {
	t.Parallel()
	for _, mode := range []outbox.Mode{outbox.WriterOnly{}, outbox.SingleNode{}} {
		synctest.Test(t, func(t *testing.T) {
			store := &unreported{Store: outboxtest.NewStore()}
			ob, closing := nodeOf(t, store, mode)
			failures := func() int {
				stats, err := ob.Stats(t.Context())
				require.NoError(t, err)
				return stats.WriteFailures
			}
			time.Sleep(35 * time.Second)
			require.GreaterOrEqual(t, failures(), 3)
			store.mended.Store(true)
			time.Sleep(11 * time.Second)
			require.Zero(t, failures())
			closing()
		})
	}
}

// unreported is a store that reports of nodes do not reach.
type unreported struct {
	*outboxtest.Store
	silent  bool
	mended  atomic.Bool
	reports atomic.Int64
}

func (m *unreported) answer(ctx context.Context) error {
	if m.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("no answer")
}

func (m *unreported) Announce(ctx context.Context, _ outbox.DB, _ outbox.Node, _ time.Duration) error {
	m.reports.Add(1)
	if m.mended.Load() {
		return nil
	}
	return m.answer(ctx)
}

func (m *unreported) Withdraw(ctx context.Context, _ outbox.DB, _ string) error { return m.answer(ctx) }

func TestAReportThatFailsIsTriedAgainAndHoldsUpNothing(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"refused": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &unreported{Store: outboxtest.NewStore(), silent: silent}
				_, closing := nodeOf(t, store, outbox.SingleNode{})
				time.Sleep(35 * time.Second)
				require.EqualValues(t, 5, store.reports.Load(), "at the start, after the first poll and every ten seconds")
				began := time.Now()
				closing()
				require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
			})
		})
	}
}

func TestANodeReportsItsFirstPollAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ob, closing := nodeOf(t, outboxtest.NewStore(), outbox.MultiNode{})
		polls := time.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		require.WithinDuration(t, polls, nodesOf(t, ob)[0].LastPoll, time.Second)
		closing()
	})
}

// lingering is a store whose driver ignores contexts while it withdraws a report.
type lingering struct {
	*outboxtest.Store
	takes time.Duration
	ended atomic.Bool
}

func (s *lingering) Withdraw(context.Context, outbox.DB, string) error {
	time.Sleep(s.takes)
	s.ended.Store(true)
	return nil
}

func TestCloseWaitsASecondForTheReportToBeWithdrawn(t *testing.T) {
	t.Parallel()
	for takes, problem := range map[time.Duration]string{
		900 * time.Millisecond: "", 3 * time.Second: "outbox: withdrawing the report of this node: it has not ended yet",
	} {
		t.Run(takes.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &lingering{Store: outboxtest.NewStore(), takes: takes}
				var closed atomic.Bool // after the withdrawal
				log := slog.New(slogHandler(func(r slog.Record) {
					if r.Message == "outbox: closed" {
						closed.Store(store.ended.Load())
					}
				}))
				ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.MultiNode{}, Logger: log})
				require.NoError(t, err)
				require.NoError(t, ob.Start(t.Context()))
				synctest.Wait()
				began := time.Now()
				err = ob.Close(t.Context())
				require.LessOrEqual(t, time.Since(began), time.Second)
				if problem == "" {
					require.NoError(t, err)
					require.True(t, closed.Load(), "closed is logged when nothing runs any more")
				} else {
					require.ErrorContains(t, err, problem)
				}
				time.Sleep(takes)
			})
		})
	}
}

// slogHandler is a handler that calls a function.
type slogHandler func(r slog.Record)

func (slogHandler) Enabled(context.Context, slog.Level) bool        { return true }
func (h slogHandler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }
func (h slogHandler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h slogHandler) WithGroup(string) slog.Handler                 { return h }

// The leases of a node may be behind the due events of a paused kind, which no search reaches.
func TestANodeReportsItsLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		release := make(chan struct{})
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: "web-1"}}}, func(context.Context, outbox.Envelope) error {
			<-release
			return nil
		})
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: outbox.EventKind{EventType: "Paused"}}))
		waiting := make([]outbox.Envelope, outbox.SearchLimit)
		for i := range waiting {
			waiting[i] = said(fmt.Sprintf("p%04d", i))
			waiting[i].EventType, waiting[i].AggregateType = "Paused", outbox.Global
			waiting[i].OccurredAt = time.Now().Add(-time.Hour)
			waiting[i].AvailableAt = waiting[i].OccurredAt
		}
		require.NoError(t, store.Insert(t.Context(), nil, waiting, "", time.Time{}))
		e.write(said("a"), said("b"), said("c"))
		time.Sleep(15 * time.Second)
		nodes := nodesOf(t, e.Outbox)
		require.Len(t, nodes, 1)
		require.Equal(t, 3, nodes[0].Leases)
		close(release)
		require.NoError(t, e.Close(t.Context()))
	})
}
