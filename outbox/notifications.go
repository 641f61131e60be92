package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Limits of the notifications. The pauses spare the processes that listen: with three of
// them and 800 events a second on PostgreSQL, pauses of 5 ms took 1.4 times the processor
// time for each event, and delivered it 2 ms earlier. Sending cost the same.
const (
	notifyPause    = 20 * time.Millisecond  // at least, between two that are sent
	notifyTimeout  = 5 * time.Second        // sending one
	notifyLast     = 500 * time.Millisecond // sending the last one, while closing
	notifyArrival  = 5 * time.Second        // until one of our own has to arrive
	heedPause      = 20 * time.Millisecond  // at least, between two readings of the poller that notifications cause
	listenMinPause = 50 * time.Millisecond
	listenMaxPause = 5 * time.Second // between tries to listen
)

// notifications sends notifications to other processes and wakes the poller when
// one arrives. It owns two goroutines. A nil *notifications does nothing.
type notifications struct {
	notifier Notifier
	db       DB
	store    Store
	poller   *Poller // nil: this process delivers nothing, and does not listen
	log      *slog.Logger

	sending, listening logburst.Burst

	agenda           agenda // when to send
	sender, listener loop
	// proof is how far the test has come that what is sent arrives. Through a
	// transaction pooler LISTEN succeeds and no notification ever arrives.
	proof  atomic.Int32
	warned bool // belongs to the sender

	// mu guards what the listener's wake uses: the time of the latest reading for a
	// notification, perhaps yet to come, and the timer for that one; whether it
	// listens, and how often it lost the connection before a notification arrived.
	mu       sync.Mutex
	heeded   time.Time
	later    *time.Timer
	hears    bool
	failures int
}

// The steps of the test; zero: none is under way.
const (
	proofWanted  = iota + 1 // we listen
	proofAwaited            // and one was sent
)

func newNotifications(notifier Notifier, db DB, store Store, poller *Poller, log *slog.Logger) *notifications {
	n := &notifications{notifier: notifier, db: db, store: store, poller: poller, log: log}
	n.sending = logburst.Burst{Log: log, Level: slog.LevelWarn, Message: "outbox: a notification could not be sent, trying again"}
	n.listening = logburst.Burst{
		Log: log, Level: slog.LevelWarn, Message: "outbox: listening for notifications failed, trying again; the poller reads at its interval",
		Ended: "outbox: listening for notifications again",
	}
	n.agenda.init()
	n.sender.init(n.send)
	n.listener.init(n.listen)
	return n
}

// table is the store's name for the table, which has its schema once the store knows it.
func (n *notifications) table() string {
	if s, ok := n.store.(interface{ Table() string }); ok {
		return s.Table()
	}
	return ""
}

func (n *notifications) start(ctx context.Context) error {
	err := n.sender.start(ctx)
	if n.poller != nil {
		err = errors.Join(err, n.listener.start(ctx))
	}
	return err
}

// close sends what is asked for and not yet sent, and waits for the goroutines.
func (n *notifications) close(ctx context.Context) error {
	err := errors.Join(n.listener.close(ctx), n.sender.close(ctx))
	n.sending.Flush()
	n.listening.Flush()
	if err != nil {
		return fmt.Errorf("outbox: closing the notifier: %w", err)
	}
	return nil
}

// notify notifies the other processes soon, without waiting.
func (n *notifications) notify() {
	if n != nil {
		n.agenda.wake()
	}
}

// notifyLater notifies them in 10 ms, 100 ms and 1 s.
func (n *notifications) notifyLater() {
	if n != nil {
		n.agenda.lookAgain(time.Now())
	}
}

// send is the sender's goroutine.
func (n *notifications) send(ctx context.Context) {
	timer, overdue := time.NewTimer(n.agenda.next(time.Now())), time.NewTimer(notifyArrival)
	defer timer.Stop()
	defer overdue.Stop()
	for failures := 0; ; {
		select {
		case <-n.agenda.woken:
		case <-timer.C:
		case <-n.agenda.changed:
			timer.Reset(n.agenda.next(time.Now()))
			continue
		case <-overdue.C:
			n.warn()
			continue
		case <-ctx.Done():
			n.sendLast()
			return
		}
		n.agenda.begin(time.Now())
		if err := n.sendOne(ctx, notifyTimeout); err != nil {
			n.agenda.wake() // it is still to be sent
			if ctx.Err() != nil {
				continue
			}
			failures++
			n.sending.Add(1, logKeyError, err.Error())
			wait.Sleep(ctx, min(listenMinPause<<min(failures, 10), pollMaxPause))
			continue
		}
		failures = 0
		n.sending.End()
		if n.proof.CompareAndSwap(proofWanted, proofAwaited) {
			overdue.Reset(notifyArrival)
		}
		wait.Sleep(ctx, notifyPause)
		timer.Reset(n.agenda.next(time.Now()))
	}
}

func (n *notifications) sendOne(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return n.notifier.Notify(ctx, n.db, n.table())
}

// sendLast sends one notification for all that are still to be sent.
func (n *notifications) sendLast() {
	asked := n.agenda.next(time.Now()) != wait.Never
	select {
	case <-n.agenda.woken:
		asked = true
	default:
	}
	if !asked {
		return
	}
	if err := n.sendOne(context.Background(), notifyLast); err != nil {
		n.sending.Add(1, logKeyError, err.Error())
	}
}

// warn says once that no notification arrived in time.
func (n *notifications) warn() {
	if n.proof.CompareAndSwap(proofAwaited, 0) && !n.warned {
		n.warned = true
		n.log.Warn("outbox: notifications do not arrive, the poller reads at its interval; give the notifier an address past the pooler", logKeyTable, n.table(), logKeyInterval, n.poller.opts.Interval.String())
	}
}

// woken is called when the notifier has begun to listen, and for each notification.
func (n *notifications) woken() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hears {
		n.proof.Store(0) // they arrive
		n.failures = 0
	} else {
		n.hears = true
		n.listening.End()
		n.proof.Store(proofWanted)
		n.notify()
	}
	n.heed()
}

// deaf is called when the notifier has stopped listening. It returns how often it did so
// since a notification arrived.
func (n *notifications) deaf() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hears = false
	n.failures++
	n.proof.Store(0)
	return n.failures
}

// heed makes the poller read now, or in a moment when it did so a moment ago: small
// batches cost much more than large ones. mu is held.
func (n *notifications) heed() {
	n.poller.doubtPauses()
	now := time.Now()
	switch since := now.Sub(n.heeded); {
	case since < 0: // it is going to
	case since < heedPause:
		n.heeded = n.heeded.Add(heedPause)
		n.later.Stop()
		n.later = time.AfterFunc(n.heeded.Sub(now), n.poller.Wake)
	default:
		n.heeded = now
		n.poller.Wake()
	}
}

// listen is the listener's goroutine.
func (n *notifications) listen(ctx context.Context) {
	later := time.AfterFunc(wait.Never, n.poller.Wake)
	n.mu.Lock()
	n.later = later
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.later.Stop()
	}()
	for {
		err := n.notifier.Listen(ctx, n.db, n.table(), n.woken)
		failures := n.deaf()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the notifier stopped listening")
		}
		n.listening.Add(1, logKeyError, err.Error())
		wait.Sleep(ctx, min(listenMinPause<<min(failures, 10), listenMaxPause))
	}
}
