package shared_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/shared"
)

func TestRequestsShareAReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var v shared.Value[int]
		reads, going := 0, make(chan struct{})
		read := func(context.Context) (int, error) {
			reads++
			<-going
			return reads, nil
		}
		got := make(chan int, 10)
		for range cap(got) {
			go func() {
				n, _ := v.Get(t.Context(), time.Second, read)
				got <- n
			}()
		}
		synctest.Wait()
		ended, end := context.WithCancel(t.Context())
		end()
		_, err := v.Get(ended, time.Second, read)
		require.ErrorIs(t, err, context.Canceled, "a request that ends does not wait")
		close(going)
		for range cap(got) {
			require.Equal(t, 1, <-got)
		}
		get := func() int {
			n, err := v.Get(t.Context(), time.Second, read)
			require.NoError(t, err)
			return n
		}
		time.Sleep(time.Second - 1)
		require.Equal(t, 1, get(), "the value is not old yet")
		time.Sleep(time.Nanosecond)
		require.Equal(t, 2, get(), "the value is old")
		v.Forget()
		require.Equal(t, 3, get(), "the value is forgotten")
		time.Sleep(time.Nanosecond)
		v.Set(time.Now(), 7)
		require.Equal(t, 7, get())
		before := time.Now()
		v.Forget()
		v.Set(before, 8)
		require.Equal(t, 4, get(), "what was read before the change is not shown")
	})
}

func TestAReadingOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	var v shared.Value[int]
	deadline := time.Now().Add(time.Hour)
	ctx, end := context.WithDeadline(t.Context(), deadline)
	n, err := v.Get(ctx, time.Hour, func(ctx context.Context) (int, error) {
		end()
		limit, _ := ctx.Deadline()
		require.Equal(t, deadline, limit)
		return 1, ctx.Err()
	})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestARequestThatWaitedForAFailureReadsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var v shared.Value[int]
		going, ended := make(chan struct{}), make(chan error)
		go func() {
			_, err := v.Get(t.Context(), time.Hour, func(context.Context) (int, error) {
				<-going
				return 0, context.DeadlineExceeded
			})
			ended <- err
		}()
		synctest.Wait()
		go func() { close(going) }()
		n, err := v.Get(t.Context(), time.Hour, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	})
}

func TestAnErrorIsNotKept(t *testing.T) {
	t.Parallel()
	var v shared.Value[int]
	_, err := v.Get(t.Context(), time.Hour, func(context.Context) (int, error) { return 0, errors.New("away") })
	require.EqualError(t, err, "away")
	require.Panics(t, func() {
		_, _ = v.Get(t.Context(), time.Hour, func(context.Context) (int, error) { panic("broken") })
	})
	n, err := v.Get(t.Context(), time.Hour, func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// Both contexts end at the same instant, and the caller asks its own why the read failed.
func TestAReadThatReachedItsDeadlineEndsAfterTheRequestsContext(t *testing.T) {
	t.Parallel()
	for range 500 {
		var v shared.Value[int]
		ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		_, err := v.Get(ctx, 0, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, errors.New("the driver's own text")
		})
		require.Error(t, err)
		require.Error(t, ctx.Err())
		cancel()
	}
}
