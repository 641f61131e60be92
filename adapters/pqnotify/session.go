package pqnotify

import (
	"context"
	"net"
	"time"

	"github.com/lib/pq"
)

// session is a connection of lib/pq's Listener, which by itself has no context and reconnects for
// ever. The end of the session's context closes the connection, and so ends all calls that wait for
// it.
type session struct {
	ctx      context.Context // ends with the session; the cause says why
	cancel   context.CancelCauseFunc
	listener *pq.Listener
}

func newSession(parent context.Context, dsn string) *session {
	s := &session{}
	s.ctx, s.cancel = context.WithCancelCause(parent)
	s.listener = pq.NewDialListener(s, dsn, reconnect, reconnect, func(event pq.ListenerEventType, err error) {
		if event == pq.ListenerEventConnectionAttemptFailed || event == pq.ListenerEventDisconnected {
			s.cancel(err)
		}
	})
	context.AfterFunc(s.ctx, func() { _ = s.listener.Close() })
	return s
}

// end closes the connection and waits for the listener's goroutine.
func (s *session) end() {
	s.cancel(net.ErrClosed)
	_ = s.listener.Close()
	for range s.listener.Notify { //nolint:revive // until the channel is closed
	}
}

// wait waits for a notification.
func (s *session) wait() error {
	for {
		idle := time.NewTimer(idleTime)
		select {
		case _, ok := <-s.listener.Notify:
			idle.Stop()
			if ok {
				return nil
			}
			s.cancel(net.ErrClosed)
			return context.Cause(s.ctx)
		case <-s.ctx.Done():
			idle.Stop()
			return context.Cause(s.ctx)
		case <-idle.C:
			if err := s.within(pingTimeout, s.listener.Ping); err != nil {
				return err
			}
		}
	}
}

// within ends the session if fn takes longer.
func (s *session) within(limit time.Duration, fn func() error) error {
	timer := time.AfterFunc(limit, func() { s.cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := fn()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return err
}

// Dial implements [pq.Dialer].
func (s *session) Dial(network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(s.ctx, network, address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	return conn, nil
}

// DialTimeout implements [pq.Dialer].
func (s *session) DialTimeout(network, address string, _ time.Duration) (net.Conn, error) {
	return s.Dial(network, address)
}
