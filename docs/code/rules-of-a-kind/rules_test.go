package rulesofakind_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type order struct{ ID string }

var (
	loginCode = outbox.NewTopic[order]("user", "LoginCode")
	webhook   = outbox.NewTopic[order]("order", "Webhook")
)

type listenerOfOrders = func(context.Context, order, outbox.Envelope) error

func register(ob *outbox.Outbox, sendMail, post listenerOfOrders) error {
	return ob.Register(
		loginCode.Listen(sendMail, outbox.Rules{
			MaxAttempts:     3,
			ListenerTimeout: 10 * time.Second,
			Expires:         5 * time.Minute, // a code that comes later is of no use
		}),
		webhook.Listen(post, outbox.Rules{
			MaxAttempts: outbox.Endless,
			RetryPolicy: outbox.ExponentialBackoff(time.Second, time.Hour),
			OnDone:      outbox.Delete,
		}),
	)
}

func newOutbox(db outbox.DB, store outbox.Store) (*outbox.Outbox, error) {
	return outbox.New(outbox.Config{
		DB: db, Store: store, Logger: slog.New(slog.DiscardHandler),
		Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{
			Rules: map[outbox.EventKind]outbox.Rules{loginCode.Kind(): {Rate: 10, MaxAttempts: 5}},
		}},
	})
}

func TestTheRulesOfThePage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		ob, err := newOutbox(store.DB(), store)
		require.NoError(t, err)
		down := func(context.Context, order, outbox.Envelope) error { return errors.New("down") }
		require.NoError(t, register(ob, down, down))
		require.NoError(t, ob.Start(t.Context()))
		require.NoError(t, outbox.InTx(t.Context(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
			for i, env := range []outbox.Envelope{loginCode.Envelope("1", order{"1"}), loginCode.Envelope("2", order{"2"}), webhook.Envelope("3", order{"3"})} {
				env.EventID = fmt.Sprint(i)
				if i == 1 {
					env.OccurredAt = time.Now().Add(-time.Hour)
				}
				if _, err := ob.Writer().Write(ctx, env); err != nil {
					return err
				}
			}
			return nil
		}))
		time.Sleep(24 * time.Hour)
		require.NoError(t, ob.Close(context.Background()))
		code, _ := store.Row("0")
		require.Equal(t, outbox.StatusDead, code.Status)
		require.Equal(t, 5, code.Attempts)
		late, _ := store.Row("1")
		require.Equal(t, outbox.StatusDead, late.Status)
		require.Equal(t, "expired: not delivered within 5m0s after it occurred", late.LastError)
		hook, _ := store.Row("2")
		require.Equal(t, outbox.StatusRetry, hook.Status)
		require.Greater(t, hook.Attempts, 20)
	})
}
