package tablestats_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type source func(ctx context.Context) (outbox.Stats, error)

func (s source) Stats(ctx context.Context) (outbox.Stats, error) { return s(ctx) }

func newReader(t *testing.T, s source, onRead func(outbox.Stats, error)) *tablestats.Reader {
	t.Helper()
	r, err := tablestats.NewReader(outbox.NopMetrics{}, s, onRead)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func values(t *testing.T, r *tablestats.Reader) tablestats.Values {
	t.Helper()
	v, ok := r.Values(t.Context())
	require.True(t, ok)
	return v
}

func TestTableIsReadAtMostOnceInTheIntervalHoweverManyAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		r := newReader(t, func(context.Context) (outbox.Stats, error) {
			reads.Add(1)
			return outbox.Stats{}, nil
		}, func(outbox.Stats, error) {})
		require.Zero(t, reads.Load(), "nothing is read before somebody asks")
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 601 {
					_, ok := r.Values(t.Context())
					assert.True(t, ok)
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		wg.Wait() // a minute and 6,010 calls
		require.EqualValues(t, 5, reads.Load())
		time.Sleep(time.Hour)
		require.EqualValues(t, 5, reads.Load(), "nothing is read when nobody asks")
	})
}

func TestASlowTableDoesNotHoldUpACaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		r := newReader(t, func(ctx context.Context) (outbox.Stats, error) {
			if slow.Load() {
				<-ctx.Done()
				return outbox.Stats{}, ctx.Err()
			}
			return outbox.Stats{Pending: 5}, nil
		}, func(outbox.Stats, error) {})
		values(t, r)
		slow.Store(true)
		time.Sleep(tablestats.ReadInterval)

		began := time.Now()
		v := values(t, r)
		require.Equal(t, tablestats.Wait, time.Since(began))
		require.EqualValues(t, 5, v.Stats.Pending, "of the read before, 16 seconds old")
		time.Sleep(tablestats.ReadTimeout)
		began = time.Now()
		require.Equal(t, tablestats.Values{At: v.At, Failed: 1}, values(t, r))
		require.Zero(t, time.Since(began))
	})
}

func TestAReadThatNeverEndsIsTheOnlyOneAndATableThatIsNotUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var reads atomic.Int32
		r := newReader(t, func(context.Context) (outbox.Stats, error) {
			if reads.Add(1) > 1 {
				<-release // as with a driver that ignores the context
			}
			return outbox.Stats{Pending: 5}, nil
		}, func(outbox.Stats, error) {})
		for range 4 {
			values(t, r)
			time.Sleep(tablestats.ReadInterval)
		}
		v := values(t, r)
		require.EqualValues(t, 2, reads.Load())
		require.False(t, v.Up)
		require.Nil(t, v.Stats)
		close(release)
		synctest.Wait()
		require.True(t, values(t, r).Up)
	})
}

// The read that a caller begins ends after the caller: the next one gets the result.
func TestATableWhoseReadsOutlastACallerIsUp(t *testing.T) {
	t.Parallel()
	for interval, fresh := range map[time.Duration]bool{tablestats.ReadInterval: true, 61 * time.Second: true, 4 * time.Minute: true, time.Hour: false} {
		t.Run(interval.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t, func(ctx context.Context) (outbox.Stats, error) {
					time.Sleep(1500 * time.Millisecond)
					return outbox.Stats{Pending: 5}, ctx.Err()
				}, func(outbox.Stats, error) {})
				require.False(t, values(t, r).Up, "nothing is known yet")
				for range 5 {
					time.Sleep(interval)
					v := values(t, r)
					require.True(t, v.Up)
					require.Equal(t, fresh, v.Stats != nil)
				}
			})
		})
	}
}

func TestTheOneWhoAsksMayStopWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, func(context.Context) (outbox.Stats, error) {
			time.Sleep(500 * time.Millisecond)
			return outbox.Stats{Pending: 5}, nil
		}, func(outbox.Stats, error) {})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		v, ok := r.Values(ctx)
		require.True(t, ok)
		require.Nil(t, v.Stats)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		v, ok = r.Values(t.Context())
		require.True(t, ok)
		require.EqualValues(t, 5, v.Stats.Pending, "the read went on")
		require.Equal(t, 500*time.Millisecond, time.Since(began))
	})
}

func TestEachReadIsReportedExceptTheOneThatClosingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		var results []error // one at a time, so there is no lock
		reads := 0
		r := newReader(t, func(ctx context.Context) (outbox.Stats, error) {
			switch reads++; reads {
			case 1:
				return outbox.Stats{}, nil
			case 2:
				return outbox.Stats{}, away
			case 3:
				panic("no")
			}
			<-ctx.Done()
			return outbox.Stats{}, ctx.Err()
		}, func(_ outbox.Stats, err error) { results = append(results, err) })
		for range 4 {
			_, ok := r.Values(t.Context())
			require.True(t, ok)
			time.Sleep(tablestats.ReadInterval)
		}
		synctest.Wait()
		require.Len(t, results, 4)
		require.NoError(t, results[0])
		require.ErrorIs(t, results[1], away)
		require.EqualError(t, results[2], "panic: no")
		require.ErrorIs(t, results[3], context.DeadlineExceeded)

		go func() {
			_, ok := r.Values(context.Background())
			if ok {
				t.Error("a closed reader gave values")
			}
		}()
		synctest.Wait()
		require.NoError(t, r.Close())
		require.NoError(t, r.Close())
		synctest.Wait()
		time.Sleep(tablestats.ReadInterval)
		_, ok := r.Values(t.Context())
		require.False(t, ok)
		synctest.Wait()
		require.Equal(t, 5, reads, "nothing is read after closing")
		require.Len(t, results, 4)
	})
}

func TestClosingLetsGoWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := newReader(t, func(context.Context) (outbox.Stats, error) {
			<-answer // it ignores its context
			return outbox.Stats{}, nil
		}, func(outbox.Stats, error) {})
		let := make(chan time.Time, 1)
		go func() {
			_, ok := r.Values(t.Context())
			assert.False(t, ok)
			let <- time.Now()
		}()
		synctest.Wait()
		closed := time.Now().Add(100 * time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		require.ErrorContains(t, r.Close(), "goes on although its context ended")
		require.Equal(t, closed, <-let)
		close(answer)
		synctest.Wait()
	})
}
