package systemtest

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// relay is what an address that moves to another server is in a real system: a TCP
// proxy whose targets can be changed. It leads connections to them in turn.
type relay struct {
	addr string

	mu      sync.Mutex
	targets []string // none: nobody answers
	conns   map[net.Conn]bool
	all     sync.WaitGroup
}

func newRelay(t testing.TB, targets ...string) *relay {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{addr: listener.Addr().String(), targets: targets, conns: map[net.Conn]bool{}}
	r.all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			r.all.Go(func() { r.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.lead()
		r.all.Wait()
	})
	return r
}

func (r *relay) port() int {
	addr, err := net.ResolveTCPAddr("tcp", r.addr)
	if err != nil {
		panic(err) // it is the listener's own
	}
	return addr.Port
}

// lead breaks all connections and leads new ones to the targets.
func (r *relay) lead(targets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets = targets
	for conn := range r.conns {
		_ = conn.Close()
	}
	clear(r.conns)
}

func (r *relay) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	r.mu.Lock()
	var target string
	if len(r.targets) > 0 {
		target = r.targets[0]
		r.targets = append(slices.Clone(r.targets[1:]), target)
	}
	r.conns[client] = true
	r.mu.Unlock()
	defer r.forget(client)
	if target == "" {
		return
	}
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	r.mu.Lock()
	moved := !r.conns[client]
	if !moved {
		r.conns[server] = true
	}
	r.mu.Unlock()
	if moved {
		return
	}
	defer r.forget(server)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}

func (r *relay) forget(conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}
