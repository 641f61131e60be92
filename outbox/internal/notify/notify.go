// Package notify sends notifications to other processes, and wakes a reader when a notification
// arrives. A notification has no content: it says that there is something to read.
package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/agenda"
	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/loop"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// The pauses spare the processes that listen: with three such processes and 800 events a second on
// PostgreSQL, pauses of 5 ms took 1.4 times the processor time for each event, and delivered the
// event 2 ms earlier. Sending cost the same.
const (
	sendPause    = 20 * time.Millisecond  // at least, between two notifications
	sendTimeout  = 5 * time.Second        // of sending a notification
	sendLast     = 500 * time.Millisecond // of sending the last notification, while closing
	sendMaxPause = time.Second            // between tries to send
	arrival      = 5 * time.Second        // until a notification of our own has to arrive
	wakePause    = 20 * time.Millisecond  // at least, between two wake-ups of the reader
	minPause     = 50 * time.Millisecond  // between tries to send, or to listen
	maxPause     = 5 * time.Second        // between tries to listen
)

// Channel carries notifications between the processes of a table.
type Channel interface {
	// Notify notifies all processes that listen.
	Notify(ctx context.Context) error
	// Listen listens until ctx ends or the connection is lost. Listen calls woken when it begins to
	// listen, and for each notification.
	Listen(ctx context.Context, woken func()) error
	// Table is the name of the table, for log lines.
	Table() string
}

// Reader reads when a notification arrives.
type Reader interface {
	// Doubt is called at once for each notification.
	Doubt()
	// Wake makes the reader read now.
	Wake()
}

// Notifications sends notifications and receives the notifications of other processes, with a
// goroutine for sending and a goroutine for receiving. Notify and NotifyLater of a nil
// *Notifications do nothing. Notifications is safe for concurrent use.
type Notifications struct {
	channel  Channel
	reader   Reader        // nil: this process does not listen
	interval time.Duration // of the reader
	log      *slog.Logger

	sending, listening logburst.Burst

	agenda           *agenda.Agenda // when to send
	sender, listener *loop.Loop
	state            atomic.Int32  // unstarted, started or closed
	direct           chan struct{} // holds a token while [Notifications.SendNow] sends
	// proof is the state of the test that notifications arrive. Through a transaction pooler LISTEN
	// succeeds and no notification ever arrives.
	proof  atomic.Int32
	warned bool // belongs to the sender

	// mu guards the state of the listener: the time of the latest wake-up, which may be yet to
	// come, and the timer for this wake-up; whether the channel listens, and how often it lost the
	// connection before a notification arrived.
	mu       sync.Mutex
	wokeAt   time.Time
	later    *time.Timer
	hears    bool
	failures int
}

// The steps of the test; zero: no test is under way.
const (
	proofWanted  = iota + 1 // we listen
	proofAwaited            // and a notification was sent
)

// The states of notifications.
const (
	unstarted = iota
	started
	closed
)

// New makes notifications. A nil reader does not listen; else interval is the time after which
// the reader reads without a notification. closed is the error of Start after Close.
func New(channel Channel, reader Reader, interval time.Duration, log *slog.Logger, closed error) *Notifications {
	n := &Notifications{channel: channel, reader: reader, interval: interval, log: log, agenda: agenda.New(), direct: make(chan struct{}, 1)}
	n.sending = logburst.Burst{Log: log, Level: slog.LevelWarn, Message: "outbox: a notification could not be sent; trying again"}
	n.listening = logburst.Burst{
		Log: log, Level: slog.LevelWarn, Message: "outbox: listening for notifications failed; trying again while the poller reads at its interval",
		Ended: "outbox: listening for notifications again",
	}
	n.sender, n.listener = loop.New(n.send, closed), loop.New(n.listen, closed)
	return n
}

// Start begins to send, and to listen for the reader. ctx bounds only the start.
func (n *Notifications) Start(ctx context.Context) error {
	n.state.CompareAndSwap(unstarted, started)
	err := n.sender.Start(ctx)
	if n.reader != nil {
		err = errors.Join(err, n.listener.Start(ctx))
	}
	return err
}

// Close sends a notification if any is still to be sent, and waits for the goroutines, as
// [loop.Loop.Close] does.
func (n *Notifications) Close(ctx context.Context) error {
	if n.state.Swap(closed) == unstarted {
		n.sendLast()
	}
	err := errors.Join(n.listener.Close(ctx), n.sender.Close(ctx))
	n.sending.Flush()
	n.listening.Flush()
	if err != nil {
		return fmt.Errorf("outbox: closing the notifier: %w", err)
	}
	return nil
}

// Notify notifies the other processes soon, without waiting.
func (n *Notifications) Notify() {
	if n != nil {
		n.agenda.Wake()
	}
}

// NotifyLater notifies the other processes in 10 ms, 100 ms and 1 s.
func (n *Notifications) NotifyLater() {
	if n != nil {
		n.agenda.LookAgain(time.Now())
	}
}

