package notify_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/notify"
)

const (
	ms       = time.Millisecond
	interval = 5 * time.Second
)

var errAway, errClosed = errors.New("away"), errors.New("closed")

// bus is a channel within the process, and the reader that it wakes.
type bus struct {
	log strings.Builder

	mu     sync.Mutex
	err    error // of sending and listening
	mute   bool  // nothing arrives
	cut    chan struct{}
	woken  func() // nil: nobody listens
	began  time.Time
	sent   []time.Duration // since began
	heard  []time.Duration
	doubts int
	tries  int // to listen
}

func newBus() *bus { return &bus{began: time.Now(), cut: make(chan struct{})} }

func (b *bus) Table() string { return "outbox_event" }

func (b *bus) Notify(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.sent = append(b.sent, time.Since(b.began))
	if b.woken != nil && !b.mute {
		go b.woken()
	}
	return nil
}

func (b *bus) Listen(ctx context.Context, woken func()) error {
	b.mu.Lock()
	b.tries++
	err, cut := b.err, b.cut
	if err == nil {
		b.woken = woken
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	woken()
	defer b.set(func() { b.woken = nil })
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-cut:
		return nil
	}
}

func (b *bus) Doubt() { b.set(func() { b.doubts++ }) }
func (b *bus) Wake()  { b.set(func() { b.heard = append(b.heard, time.Since(b.began)) }) }

func (b *bus) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// sleep waits until everything that is due by then has happened, too.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// again forgets the past.
func (b *bus) again() {
	b.set(func() { b.began, b.sent, b.heard, b.doubts, b.tries = time.Now(), nil, nil, 0, 0 })
}

func (b *bus) start(t *testing.T, reader notify.Reader) *notify.Notifications {
	t.Helper()
	n := notify.New(b, reader, interval, slog.New(slog.NewTextHandler(&b.log, nil)), errClosed)
	require.NoError(t, n.Start(t.Context()))
	return n
}

func TestNotificationsAreSentApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		n := b.start(t, nil)
		for range 100 {
			n.Notify()
			sleep(ms)
		}
		sleep(time.Second)
		require.Equal(t, []time.Duration{0, 20 * ms, 40 * ms, 60 * ms, 80 * ms, 100 * ms}, b.sent)
		require.Zero(t, b.tries, "without a reader nobody listens")

		b.again()
		n.NotifyLater()
		sleep(time.Minute)
		require.Equal(t, []time.Duration{10 * ms, 100 * ms, time.Second}, b.sent)

		b.again()
		n.NotifyLater()
		require.NoError(t, n.Close(t.Context()))
		require.Equal(t, []time.Duration{0}, b.sent, "the close sends what is still to be sent")
		require.Equal(t, errClosed, n.Start(t.Context()))

		var none *notify.Notifications
		none.Notify()
		none.NotifyLater()
	})
}

func TestSendingIsTriedAgainEverMoreRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		b.err = errAway
		n := b.start(t, nil)
		n.Notify()
		sleep(time.Minute)
		require.Contains(t, b.log.String(), "a notification could not be sent; trying again\" count=1 error=away")
		b.set(func() { b.err = nil; b.began = time.Now() })
		sleep(time.Minute)
		require.Len(t, b.sent, 1)
		require.LessOrEqual(t, b.sent[0], time.Second)
		b.set(func() { b.err = errAway })
		n.Notify()
		require.NoError(t, n.Close(t.Context()), "a notification that is not sent costs an interval")
	})
}

func TestTheReaderIsWokenWithPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		n := b.start(t, b)
		sleep(time.Minute) // the notification of its own that proves that they arrive
		b.again()
		for range 100 {
			b.woken()
			sleep(ms)
		}
		sleep(time.Minute)
		require.Equal(t, 100, b.doubts)
		require.Equal(t, []time.Duration{0, 20 * ms, 40 * ms, 60 * ms, 80 * ms, 100 * ms}, b.heard)
		require.NoError(t, n.Close(t.Context()))
		require.Empty(t, b.log.String())
	})
}

func TestListeningIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBus()
		n := b.start(t, b)
		sleep(time.Minute)
		b.again()
		b.set(func() { b.err = errAway })
		close(b.cut)
		sleep(time.Minute)
		require.Greater(t, b.tries, 10)
		require.Less(t, b.tries, 25, "ever more rarely, up to 5 s")
		require.Contains(t, b.log.String(), "listening for notifications failed")
		b.again()
		b.set(func() { b.err = nil; b.cut = make(chan struct{}) })
		sleep(5 * time.Second)
		require.NotEmpty(t, b.heard, "the reader reads when it is heard again: some may be lost")
		require.Contains(t, b.log.String(), "listening for notifications again")
		require.NoError(t, n.Close(t.Context()))
	})
}

// Behind a pooler of transactions LISTEN succeeds, and nothing arrives.
func TestNotificationsThatDoNotArriveAreReportedOnce(t *testing.T) {
	t.Parallel()
	for _, mute := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBus()
			b.mute = mute
			n := b.start(t, b)
			for range 3 {
				sleep(time.Minute)
				b.set(func() { close(b.cut); b.cut = make(chan struct{}) })
			}
			sleep(time.Minute)
			want := 0
			if mute {
				want = 1
			}
			require.Equal(t, want, strings.Count(b.log.String(), "notifications do not arrive and the poller reads at its interval; give the notifier an address past the pooler\" table=outbox_event poll_interval=5s"))
			require.NoError(t, n.Close(t.Context()))
		})
	}
}
