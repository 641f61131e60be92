// Package faultproxy passes TCP connections on to a server, and lets tests harm them.
package faultproxy

import (
	"context"
	"net"
	"sync"
)

// Rules decide which data of a connection is passed on. The functions may wait.
type Rules struct {
	// Request reports whether the server gets data that the client sent. Nil: the server gets all
	// data.
	Request func(data []byte) bool
	// Answer reports whether the client gets data that the server sent. Nil: the client gets all
	// data.
	Answer func(data []byte) bool
	// KeepServer leaves the connection to the server open when the client's connection ends, until
	// the proxy is closed.
	KeepServer bool
}

// Proxy passes on the connections to a server.
type Proxy struct {
	// Addr is the address at which the proxy listens.
	Addr   string
	server string
	rules  func(c *Conn) (r Rules, accepted bool)

	listener net.Listener
	closed   chan struct{}
	close    func()
	all      sync.WaitGroup
	mu       sync.Mutex
	conns    map[*Conn]bool
}

// Conn is a connection of a client, and the connection to the server.
type Conn struct {
	client net.Conn
	mu     sync.Mutex
	server net.Conn // nil before it is dialled
	over   bool
}

// New starts a proxy for a server's address. rules is called for each connection before the server
// is dialled; the client is refused unless accepted is true. rules may wait.
func New(server string, rules func(c *Conn) (r Rules, accepted bool)) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		Addr: listener.Addr().String(), server: server, rules: rules,
		listener: listener, closed: make(chan struct{}), conns: map[*Conn]bool{},
	}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	p.all.Go(p.accept)
	return p, nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		c := &Conn{client: client}
		p.mu.Lock()
		select {
		case <-p.closed: // the proxy is closed, and so are all earlier connections
			c.Close()
		default:
			p.conns[c] = true
			p.all.Go(func() { p.serve(c) })
		}
		p.mu.Unlock()
	}
}

func (p *Proxy) serve(c *Conn) {
	defer func() {
		c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}()
	rules, accepted := p.rules(c)
	if !accepted {
		return
	}
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.server)
	if err != nil || !c.dialled(server) {
		return
	}
	end := c.Close
	if rules.KeepServer {
		end = c.CloseClient
	}
	var answers sync.WaitGroup
	answers.Go(func() { pump(c.client, server, rules.Answer, end) })
	pump(server, c.client, rules.Request, end)
	if rules.KeepServer {
		<-p.closed
		_ = server.Close()
	}
	answers.Wait()
}

// pump passes on one direction, as far as the rule lets it, until a connection ends.
func pump(to, from net.Conn, pass func(data []byte) bool, end func()) {
	defer end()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && (pass == nil || pass(buffer[:n])) {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// dialled is false for a connection that was closed meanwhile.
func (c *Conn) dialled(server net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		_ = server.Close()
		return false
	}
	c.server = server
	return true
}

// CloseClient closes the client's connection.
func (c *Conn) CloseClient() { _ = c.client.Close() }

// Close closes both connections.
func (c *Conn) Close() {
	c.CloseClient()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over = true; c.server != nil {
		_ = c.server.Close()
	}
}

// CloseAll closes all present connections.
func (p *Proxy) CloseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Close closes the proxy and all connections, without waiting.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.close()
	p.CloseAll()
}

// Wait waits, after Close, until the rules have returned.
func (p *Proxy) Wait() { p.all.Wait() }
