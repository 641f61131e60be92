package faultrun

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Harm is what a [Proxy] does to connections.
type Harm string

// The kinds of harm.
const (
	// Cut closes connections and refuses further ones.
	Cut Harm = "cut"
	// Slow delays everything by a fifth of a second.
	Slow Harm = "slow"
	// HalfOpen accepts connections and passes nothing on. They are closed at its end.
	HalfOpen Harm = "half-open"
	// Late holds back what clients send until its end; the server then gets it, although
	// the client may have given up.
	Late Harm = "late"
	// NoAnswer passes nothing on that the server sends. Connections that lost an answer
	// are closed at its end.
	NoAnswer Harm = "no-answer"
	// NoCommit closes a connection instead of passing on the answer to a COMMIT; for
	// every third one.
	NoCommit Harm = "no-commit"
)

// Harms are all kinds of harm.
var Harms = []Harm{Cut, Slow, HalfOpen, Late, NoAnswer, NoCommit}

// Proxy passes on the connections of one process to a server.
type Proxy struct {
	// Addr is where it listens.
	Addr   string
	server string

	listener net.Listener
	commits  atomic.Int64
	mu       sync.Mutex
	harm     *harm
	conns    map[*proxied]bool
	began    chan struct{}
}

// harm is one that began; ended is closed at its end.
type harm struct {
	kind  Harm
	ended chan struct{}
}

// proxied is a connection.
type proxied struct {
	proxy          *Proxy
	client, server net.Conn
	// mute is closed when the client gets no further answers.
	mute chan struct{}
	once sync.Once
}

// NewProxy makes a proxy for a server's address.
func NewProxy(server string) (*Proxy, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: listener.Addr().String(), server: server, listener: listener, conns: map[*proxied]bool{}, began: make(chan struct{}, 1)}
	go p.accept()
	return p, nil
}

// Do does harm for a time, or until ctx ends.
func (p *Proxy) Do(ctx context.Context, kind Harm, d time.Duration) {
	h := &harm{kind, make(chan struct{})}
	p.mu.Lock()
	p.harm = h
	p.mu.Unlock()
	if kind == Cut {
		p.closeAll()
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

// Close closes the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.closeAll()
}

func (p *Proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
}

// now is the harm that is being done, or one that does nothing.
func (p *Proxy) now() *harm {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.harm == nil {
		return &harm{}
	}
	return p.harm
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	switch h := p.now(); h.kind {
	case Cut:
		_ = client.Close()
		return
	case HalfOpen:
		<-h.ended
		_ = client.Close()
		return
	default:
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(context.Background(), "tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &proxied{proxy: p, client: client, server: server, mute: make(chan struct{})}
	p.mu.Lock()
	p.conns[c] = true
	p.mu.Unlock()
	go c.pump(server, client, c.answer)
	c.pump(client, server, c.request)
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

func (c *proxied) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// pump passes on what from sends, as far as pass lets it.
func (c *proxied) pump(from, to net.Conn, pass func(data []byte) bool) {
	defer c.close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && pass(buffer[:n]) {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// request reports whether the server gets what the client sent.
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
	case NoCommit:
		if bytes.Contains(bytes.ToUpper(data), []byte("COMMIT")) && c.proxy.commits.Add(1)%3 == 0 {
			c.silence(nil)
		}
	default:
	}
	return true
}

// answer reports whether the client gets what the server sent.
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

// silence lets the client have no further answers, and closes the connection when the
// harm ends, or after a moment, in which the server does what it was asked.
func (c *proxied) silence(h *harm) {
	c.once.Do(func() {
		close(c.mute)
		go func() {
			if h == nil {
				time.Sleep(200 * time.Millisecond)
			} else {
				<-h.ended
			}
			c.close()
		}()
	})
}
