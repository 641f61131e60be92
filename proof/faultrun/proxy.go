package faultrun

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/faultproxy"
)

// Harm is a kind of harm that a [Proxy] does to connections.
type Harm string

// The kinds of harm.
const (
	// Cut closes connections and refuses further ones.
	Cut Harm = "cut"
	// Slow delays everything by a fifth of a second.
	Slow Harm = "slow"
	// HalfOpen accepts connections and passes nothing on. The connections are closed when the harm
	// ends.
	HalfOpen Harm = "half-open"
	// Late holds back the requests of clients until the harm ends. The server then gets the
	// requests, although the client may have given up.
	Late Harm = "late"
	// NoAnswer passes on no answer of the server. Connections that lost an answer are closed when
	// the harm ends.
	NoAnswer Harm = "no-answer"
	// NoCommit closes a connection instead of passing on the answer to a COMMIT, for every third
	// COMMIT.
	NoCommit Harm = "no-commit"
	// LostCommit closes a connection instead of passing on a COMMIT, for every third COMMIT.
	LostCommit Harm = "lost-commit"
)

// Harms are the kinds of harm of all runs. Only runs with requests have LostCommit besides.
var Harms = []Harm{Cut, Slow, HalfOpen, Late, NoAnswer, NoCommit}

// Proxy passes on the connections of a process to a server.
type Proxy struct {
	*faultproxy.Proxy

	commits atomic.Int64
	mu      sync.Mutex
	harm    *harm
	began   chan struct{}
}

// harm is harm that began; ended is closed when the harm ends.
type harm struct {
	kind  Harm
	ended chan struct{}
}

// proxied is a connection.
type proxied struct {
	*faultproxy.Conn
	proxy *Proxy
	// mute is closed when the client gets no further answers.
	mute chan struct{}
	once sync.Once
}

// NewProxy makes a proxy for a server's address.
func NewProxy(server string) (p *Proxy, err error) {
	p = &Proxy{began: make(chan struct{}, 1)}
	p.Proxy, err = faultproxy.New(server, p.accept)
	return p, err
}

// Do does harm for a time, or until ctx ends.
func (p *Proxy) Do(ctx context.Context, kind Harm, d time.Duration) {
	h := &harm{kind, make(chan struct{})}
	p.mu.Lock()
	p.harm = h
	p.mu.Unlock()
	if kind == Cut {
		p.CloseAll()
	}
	select {
	case p.began <- struct{}{}:
	default:
	}
	pause(ctx, d)
	p.mu.Lock()
	p.harm = nil
	p.mu.Unlock()
	close(h.ended)
}

// Began gets a value when harm has begun.
func (p *Proxy) Began() <-chan struct{} { return p.began }

// now is the harm that is being done, or a harm that does nothing.
func (p *Proxy) now() *harm {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.harm == nil {
		return &harm{}
	}
	return p.harm
}

func (p *Proxy) accept(conn *faultproxy.Conn) (r faultproxy.Rules, accepted bool) {
	switch h := p.now(); h.kind {
	case Cut:
		return r, false
	case HalfOpen:
		<-h.ended
		return r, false
	default:
	}
	c := &proxied{Conn: conn, proxy: p, mute: make(chan struct{})}
	return faultproxy.Rules{Request: c.request, Answer: c.answer}, true
}

// request reports whether the server gets the client's data.
func (c *proxied) request(data []byte) bool {
	switch h := c.proxy.now(); h.kind {
	case Slow:
		time.Sleep(100 * time.Millisecond)
	case HalfOpen:
		c.silence(h)
		return false
	case Late:
		<-h.ended
	case NoAnswer:
		c.silence(h)
	case NoCommit, LostCommit:
		if !bytes.Contains(bytes.ToUpper(data), []byte("COMMIT")) || c.proxy.commits.Add(1)%3 != 0 {
			return true
		}
		if h.kind == LostCommit {
			c.Close()
			return false
		}
		c.silence(nil)
	default:
	}
	return true
}

// answer reports whether the client gets the server's data.
func (c *proxied) answer([]byte) bool {
	select {
	case <-c.mute:
		return false
	default:
	}
	switch h := c.proxy.now(); h.kind {
	case Slow:
		time.Sleep(100 * time.Millisecond)
	case HalfOpen, NoAnswer:
		c.silence(h)
		return false
	default:
	}
	return true
}

// silence withholds all further answers from the client. silence closes the connection when the
// harm ends or, without a harm, after a moment in which the server executes the request.
func (c *proxied) silence(h *harm) {
	c.once.Do(func() {
		close(c.mute)
		go func() {
			if h == nil {
				time.Sleep(200 * time.Millisecond)
			} else {
				<-h.ended
			}
			c.Close()
		}()
	})
}
