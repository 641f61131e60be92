package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestABurstOfHotDropsIsAFewLinesWhoseCountsAddUp(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(e *engine){
		"when the minute is over":   func(*engine) { time.Sleep(2 * time.Minute) },
		"when the outbox is closed": func(e *engine) { _ = e.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book := &logbook{}
				leave := make(chan struct{})
				e := start(t, outbox.Config{Logger: slog.New(book), Mode: outbox.SingleNode{
					Dispatch: outbox.DispatchOptions{Workers: 1, HotCapacity: 1, DrainTimeout: time.Minute},
					Poll:     outbox.PollOptions{Interval: time.Hour, SkipRecent: time.Hour},
				}}, func(context.Context, outbox.Envelope) (outbox.Result, error) {
					<-leave
					return outbox.Done(), nil
				})
				e.write(said("running"))
				synctest.Wait()
				e.write(said("queued"))
				var wg sync.WaitGroup
				for i := range 10 {
					wg.Go(func() {
						for j := range 1000 {
							e.write(said(fmt.Sprintf("%d-%d", i, j)))
							if j%250 == 0 {
								time.Sleep(500 * time.Millisecond)
							}
						}
					})
				}
				wg.Wait()
				time.AfterFunc(5*time.Second, func() { close(leave) })
				end(e)
				lines := book.about("went past the hot queue")
				require.EqualValues(t, 10_000, counted(lines))
				require.LessOrEqual(t, len(lines), 5)
				for _, l := range lines {
					require.Equal(t, slog.LevelWarn, l.level)
				}
				time.Sleep(10 * time.Minute)
				require.Len(t, book.about("went past the hot queue"), len(lines), "nothing more comes after the end")
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

func TestALoneHotDropIsToldAtOnceAndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := build(t, outbox.Config{Logger: slog.New(book)}, nil) // not started: everything is a drop
		for range 3 {
			e.write(said(""))
			require.EqualValues(t, 1, counted(book.about("went past")[len(book.about("went past"))-1:]))
			time.Sleep(3 * time.Minute)
		}
		require.Len(t, book.all(), 3)
	})
}

func TestClosingTellsAtOnceWhatWasHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := build(t, outbox.Config{Logger: slog.New(book)}, nil)
		for range 100 {
			e.write(said(""))
		}
		require.EqualValues(t, 1, counted(book.about("went past")))
		require.NoError(t, e.Close(context.Background()))
		require.EqualValues(t, 100, counted(book.about("went past")))
	})
}

func TestALogHandlerMayWriteEventsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := build(t, outbox.Config{Logger: slog.New(book)}, nil)
		left := 3
		book.write = func() {
			if left--; left >= 0 {
				e.write(said(""))
			}
		}
		e.write(said(""))
		time.Sleep(10 * time.Minute)
		require.EqualValues(t, 4, counted(book.about("went past")))
	})
}

func TestOnlyTheStartAndTheEndAreLoggedWhenAllGoesWell(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	done := make(chan struct{}, 100)
	e := start(t, outbox.Config{Logger: slog.New(book)}, func(context.Context, outbox.Envelope) (outbox.Result, error) {
		done <- struct{}{}
		return outbox.Done(), nil
	})
	for range 100 {
		e.write(said(""))
	}
	for range 100 {
		<-done
	}
	require.NoError(t, e.Close(context.Background()))
	var messages []string
	for _, l := range book.all() {
		require.LessOrEqual(t, l.level, slog.LevelInfo, l.message)
		messages = append(messages, l.message)
	}
	require.Equal(t, []string{"outbox: started", "outbox: closed"}, messages)
	started := book.all()[0].attrs
	require.Equal(t, "single-node", started["mode"].String())
	require.EqualValues(t, outbox.DefaultWorkers, started["workers"].Int64())
	require.Equal(t, outbox.DefaultPollInterval, started["poll_interval"].Duration())
	require.Equal(t, "no purge", started["retention"].String())
	require.NotEmpty(t, started["owner"].String())
}

