package relayrabbitmq

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxkit/outbox-go/relay"
)

// dialTimeout bounds connecting to a node, as in the client.
const dialTimeout = 30 * time.Second

// link is a connection, with the sessions that no call uses.
type link struct {
	conn *amqp.Connection

	mu    sync.Mutex
	idle  []*session
	alarm *alarm // the next alarm, or the alarm that is on
}

// alarm is the time in which the broker takes no messages, because it has no memory or disk left.
// The alarm begins when raised is closed; reason is set before.
type alarm struct {
	raised chan struct{}
	reason string
}

func newAlarm() *alarm { return &alarm{raised: make(chan struct{})} }

func (a *alarm) on() bool {
	select {
	case <-a.raised:
		return true
	default:
		return false
	}
}

func (a *alarm) err() error {
	return fmt.Errorf("%w: it takes no messages: %s", relay.ErrUnavailable, a.reason)
}

// session is a channel with confirms. A single call at a time uses a session.
type session struct {
	*amqp.Channel
	// returns has room for all returns of a window. The broker returns a message before it confirms
	// the message, so when all messages are confirmed all returns are here.
	returns chan amqp.Return
	ended   chan *amqp.Error
}

// dial connects to a node. The connection does not depend on ctx.
func dial(ctx context.Context, url string, cfg amqp.Config) (*link, error) {
	timeout := dialTimeout
	if uri, err := amqp.ParseURI(url); err == nil && uri.ConnectionTimeout > 0 {
		timeout = time.Duration(uri.ConnectionTimeout) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stop := func() bool { return true }
	if cfg.Dial == nil {
		cfg.Dial = func(network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil { // the handshake knows no context
				stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
			}
			return conn, err
		}
	}
	cfg.TLSClientConfig = cfg.TLSClientConfig.Clone() // the client writes the host's name into it
	conn, err := amqp.DialConfig(url, cfg)
	stop()
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, alarm: newAlarm()}
	go l.watch(conn.NotifyBlocked(make(chan amqp.Blocking, 1)))
	return l, nil
}

// watch follows the broker's notices about memory and disk, until the connection ends.
func (l *link) watch(notices <-chan amqp.Blocking) {
	for notice := range notices {
		l.mu.Lock()
		switch on := l.alarm.on(); {
		case notice.Active && !on:
			l.alarm.reason = notice.Reason
			close(l.alarm.raised)
		case !notice.Active && on:
			l.alarm = newAlarm()
		}
		l.mu.Unlock()
	}
}

// kill ends the connection at once. A write to a broker that does not read has no other end.
func (l *link) kill() { _ = l.conn.CloseDeadline(time.Now()) }

// next returns the alarm that may be raised, or an error if an alarm is on.
func (l *link) next() (*alarm, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alarm.on() {
		return nil, l.alarm.err()
	}
	return l.alarm, nil
}

// take gives a session to a call.
func (l *link) take() (*session, error) {
	if s := l.unused(); s != nil {
		return s, nil
	}
	ch, err := l.conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: opening a channel: %w", relay.ErrUnavailable, err)
	}
	return &session{ch, ch.NotifyReturn(make(chan amqp.Return, window)), ch.NotifyClose(make(chan *amqp.Error, 1))}, nil
}

func (l *link) unused() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.idle) > 0 {
		last := len(l.idle) - 1
		s := l.idle[last]
		l.idle = l.idle[:last]
		if !s.IsClosed() {
			return s
		}
	}
	return nil
}

// give takes a session back from a call. A session that waits for confirms is closed.
func (l *link) give(s *session, confirmed bool) {
	if !confirmed {
		go func() { _ = s.Close() }() // the broker answers when it reads again; else the connection ends
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, s)
}
