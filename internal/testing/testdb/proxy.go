package testdb

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// Servers is every target that has a server: all but SQLite.
func Servers() []Target {
	var servers []Target
	for _, target := range Drivers() {
		if target.Kind != SQLite {
			servers = append(servers, target)
		}
	}
	return servers
}

// CutCommits opens another pool on the same database, through a proxy that cuts
// the connection when the server answers a COMMIT: the client gets no answer. The
// counter says how many were cut.
func (db *DB) CutCommits(t testing.TB) (*DB, *atomic.Int32) {
	t.Helper()
	cuts := new(atomic.Int32)
	return db.through(t, func(client net.Conn, server string) { forward(client, server, cuts) }), cuts
}

// HoldCommits opens another pool on the same database, through a proxy that holds
// every COMMIT back until release is called, or the test ends. waiting gets a value
// for each.
func (db *DB) HoldCommits(t testing.TB) (held *DB, waiting <-chan struct{}, release func()) {
	t.Helper()
	arrived, released := make(chan struct{}, 10), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	return db.through(t, func(client net.Conn, address string) {
		defer func() { _ = client.Close() }()
		var dialer net.Dialer
		server, err := dialer.DialContext(context.Background(), "tcp", address)
		if err != nil {
			return
		}
		defer func() { _ = server.Close() }()
		go func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		}()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if hasCommit(buffer[:n]) {
				arrived <- struct{}{}
				<-released
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	}), arrived, release
}

// Severable opens another pool on the same database, through a proxy that severs
// the clients on demand: their connections break and it accepts no new ones, while
// the server keeps its side and executes what it was sent. It ends with the test.
func (db *DB) Severable(t testing.TB) (severable *DB, sever func()) {
	t.Helper()
	var mu sync.Mutex
	var clients []net.Conn
	severed, ended := false, make(chan struct{})
	t.Cleanup(func() { close(ended) })
	severable = db.through(t, func(client net.Conn, address string) {
		var dialer net.Dialer
		server, err := dialer.DialContext(context.Background(), "tcp", address)
		mu.Lock()
		refuse := severed || err != nil
		clients = append(clients, client)
		mu.Unlock()
		if refuse {
			_ = client.Close()
			return
		}
		go func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		}()
		_, _ = io.Copy(server, client)
		<-ended
		_ = server.Close()
	})
	return severable, func() {
		mu.Lock()
		defer mu.Unlock()
		severed = true
		for _, client := range clients {
			_ = client.Close()
		}
	}
}

// through opens another pool on the same database through a proxy, which passes
// each client's connection to serve with the server's address.
func (db *DB) through(t testing.TB, serve func(client net.Conn, server string)) *DB {
	t.Helper()
	proxied := *db
	if db.Kind == MySQL {
		config, err := mysql.ParseDSN(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		config.Addr = listen(t, config.Addr, serve)
		proxied.DSN = config.FormatDSN()
	} else {
		u, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = listen(t, u.Host, serve)
		proxied.DSN = u.String()
	}
	return proxied.Reopen(t)
}

func listen(t testing.TB, server string, serve func(client net.Conn, server string)) (address string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(client, server)
		}
	}()
	return listener.Addr().String()
}

// forward forwards to the server until a client sends COMMIT: the server gets it
// and answers, and the client gets no answer.
func forward(client net.Conn, address string, cuts *atomic.Int32) {
	defer func() { _ = client.Close() }()
	var dialer net.Dialer
	server, err := dialer.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var cut atomic.Bool
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil || cut.Load() { // the answer to COMMIT
				_ = client.Close()
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		if hasCommit(buffer[:n]) {
			cut.Store(true)
			cuts.Add(1)
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			break
		}
	}
	if cut.Load() {
		<-answered
	}
	_ = server.Close()
	<-answered
}

// hasCommit reports whether a client sends a COMMIT. The level READ COMMITTED and the variable
// autocommit are none.
func hasCommit(sent []byte) bool {
	text := bytes.ToUpper(sent)
	for _, other := range []string{"COMMITTED", "AUTOCOMMIT"} {
		text = bytes.ReplaceAll(text, []byte(other), nil)
	}
	return bytes.Contains(text, []byte("COMMIT"))
}