// IsUnstarted reports whether notifications are not sent by a goroutine, because neither Start nor
// Close was called.
func (n *Notifications) IsUnstarted() bool { return n != nil && n.state.Load() == unstarted }

// SendNow sends a notification that Notify asked for, if no goroutine does, and returns when the
// notification is sent, or could not be sent: Close tries again. When several goroutines call
// SendNow, each returns after the notification that it asked for, and no goroutine waits longer than
// sendLast, for its turn and its notification together.
func (n *Notifications) SendNow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sendLast)
	defer cancel()
	select {
	case n.direct <- struct{}{}:
		defer func() { <-n.direct }()
	case <-ctx.Done(): // the notification is still to be sent
		return
	}
	if !n.IsUnstarted() {
		return
	}
	select {
	case <-n.agenda.Woken:
	default: // another call has sent it
		return
	}
	if err := n.sendOne(ctx, sendLast); err != nil {
		n.Notify()
		n.sending.Add(1, "error", err.Error())
	}
}

// send is the sender's goroutine.
func (n *Notifications) send(ctx context.Context) {
	timer, overdue := time.NewTimer(n.agenda.Next(time.Now())), time.NewTimer(arrival)
	defer timer.Stop()
	defer overdue.Stop()
	for failures := 0; ; {
		select {
		case <-n.agenda.Woken:
		case <-timer.C:
		case <-n.agenda.Changed:
			timer.Reset(n.agenda.Next(time.Now()))
			continue
		case <-overdue.C:
			n.warn()
			continue
		case <-ctx.Done():
			n.sendLast()
			return
		}
		n.agenda.Begin(time.Now())
		if err := n.sendOne(ctx, sendTimeout); err != nil {
			n.agenda.Wake() // the notification is still to be sent
			if ctx.Err() != nil {
				continue
			}
			failures++
			n.sending.Add(1, "error", err.Error())
			wait.Sleep(ctx, min(minPause<<min(failures, 10), sendMaxPause))
			continue
		}
		failures = 0
		n.sending.End()
		if n.proof.CompareAndSwap(proofWanted, proofAwaited) {
			overdue.Reset(arrival)
		}
		wait.Sleep(ctx, sendPause)
		timer.Reset(n.agenda.Next(time.Now()))
	}
}

func (n *Notifications) sendOne(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return n.channel.Notify(ctx)
}

// sendLast sends a single notification for all that are still to be sent.
func (n *Notifications) sendLast() {
	asked := n.agenda.Next(time.Now()) != wait.Never
	select {
	case <-n.agenda.Woken:
		asked = true
	default:
	}
	if !asked {
		return
	}
	if err := n.sendOne(context.Background(), sendLast); err != nil {
		n.sending.Add(1, "error", err.Error())
	}
}

// warn says once that no notification arrived in time.
func (n *Notifications) warn() {
	if n.proof.CompareAndSwap(proofAwaited, 0) && !n.warned {
		n.warned = true
		n.log.Warn("outbox: notifications do not arrive and the poller reads at its interval; give the notifier an address past the pooler", "table", n.channel.Table(), "poll_interval", n.interval.String())
	}
}

// woken is called when the channel has begun to listen, and for each notification.
func (n *Notifications) woken() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hears {
		n.proof.Store(0) // notifications arrive
		n.failures = 0
	} else {
		n.hears = true
		n.listening.End()
		n.proof.Store(proofWanted)
		n.Notify()
	}
	n.wake()
}

// lost is called when the channel has stopped listening, and returns how often the channel has
// stopped since a notification arrived.
func (n *Notifications) lost() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hears = false
	n.failures++
	n.proof.Store(0)
	return n.failures
}

// wake makes the reader read now, or in a moment if the reader was woken a moment ago: small
// batches cost much more than large batches. mu is held.
func (n *Notifications) wake() {
	n.reader.Doubt()
	now := time.Now()
	switch since := now.Sub(n.wokeAt); {
	case since < 0: // a wake-up is yet to come
	case since < wakePause:
		n.wokeAt = n.wokeAt.Add(wakePause)
		n.later.Stop()
		n.later = time.AfterFunc(n.wokeAt.Sub(now), n.reader.Wake)
	default:
		n.wokeAt = now
		n.reader.Wake()
	}
}

// listen is the listener's goroutine.
func (n *Notifications) listen(ctx context.Context) {
	later := time.AfterFunc(wait.Never, n.reader.Wake)
	n.mu.Lock()
	n.later = later
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.later.Stop()
	}()
	for {
		err := n.channel.Listen(ctx, n.woken)
		failures := n.lost()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the notifier stopped listening")
		}
		n.listening.Add(1, "error", err.Error())
		wait.Sleep(ctx, min(minPause<<min(failures, 10), maxPause))
	}
}
