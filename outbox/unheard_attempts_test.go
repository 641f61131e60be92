package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// How many attempts an event has, the rules of its listener say. A process without the listener, as
// before a deploy, leaves an event that failed more often than its own options allow.
func TestAProcessWithoutTheListenerCountsNoAttempts(t *testing.T) {
	t.Parallel()
	for name, mode := range modesThatLeave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := outboxtest.NewStore()
				cfg := outbox.Config{Store: store, Mode: mode, RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond)}
				newer := build(t, cfg, handled)
				require.NoError(t, newer.Register(outbox.On("", "Sung", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
					if env.Attempts == 12 {
						return outbox.RetryIn(10*time.Minute, errors.New("down"))
					}
					return errors.New("down")
				}), outbox.Rules{MaxAttempts: outbox.Endless})))
				require.NoError(t, newer.Start(t.Context()))
				newer.write(sung("lost"))
				time.Sleep(time.Minute)
				row, _ := store.Row("lost")
				require.Equal(t, 13, row.Attempts)
				require.Equal(t, outbox.StatusRetry, row.Status)
				require.NoError(t, newer.Close(context.Background()))
				older := start(t, outbox.Config{Store: store, Mode: mode}, handled)
				time.Sleep(time.Hour)
				row, _ = store.Row("lost")
				require.Equal(t, outbox.StatusRetry.String(), row.Status.String(), row.LastError)
				require.NoError(t, older.Close(context.Background()))
			})
		})
	}
}

// The same for a row of a named listener.
func TestAProcessWithoutTheNamedListenerCountsNoAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		cfg := outbox.Config{Store: store, RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond)}
		newer := build(t, cfg, nil)
		fails := outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			if env.Attempts == 12 {
				return outbox.RetryIn(10*time.Minute, errors.New("down"))
			}
			return errors.New("down")
		})
		require.NoError(t, newer.Register(
			outbox.On("", "Sung", fails, outbox.Named("mail"), outbox.Rules{MaxAttempts: outbox.Endless}),
			outbox.On("", "Sung", outbox.ListenerFunc(handled), outbox.Named("log")),
		))
		require.NoError(t, newer.Start(t.Context()))
		newer.write(sung("lost"))
		time.Sleep(time.Minute)
		require.NoError(t, newer.Close(context.Background()))
		older := build(t, outbox.Config{Store: store}, nil)
		require.NoError(t, older.Register(outbox.On("", "Sung", outbox.ListenerFunc(handled), outbox.Named("log"))))
		require.NoError(t, older.Start(t.Context()))
		time.Sleep(time.Hour)
		row := rowsBy(store)["mail"]
		require.Equal(t, outbox.StatusNew.String(), row.Status.String(), row.LastError)
		require.Equal(t, 13, row.Attempts)
		require.NoError(t, older.Close(context.Background()))
	})
}
