package relaynats_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relaynats "github.com/outboxkit/outbox-go/relay/nats"
)

// The test's own program is also the server that a test kills: it is one when these
// variables are set.
const (
	serverAddr = "RELAYNATS_TEST_ADDR"
	serverDir  = "RELAYNATS_TEST_DIR"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(serverAddr); addr != "" {
		if _, err := runServer(options(addr, os.Getenv(serverDir))); err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		select {}
	}
	goleak.VerifyTestMain(m)
}

func options(addr, dir string) *server.Options {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	return &server.Options{Host: host, Port: n, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true}
}

func runServer(opts *server.Options) (*server.Server, error) {
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return nil, fmt.Errorf("the server on %s is not ready", s.Addr())
	}
	return s, nil
}

// start starts a server in this process.
func start(t testing.TB, change func(*server.Options)) *server.Server {
	t.Helper()
	t.Logf("broker: nats-server %s, in this process", server.VERSION)
	opts := options("127.0.0.1:0", t.TempDir())
	opts.Port = server.RANDOM_PORT
	if change != nil {
		change(opts)
	}
	s, err := runServer(opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// process starts a server as a process that can be killed.
func process(t testing.TB) (addr string, p *relaytest.Process) {
	t.Helper()
	t.Logf("broker: nats-server %s, a process of its own", server.VERSION)
	addr = relaytest.FreeAddr(t)
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	return addr, relaytest.Start(t, func() *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), serverAddr+"="+addr, serverDir+"="+dir)
		return cmd
	}, func() error {
		conn, err := nats.Connect("nats://" + addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		js, err := jetstream.New(conn)
		if err != nil {
			return err
		}
		_, err = js.AccountInfo(t.Context())
		return err
	})
}

// client is a connection of the test's own.
func client(t testing.TB, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, opts...)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return js
}

// stream makes a stream for subjects.
func stream(t testing.TB, js jetstream.JetStream, cfg jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	cfg.Name = "TEST"
	s, err := js.CreateStream(t.Context(), cfg)
	require.NoError(t, err)
	return s
}

// publisher makes a publisher and waits until it is connected.
func publisher(t testing.TB, cfg relaynats.Config) *relaynats.Publisher {
	t.Helper()
	p, err := relaynats.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	relaytest.Eventually(t, "the publisher is connected", func() bool { return p.Ping(t.Context()) == nil })
	return p
}

// messages are n messages to a subject.
func messages(subject string, n int) []relay.Message {
	list := make([]relay.Message, n)
	for i := range list {
		id := strconv.Itoa(i + 1)
		list[i] = relay.Message{Topic: subject, ID: subject + "-" + id, ContentType: "application/json", Body: []byte(id)}
	}
	return list
}
