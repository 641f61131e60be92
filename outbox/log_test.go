package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

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
		require.Equal(t, i == 1, l.attrs["stack"].Kind() == slog.KindString && l.attrs["stack"].String() != "", "only the line of the panic has a stack")
		require.NotContains(t, fmt.Sprint(l), "secret")
	}
}

// away is a store whose polls or marks fail.
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
					Dispatch: outbox.DispatchOptions{DrainTimeout: time.Second}, Poll: outbox.PollOptions{Interval: 50 * time.Millisecond},
				}}, func(context.Context, outbox.Envelope) (outbox.Result, error) { return outbox.Done(), nil })
				for i := range 200 {
					e.write(said(fmt.Sprint(i)))
					time.Sleep(350 * time.Millisecond)
				}
				_ = e.Close(context.Background())
				synctest.Wait() // the last line may still be written
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

// broken is a store with one row that cannot be decoded. The first three marks fail.
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

func TestARowThatCannotBeDecodedIsLoggedOnceWhenItIsDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := start(t, outbox.Config{Store: &broken{Store: outboxtest.NewStore()}, Logger: slog.New(book)}, nil)
		time.Sleep(time.Minute / 2) // not when the line that sums up is being written
		require.NoError(t, e.Close(context.Background()))
		require.EqualValues(t, 3, counted(book.about("could not be marked dead")))
		lines := book.about("cannot be decoded")
		require.Len(t, lines, 1)
		require.Equal(t, slog.LevelError, lines[0].level)
		require.Equal(t, "broken", lines[0].attrs["event_id"].String())
	})
}

// lostDeadMark is a store with one row that cannot be decoded. The first answer to its
// mark is lost.
type lostDeadMark struct {
	*outboxtest.Store
	dead, lost atomic.Bool
}

func (s *lostDeadMark) memory() *outboxtest.Store { return s.Store }

func (s *lostDeadMark) Poll(context.Context, outbox.DB, outbox.PollQuery) (outbox.Batch, error) {
	if s.dead.Load() {
		return outbox.Batch{}, nil
	}
	return outbox.Batch{Undecodable: []outbox.Undecodable{{EventID: "broken", Err: errors.New("headers are no map")}}}, nil
}

func (s *lostDeadMark) Mark(_ context.Context, _ outbox.DB, _ outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	var left map[string]outbox.RowState
	if !s.dead.CompareAndSwap(false, true) {
		left = alone(marks, outbox.RowState{Exists: true, Status: outbox.StatusDead})
	}
	if s.lost.CompareAndSwap(false, true) {
		return nil, errors.New("the answer was lost")
	}
	return left, nil
}

func TestARowThatCannotBeDecodedIsLoggedWhenTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book, counts := &logbook{}, &outcomeCounts{}
		e := start(t, outbox.Config{Store: &lostDeadMark{Store: outboxtest.NewStore()}, Logger: slog.New(book), Metrics: counts}, nil)
		time.Sleep(time.Minute)
		require.NoError(t, e.Close(context.Background()))
		require.Len(t, book.about("cannot be decoded"), 1)
		counts.require(t, 0, 0, 1, 0, 0)
	})
}

// lostLeases is a store whose leases are always lost.
type lostLeases struct{ *outboxtest.Store }

func (s lostLeases) memory() *outboxtest.Store { return s.Store }

func (s lostLeases) Mark(_ context.Context, _ outbox.DB, _ outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	return alone(marks, outbox.RowState{Exists: true, Lease: "thief/1"}), nil
}

func TestLostLeasesAreAFewLinesWhoseCountsAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := start(t, outbox.Config{
			Store: lostLeases{outboxtest.NewStore()}, Logger: slog.New(book),
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

// alone is the answer to marks that all rows are left alone, in the given state.
func alone(marks []outbox.Mark, state outbox.RowState) map[string]outbox.RowState {
	left := map[string]outbox.RowState{}
	for _, m := range marks {
		left[m.EventID] = state
	}
	return left
}
