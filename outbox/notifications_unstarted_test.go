package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// withWriterOnly are all modes.
func withWriterOnly() map[string]outbox.Mode {
	modes := map[string]outbox.Mode{"writer only": outbox.WriterOnly{}}
	for name, mode := range everyMode {
		modes[name] = mode
	}
	return modes
}

// The process may end as soon as the commit has returned.
func TestACommitNotifiesIfTheOutboxWasNeverStarted(t *testing.T) {
	t.Parallel()
	for name, mode := range withWriterOnly() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, book := newBus(), &logbook{}
				e := build(t, outbox.Config{Mode: mode, Notifier: b, Logger: slog.New(book)}, noop)
				e.write(said("a"), said("b"))
				require.Len(t, b.take(), 1)
				delayed := said("later")
				delayed.DeliverAfter = time.Hour
				e.write(delayed)
				require.Len(t, b.take(), 1, "others have to know when the event is due")

				scope := outboxtest.NewScope(e.store.DB())
				for range 3 {
					_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("")})
					require.NoError(t, err)
				}
				require.Empty(t, b.take(), "nothing is sent in the transaction")
				require.NoError(t, scope.Commit())
				require.Len(t, b.take(), 1, "for all writes of a transaction")
				require.Empty(t, book.all(), "no line about a full hot queue")

				require.NoError(t, e.Close(t.Context()))
				require.Empty(t, b.take(), "nothing is left to be sent")
				e.write(said("late"))
				require.Empty(t, b.take(), "the pool may be closed")
			})
		})
	}
}

func TestANotificationThatFailsDoesNotFailTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, book := newBus(), &logbook{}
		b.set(func(b *bus) { b.err = errors.New("away") })
		e := build(t, outbox.Config{Mode: outbox.WriterOnly{}, Notifier: b, Logger: slog.New(book)}, nil)
		e.write(said("a"))
		require.Len(t, book.about("a notification could not be sent"), 1)
		b.set(func(b *bus) { b.err = nil })
		require.NoError(t, e.Close(t.Context()))
		require.Len(t, b.take(), 1, "Close tries again")
	})
}

func TestTheCloseOfAnOutboxThatWasNeverStartedNotifies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		idle := build(t, outbox.Config{Notifier: b}, noop)
		require.NoError(t, idle.Close(t.Context()))
		require.Empty(t, b.take(), "nothing was written")

		e := build(t, outbox.Config{Notifier: b}, noop)
		_, err := e.Writer().WriteUnmanaged(t.Context(), e.store.DB(), []outbox.Envelope{said("unseen")})
		require.NoError(t, err)
		require.Empty(t, b.take(), "the transaction may be open")
		require.NoError(t, e.Close(t.Context()))
		require.Len(t, b.take(), 1)
	})
}

// A started outbox notifies at most once in 20 ms, and only of events that others deliver.
func TestAStartedOutboxDoesNotNotifyInTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		e := start(t, outbox.Config{Mode: outbox.WriterOnly{}, Notifier: b}, nil)
		e.write(said("a"))
		require.Empty(t, b.take())
		pass(time.Second)
		require.Len(t, b.take(), 1)
	})
}

// Others learn when a retry becomes due. The Drain itself listens to nothing.
func TestADrainNotifiesAtItsEnd(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		b := newBus()
		e := build(t, outbox.Config{Mode: mode, Notifier: b}, func(context.Context, outbox.Envelope) error {
			require.Empty(t, b.wakes)
			return nil
		})
		e.write(said("a"))
		require.Len(t, b.take(), 1)
		e.drain(10)
		require.Len(t, b.take(), 1)
	})
}