func TestAnEventHasOneLineForEachDeliveryThatFailed(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	e := start(t, outbox.Config{
		Logger: slog.New(book), RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond),
		Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 4}},
	}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
		if env.Attempts == 1 {
			panic("second")
		}
		return outbox.Result{}, errors.New("no")
	})
	env := said("failing")
	env.AggregateID, env.TenantID = "order-7", "secret-tenant"
	env.Headers = map[string]string{"authorization": "secret-header"}
	env.Payload = outbox.JSON("secret-payload")
	e.write(env)
	e.await("failing", outbox.StatusDead)
	require.NoError(t, e.Close(context.Background()))
	lines := book.problems()
	require.Len(t, lines, 4)
	for i, want := range []struct {
		level   slog.Level
		message string
	}{
		{slog.LevelWarn, "outbox: delivery failed, it will be tried again"},
		{slog.LevelError, "outbox: a listener panicked"},
		{slog.LevelWarn, "outbox: delivery failed, it will be tried again"},
		{slog.LevelError, "outbox: event is dead"},
	} {
		l := lines[i]
		require.Equal(t, want.level, l.level)
		require.Equal(t, want.message, l.message)
		require.Equal(t, "failing", l.attrs["event_id"].String())
		require.Equal(t, "Said", l.attrs["event_type"].String())
		require.Equal(t, string(outbox.Global), l.attrs["aggregate_type"].String())
		require.Equal(t, "order-7", l.attrs["aggregate_id"].String())
		require.EqualValues(t, i+1, l.attrs["attempts"].Int64())
		require.Contains(t, l.attrs, "error")
		require.Equal(t, i == 1, l.attrs["stack"].Kind() == slog.KindString && l.attrs["stack"].String() != "", "a panic's line tells where")
		require.NotContains(t, fmt.Sprint(l), "secret")
	}
}

// away is a store whose poll or whose outcomes fail.
type away struct {
	*outboxtest.Store
	poll, mark bool
}

func (s away) memory() *outboxtest.Store { return s.Store }

func (s away) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if s.poll {
		return outbox.Batch{}, errors.New("away")
	}
	return s.Store.Poll(ctx, db, q)
}

func (s away) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if s.mark {
		return nil, errors.New("away")
	}
	return s.Store.Mark(ctx, db, kind, marks)
}

func TestADatabaseThatIsAwayIsALineAMinute(t *testing.T) {
	t.Parallel()
	for text, store := range map[string]away{
		"polling failed":      {poll: true},
		"could not be stored": {mark: true},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book := &logbook{}
				store.Store = outboxtest.NewStore()
				e := start(t, outbox.Config{Store: store, Logger: slog.New(book), Mode: outbox.SingleNode{
					Dispatch: outbox.DispatchOptions{DrainTimeout: time.Second}, Poll: outbox.PollOptions{Interval: 10 * time.Millisecond},
				}}, func(context.Context, outbox.Envelope) (outbox.Result, error) { return outbox.Done(), nil })
				for i := range 1000 {
					e.write(said(fmt.Sprint(i)))
					time.Sleep(70 * time.Millisecond)
				}
				_ = e.Close(context.Background())
				synctest.Wait() // a line of this very moment may still be being written
				lines := book.about(text)
				time.Sleep(10 * time.Minute)
				require.Len(t, book.about(text), len(lines), "closing writes what is held back")
				require.Len(t, lines, 3, "one at the start, one after a minute, one at the end")
				require.Greater(t, counted(lines), int64(50))
				for _, l := range lines {
					require.Equal(t, slog.LevelError, l.level)
					require.Contains(t, l.attrs["error"].String(), "away")
				}
			})
		})
	}
}

// broken is a store with one row that cannot be decoded and that can be marked
// only at the fourth try.
type broken struct {
	*outboxtest.Store
	marks atomic.Int32
}

func (s *broken) memory() *outboxtest.Store { return s.Store }

