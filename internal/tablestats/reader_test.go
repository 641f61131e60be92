package tablestats_test

import (
	"context"
	"errors"
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
	r, err := tablestats.NewReader(s, onRead)
	require.NoError(t, err)
	return r
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
