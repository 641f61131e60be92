package outbox_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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
	e := start(t, outbox.Config{Logger: slog.New(book)}, func(context.Context, outbox.Envelope) error {
		done <- struct{}{}
		return nil
	})
	for range 100 {
		e.write(said(""))
	}
	for range 100 {
		receive(t, done)
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
	require.EqualValues(t, 16, started["workers"].Int64())
	require.Equal(t, 5*time.Second, mustDuration(t, started["poll_interval"]))
	require.Equal(t, "no purge", started["retention"].String())
	require.NotEmpty(t, started["owner"].String())
}

func TestAnEventHasOneLineForEachDeliveryThatFailed(t *testing.T) {
	t.Parallel()
	book := &logbook{}
	e := start(t, outbox.Config{
		Logger: slog.New(book), RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond),
		Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 4}},
	}, func(_ context.Context, env outbox.Envelope) error {
		if env.Attempts == 1 {
			panic("second")
		}
		return errors.New("no")
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
		{slog.LevelWarn, "outbox: delivery failed; it will be tried again"},
		{slog.LevelError, "outbox: a listener panicked"},
		{slog.LevelWarn, "outbox: delivery failed; it will be tried again"},
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
				}}, func(context.Context, outbox.Envelope) error { return nil })
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
		e := start(t, outbox.Config{Store: &broken{Store: outboxtest.NewStore()}, Logger: slog.New(book)}, handled)
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
		e := start(t, outbox.Config{Store: &lostDeadMark{Store: outboxtest.NewStore()}, Logger: slog.New(book), Metrics: counts}, handled)
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
		}, func(context.Context, outbox.Envelope) error { return nil })
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

// mustDuration is a duration that a line has as text.
func mustDuration(t *testing.T, v slog.Value) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(v.String())
	require.NoError(t, err)
	return d
}

// Thousands of events that die for one reason are a few lines: the first ones, and sums.
func TestFailuresOfOneCauseAreSummedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := start(t, outbox.Config{
			Logger: slog.New(book), RetryPolicy: outbox.ExponentialBackoff(time.Second, time.Second),
			Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 2}, Poll: outbox.PollOptions{Interval: time.Second}},
		}, func(_ context.Context, env outbox.Envelope) error {
			if env.AggregateID == "another" {
				return errors.New("the other cause")
			}
			return fmt.Errorf("order %s: the mail server is away", env.AggregateID)
		})
		for i := range 500 {
			env := said("")
			env.AggregateID = fmt.Sprint(i)
			e.write(env)
		}
		time.Sleep(30 * time.Second)
		env := said("")
		env.AggregateID = "another"
		e.write(env)
		time.Sleep(5 * time.Minute)
		require.NoError(t, e.Close(context.Background()))
		for _, message := range []string{"delivery failed; it will be tried again", "event is dead"} {
			lines := book.about(message)
			require.EqualValues(t, 501, counted(lines), message)
			require.Less(t, len(lines), 20, message)
			other := 0
			for _, l := range lines {
				require.NotEmpty(t, l.attrs["event_id"].String())
				if l.attrs["aggregate_id"].String() == "another" {
					other++
				}
			}
			require.Equal(t, 1, other, "the other cause has a line of its own")
		}
	})
}

// So many causes that they are not kept apart do not take more memory.
func TestFailuresOfManyCausesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		e := start(t, outbox.Config{
			Logger: slog.New(book), Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1}},
		}, func(_ context.Context, env outbox.Envelope) error {
			return errors.New("cause " + env.AggregateID)
		})
		for i := range 1000 {
			env := said("")
			env.AggregateID = string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10))
			e.write(env)
		}
		time.Sleep(3 * time.Minute)
		require.NoError(t, e.Close(context.Background()))
		lines := book.about("event is dead")
		require.EqualValues(t, 1000, counted(lines))
		require.Less(t, len(lines), 120)
	})
}

// sometimesAway is a store whose polls fail now and then.
type sometimesAway struct {
	*outboxtest.Store
	away atomic.Bool
}

func (s *sometimesAway) memory() *outboxtest.Store { return s.Store }

func (s *sometimesAway) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	if s.away.Load() {
		return outbox.Batch{}, errors.New("away")
	}
	return s.Store.Poll(ctx, db, q)
}

// What a program that reads logs as JSON relies on: a key has one type, and a duration is
// no number of nanoseconds.
func TestEachLogKeyHasOneTypeInJSON(t *testing.T) {
	t.Parallel()
	types := map[string]string{}
	for name, purge := range map[string]*outbox.PurgeOptions{"purged": {Interval: time.Minute, Retention: time.Minute}, "kept": nil} {
		synctest.Test(t, func(t *testing.T) {
			var text bytes.Buffer
			store := &sometimesAway{Store: outboxtest.NewStore()}
			e := start(t, outbox.Config{Store: store, Purge: purge, Logger: slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})), Mode: outbox.SingleNode{
				Dispatch: outbox.DispatchOptions{MaxAttempts: 2, HotCapacity: 1}, Poll: outbox.PollOptions{Interval: time.Second},
			}}, func(_ context.Context, env outbox.Envelope) error {
				if env.AggregateID == "1" {
					panic("boom")
				}
				return errors.New("no")
			})
			for i := range 3 {
				env := said("")
				env.AggregateID = fmt.Sprint(i)
				e.write(env)
			}
			time.Sleep(3 * time.Minute)
			store.away.Store(true)
			time.Sleep(2 * time.Minute)
			store.away.Store(false)
			time.Sleep(2 * time.Minute)
			require.NoError(t, e.Close(context.Background()))
			synctest.Wait()
			lines := bytes.Split(bytes.TrimSpace(text.Bytes()), []byte("\n"))
			require.Greater(t, len(lines), 5, name)
			for _, line := range lines {
				attrs := map[string]any{}
				require.NoError(t, json.Unmarshal(line, &attrs))
				for key, value := range attrs {
					kind := fmt.Sprintf("%T", value)
					require.Equal(t, kind, cmp.Or(types[key], kind), "%s: %s", key, line)
					types[key] = kind
					if n, isNumber := value.(float64); isNumber {
						require.Less(t, n, 1e6, "%s is in nanoseconds: %s", key, line)
					}
				}
			}
		})
	}
	for _, key := range []string{"lasted", "poll_interval", "retention", "delay"} {
		require.Equal(t, "string", types[key], key)
	}
}
