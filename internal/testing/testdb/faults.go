package testdb

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Fault is what happens to the connections of a pool from [DB.Faulty].
type Fault int

// The faults.
const (
	// Working: everything is forwarded.
	Working Fault = iota
	// Silent: nothing is forwarded, in either direction. New connections are accepted,
	// and get no answer.
	Silent
	// Mute: the server gets what it is sent, and its answers are lost.
	Mute
	// Away: connections are cut, and new ones are cut at once.
	Away
)

// faults is the state of one proxy.
type faults struct {
	mu      sync.Mutex
	changed *sync.Cond
	now     Fault
	ended   bool
	conns   map[net.Conn]struct{}
}

// Faulty opens another pool on the same database, through a proxy. set changes what
// happens to its connections. The proxy ends with the test.
func (db *DB) Faulty(t testing.TB) (faulty *DB, set func(Fault)) {
	t.Helper()
	f := &faults{conns: map[net.Conn]struct{}{}}
	f.changed = sync.NewCond(&f.mu)
	t.Cleanup(func() { f.set(Away, true) })
	return db.through(t, f.serve), func(to Fault) { f.set(to, false) }
}

func (f *faults) set(to Fault, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.now
	f.now, f.ended = to, f.ended || ended
	if to == Away || was == Mute { // after lost answers nothing on a connection makes sense
		for conn := range f.conns {
			_ = conn.Close()
		}
	}
	f.changed.Broadcast()
}

func (f *faults) serve(client net.Conn, address string) {
	var dialer net.Dialer
	server, err := dialer.DialContext(context.Background(), "tcp", address)
	if err != nil {
		_ = client.Close()
		return
	}
	f.mu.Lock()
	f.conns[client], f.conns[server] = struct{}{}, struct{}{}
	refused := f.now == Away || f.ended
	f.mu.Unlock()
	var both sync.WaitGroup
	if !refused {
		both.Go(func() { f.pump(server, client, false) })
		both.Go(func() { f.pump(client, server, true) })
	}
	both.Wait()
	f.mu.Lock()
	delete(f.conns, client)
	delete(f.conns, server)
	f.mu.Unlock()
	_, _ = client.Close(), server.Close()
}

// pump forwards one direction until a connection is closed, and then closes both.
func (f *faults) pump(to, from net.Conn, answers bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		f.mu.Lock()
		for f.now == Silent && !f.ended {
			f.changed.Wait()
		}
		lost := answers && f.now == Mute
		f.mu.Unlock()
		if lost {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
