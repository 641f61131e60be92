package outboxbun

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// lifetime is the context that bun and database/sql keep in a transaction, and
// that bun hands to RunInTx's function. It has the caller's values and deadline.
// While the transaction is open its end is the session's to decide: the end of
// the caller's context rolls back first and ends it afterwards, but does nothing
// while COMMIT is under way. Later it ends with the caller's context again.
//
// It is a front: when nobody holds it any more, neither bun.Tx nor a context
// derived from it, what is behind it is cleaned up.
type lifetime struct{ *life }

// life is what is behind a [lifetime].
type life struct {
	parent  context.Context // the caller's
	values  context.Context
	session *session
	done    chan struct{}
	stop    func() bool // stops following parent

	mu       sync.Mutex
	err      error
	children map[*child]struct{}
}

// child is a context that database/sql or the caller derived.
type child struct {
	cancel func()
	// own is that of database/sql, which BEGIN derives: its end is a rollback.
	own bool
}

// newLifetime makes the context of the session's transaction, before BEGIN.
// values is parent with the scope.
func newLifetime(parent, values context.Context, s *session) *lifetime {
	s.life = life{parent: parent, values: values, session: s, done: make(chan struct{})}
	front := &lifetime{&s.life}
	if parent.Done() != nil {
		s.life.stop = context.AfterFunc(parent, s.parentEnded)
	}
	runtime.AddCleanup(front, (*session).collected, s)
	return front
}

// Deadline is the caller's.
func (l *life) Deadline() (time.Time, bool) { return l.parent.Deadline() }

// Done is closed when the caller's context has ended and COMMIT is not under
// way, or when the transaction was given up.
func (l *life) Done() <-chan struct{} { return l.done }

// Err is the error of the caller's context, or why the transaction was given up.
func (l *life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Value is the caller's, or the session.
func (l *life) Value(key any) any {
	if k, ok := key.(sessionKey); ok && k.hook == l.session.hook {
		return l.session
	}
	return l.values.Value(key)
}

// AfterFunc is how package context registers a derived context. Without it a
// goroutine would wait, and the end would come to database/sql a little later
// than to us.
func (l *life) AfterFunc(f func()) (stop func() bool) {
	c := &child{cancel: f, own: !l.session.begun.Load()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		go f()
		return func() bool { return false }
	}
	if l.children == nil {
		l.children = make(map[*child]struct{})
	}
	l.children[c] = struct{}{}
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, waiting := l.children[c]
		delete(l.children, c)
		return waiting
	}
}

// end ends the context. The first error holds.
func (l *life) end(err error) { l.finish(err, true) }

// interrupt ends the context for all but database/sql.
func (l *life) interrupt(err error) { l.finish(err, false) }

func (l *life) finish(err error, own bool) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
		close(l.done)
	}
	var ended []*child
	for c := range l.children {
		if own || !c.own {
			ended = append(ended, c)
			delete(l.children, c)
		}
	}
	l.mu.Unlock()
	for _, c := range ended {
		c.cancel()
	}
}
