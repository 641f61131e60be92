package testdb

import (
	"bytes"
	"context"
	"net"
	"net/url"
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
// the connection when the server answers a COMMIT: the client never hears of
// what happened. The counter says how many were cut.
func (db *DB) CutCommits(t testing.TB) (*DB, *atomic.Int32) {
	t.Helper()
	proxied := *db
	var cuts *atomic.Int32
	if db.Kind == MySQL {
		config, err := mysql.ParseDSN(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		config.Addr, cuts = cuttingProxy(t, config.Addr)
		proxied.DSN = config.FormatDSN()
	} else {
		u, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		u.Host, cuts = cuttingProxy(t, u.Host)
		proxied.DSN = u.String()
	}
	return proxied.Reopen(t), cuts
}

// cuttingProxy forwards to the server until a client says COMMIT: the server
// gets it and answers, and the client never hears of it.
func cuttingProxy(t testing.TB, server string) (address string, cuts *atomic.Int32) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	cuts = new(atomic.Int32)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(client, server, cuts)
		}
	}()
	return listener.Addr().String(), cuts
}

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
		if bytes.Contains(bytes.ToUpper(buffer[:n]), []byte("COMMIT")) {
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
