package testdb

import (
	"bytes"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxkit/outbox-go/internal/testing/faultproxy"
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

// CutCommits opens another pool on the same database, through a proxy that cuts the connection when
// the server answers a COMMIT: the client gets no answer. The counter says how many connections
// were cut.
func (db *DB) CutCommits(t testing.TB) (*DB, *atomic.Int32) {
	t.Helper()
	cuts := new(atomic.Int32)
	cutting, _ := db.through(t, func(c *faultproxy.Conn) (faultproxy.Rules, bool) {
		var cut atomic.Bool
		return faultproxy.Rules{
			Request: func(sent []byte) bool {
				if hasCommit(sent) {
					cut.Store(true)
					cuts.Add(1)
				}
				return true
			},
			Answer: func([]byte) bool {
				if cut.Load() { // the answer to COMMIT
					c.Close()
				}
				return !cut.Load()
			},
		}, true
	})
	return cutting, cuts
}

// HoldCommits opens another pool on the same database, through a proxy that holds every COMMIT back
// until release is called, or the test ends. waiting gets a value for each COMMIT.
func (db *DB) HoldCommits(t testing.TB) (held *DB, waiting <-chan struct{}, release func()) {
	t.Helper()
	arrived, released := make(chan struct{}, 10), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	held, _ = db.through(t, func(*faultproxy.Conn) (faultproxy.Rules, bool) {
		return faultproxy.Rules{Request: func(sent []byte) bool {
			if hasCommit(sent) {
				arrived <- struct{}{}
				<-released
			}
			return true
		}}, true
	})
	return held, arrived, release
}

// Severable opens another pool on the same database, through a proxy that severs the clients on
// demand: their connections break and the proxy accepts no new connections, while the server keeps
// its side and executes the statements that it was sent. The proxy ends with the test.
func (db *DB) Severable(t testing.TB) (severable *DB, sever func()) {
	t.Helper()
	var mu sync.Mutex
	var clients []*faultproxy.Conn
	severed := false
	severable, _ = db.through(t, func(c *faultproxy.Conn) (faultproxy.Rules, bool) {
		mu.Lock()
		defer mu.Unlock()
		clients = append(clients, c)
		return faultproxy.Rules{KeepServer: true}, !severed
	})
	return severable, func() {
		mu.Lock()
		defer mu.Unlock()
		severed = true
		for _, c := range clients {
			c.CloseClient()
		}
	}
}

// through opens another pool on the same database through a proxy with these rules, which
// ends with the test.
func (db *DB) through(t testing.TB, rules func(c *faultproxy.Conn) (r faultproxy.Rules, accepted bool)) (*DB, *faultproxy.Proxy) {
	t.Helper()
	var proxy *faultproxy.Proxy
	listen := func(server string) (address string) {
		var err error
		if proxy, err = faultproxy.New(server, rules); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		return proxy.Addr
	}
	proxied := *db
	if db.Kind == MySQL {
		config, err := mysql.ParseDSN(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		config.Addr = listen(config.Addr)
		proxied.DSN = config.FormatDSN()
	} else {
		u, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = listen(u.Host)
		proxied.DSN = u.String()
	}
	return proxied.Reopen(t), proxy
}

// hasCommit reports whether a client sends a COMMIT. The level READ COMMITTED and the variables
// autocommit and synchronous_commit do not count.
func hasCommit(sent []byte) bool {
	text := bytes.ToUpper(sent)
	for _, other := range []string{"COMMITTED", "AUTOCOMMIT", "SYNCHRONOUS_COMMIT"} {
		text = bytes.ReplaceAll(text, []byte(other), nil)
	}
	return bytes.Contains(text, []byte("COMMIT"))
}
