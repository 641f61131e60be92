package relaytest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/faultproxy"
)

// Proxy passes on the connections to a broker, and harms them.
type Proxy struct {
	*faultproxy.Proxy

	mu   sync.Mutex
	cut  bool
	flow chan struct{} // closed: data is passed on
}

// NewProxy starts a proxy, which ends with the test.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	p := &Proxy{flow: make(chan struct{})}
	close(p.flow)
	pass := func([]byte) bool {
		p.mu.Lock()
		flow := p.flow
		p.mu.Unlock()
		<-flow
		return true
	}
	var err error
	p.Proxy, err = faultproxy.New(server, func(*faultproxy.Conn) (faultproxy.Rules, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return faultproxy.Rules{Request: pass, Answer: pass}, !p.cut
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Close()
		p.Wait()
	})
	return p
}

// Cut closes all connections, and new connections, for a time.
func (p *Proxy) Cut(d time.Duration) {
	p.set(true)
	time.Sleep(d)
	p.set(false)
}

// Freeze passes nothing on for a time, in either direction, and then closes all connections.
func (p *Proxy) Freeze(d time.Duration) {
	end := p.BeginFreeze()
	time.Sleep(d)
	end()
}

// BeginFreeze passes nothing on from now on, in either direction, until end closes all connections.
func (p *Proxy) BeginFreeze() (end func()) {
	thaw := p.freeze()
	return func() {
		p.set(true)
		thaw()
		p.set(false)
	}
}

// Delay passes nothing on for a time, in either direction, and then passes on the data that came
// meanwhile.
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
	p.cut = cut
	p.mu.Unlock()
	if cut {
		p.CloseAll()
	}
}