func (s *broken) Poll(context.Context, outbox.DB, outbox.PollQuery) (outbox.Batch, error) {
	if s.marks.Load() > 3 {
		return outbox.Batch{}, nil
	}
	return outbox.Batch{Undecodable: []outbox.Undecodable{{EventID: "broken", Err: errors.New("headers are no map")}}}, nil
}

func (s *broken) Mark(context.Context, outbox.DB, outbox.Outcome, []outbox.Mark) (map[string]outbox.RowState, error) {
	if s.marks.Add(1) <= 3 {
		return nil, errors.New("away")
	}
	return nil, nil
}

func TestARowThatCannotBeDecodedIsToldOnceWhenItIsDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := start(t, outbox.Config{Store: &broken{Store: outboxtest.NewStore()}, Logger: slog.New(book)}, nil)
		time.Sleep(time.Minute)
		require.NoError(t, e.Close(context.Background()))
		require.EqualValues(t, 3, counted(book.about("could not be marked dead")))
		lines := book.about("cannot be decoded")
		require.Len(t, lines, 1)
		require.Equal(t, slog.LevelError, lines[0].level)
		require.Equal(t, "broken", lines[0].attrs["event_id"].String())
	})
}

// buried is a store with one row that cannot be decoded and whose first answer to
// marking it is lost.
type buried struct {
	*outboxtest.Store
	dead, lost atomic.Bool
}

func (s *buried) memory() *outboxtest.Store { return s.Store }

func (s *buried) Poll(context.Context, outbox.DB, outbox.PollQuery) (outbox.Batch, error) {
	if s.dead.Load() {
		return outbox.Batch{}, nil
	}
	return outbox.Batch{Undecodable: []outbox.Undecodable{{EventID: "broken", Err: errors.New("headers are no map")}}}, nil
}

func (s *buried) Mark(_ context.Context, _ outbox.DB, _ outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	var left map[string]outbox.RowState
	if !s.dead.CompareAndSwap(false, true) {
		left = alone(marks, outbox.RowState{Exists: true, Status: outbox.StatusDead})
	}
	if s.lost.CompareAndSwap(false, true) {
		return nil, errors.New("the answer was lost")
	}
	return left, nil
}

func TestARowThatCannotBeDecodedIsToldThoughTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, told := &logbook{}, &ledger{}
		e := start(t, outbox.Config{Store: &buried{Store: outboxtest.NewStore()}, Logger: slog.New(book), Metrics: told}, nil)
		time.Sleep(time.Minute)
		require.NoError(t, e.Close(context.Background()))
		require.Len(t, book.about("cannot be decoded"), 1)
		told.require(t, 0, 0, 1, 0, 0)
	})
}

// robbed is a store whose leases are always lost.
type robbed struct{ *outboxtest.Store }

func (s robbed) memory() *outboxtest.Store { return s.Store }

func (s robbed) Mark(_ context.Context, _ outbox.DB, _ outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	return alone(marks, outbox.RowState{Exists: true, Lease: "thief/1"}), nil
}

func TestLostLeasesAreAFewLinesWhoseCountsAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := start(t, outbox.Config{
			Store: robbed{outboxtest.NewStore()}, Logger: slog.New(book),
			Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}, Claim: outbox.ClaimOptions{Owner: "me"}},
		}, func(context.Context, outbox.Envelope) (outbox.Result, error) { return outbox.Done(), nil })
		for range 1000 {
			e.write(said(""))
			synctest.Wait()
		}
		require.NoError(t, e.Close(context.Background()))
		lines := book.about("were refused")
		require.EqualValues(t, 1000, counted(lines))
		require.LessOrEqual(t, len(lines), 3)
		require.Equal(t, slog.LevelWarn, lines[0].level)
		require.Equal(t, "me", lines[0].attrs["owner"].String())
	})
}

// alone says that all rows were left alone, for they stand like this.
func alone(marks []outbox.Mark, state outbox.RowState) map[string]outbox.RowState {
	left := map[string]outbox.RowState{}
	for _, m := range marks {
		left[m.EventID] = state
	}
	return left
}
