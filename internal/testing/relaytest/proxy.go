package relaytest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Proxy passes on TCP connections to a server, and harms them.
type Proxy struct {
	// Addr is where it listens.
	Addr   string
	server string

	mu    sync.Mutex
	conns map[net.Conn]bool
	cut   bool
	flow  chan struct{} // closed: data is passed on
	all   sync.WaitGroup
}

// NewProxy starts a proxy, which ends with the test.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Addr: listener.Addr().String(), server: server, conns: map[net.Conn]bool{}, flow: make(chan struct{})}
	close(p.flow)
	p.all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.set(true)
		p.all.Wait()
	})
	return p
}

// Cut closes all connections, and new ones, for a time.
func (p *Proxy) Cut(d time.Duration) {
	p.set(true)
	time.Sleep(d)
	p.set(false)
}

// Freeze passes nothing on for a time, in no direction, and then closes all connections.
func (p *Proxy) Freeze(d time.Duration) {
	thaw := p.freeze()
	time.Sleep(d)
	p.set(true)
	thaw()
	p.set(false)
}

// Delay passes nothing on for a time, in no direction, and then what came meanwhile.
func (p *Proxy) Delay(d time.Duration) {
	thaw := p.freeze()
	time.Sleep(d)
	thaw()
}

func (p *Proxy) freeze() (thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	flow := make(chan struct{})
	p.flow = flow
	return func() { close(flow) }
}

func (p *Proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut = cut; cut {
		for conn := range p.conns {
			_ = conn.Close()
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	cut := p.cut
	p.mu.Unlock()
	if !cut {
		var back sync.WaitGroup
		back.Go(func() { p.pump(client, server) })
		p.pump(server, client)
		back.Wait()
	}
	_, _ = client.Close(), server.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// pump passes on one direction until a connection ends, and then closes both.
func (p *Proxy) pump(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		flow := p.flow
		p.mu.Unlock()
		<-flow
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
